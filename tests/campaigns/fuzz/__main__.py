"""`python -m tests.campaigns.fuzz DOOR SEED INPUT`: one input again, with its traceback; without INPUT all of a door, or
the first --count, in whole batches.
"""

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
    parser.add_argument("--count", type=int)
    known = parser.parse_args()
    kind = doors()[known.door]
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        if known.input is None:
            firsts, start = range(0, known.count or kind.inputs, kind.batch), time.process_time()
            outcomes = [batch(kind, known.seed, first, kind.batch, Path(folder) / str(first)) for first in firsts]
            defects = [said for one in outcomes for said in one.defects]
            print(*defects, sep="\n\n")
            tried, refused = sum(one.tried for one in outcomes), sum(one.measured["refused"] for one in outcomes)
            seconds = time.process_time() - start
            print(f"{known.door}: {tried} inputs, {refused} refused, {len(defects)} defects, {seconds:.1f} s of CPU")
            return
        first = known.input // kind.batch * kind.batch  # as a full campaign numbers them
        for index, case, _ in cases(kind, known.seed, first, min(kind.batch, kind.inputs - first), Path(folder)):
            if index == known.input:
                print(case.shown)
                print(case.act())


if __name__ == "__main__":
    main()
