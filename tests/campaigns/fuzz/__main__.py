"""`python -m tests.campaigns.fuzz DOOR SEED INPUT`: one input again, with its traceback; without INPUT the first --count."""

import argparse
import tempfile
import time
from pathlib import Path

from tests.campaigns.fuzz import batch, cases, doors


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.campaigns.fuzz", description=__doc__)
    parser.add_argument("door", choices=[*doors()])
    parser.add_argument("seed", type=int)
    parser.add_argument("input", type=int, nargs="?")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    known = parser.parse_args()
    kind = doors()[known.door]
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        if known.input is None:
            start = time.process_time()
            outcome = batch(kind, known.seed, known.first, known.count, Path(folder))
            print(*outcome.defects, sep="\n\n")
            refused = outcome.measured["refused"]
            print(f"\n{outcome.tried} inputs, {refused} refused, {len(outcome.defects)} defects, {time.process_time() - start:.1f} s of CPU")
            return
        first = known.input // kind.batch * kind.batch  # as a full campaign numbers them
        for index, case, _ in cases(kind, known.seed, first, min(kind.batch, kind.inputs - first), Path(folder)):
            if index == known.input:
                print(case.shown)
                print(case.act())


if __name__ == "__main__":
    main()
