"""One cell of a study, as Snakemake runs it in the study's folder .study: python -m attnfaith.study.cell NAME.

This process becomes that of the cell's command (plan.json), on a GPU of its own where there are any. A cell that a killed
study left at work is waited for, so that none is run twice.
"""

import fcntl
import os
import sys
import time
from collections.abc import Sequence
from itertools import cycle

from attnfaith.support.files import is_locked, read_object


def main(name: str) -> None:
    plan = read_object("plan.json")
    cell = plan["cells"][name]
    while is_locked(os.path.join(plan["folder"], cell["folder"])):
        time.sleep(1)
    if plan["gpus"]:
        os.environ["CUDA_VISIBLE_DEVICES"] = own_gpu(plan["gpus"], plan["places"])
    os.chdir(plan["folder"])
    os.execv(cell["command"][0], cell["command"])


def own_gpu(gpus: Sequence[str], places: int) -> str:
    """Wait for one of as many places as cells run at a time, hold it to the end of this process, return its GPU."""
    for place in cycle(range(places)):
        stream = os.open(f"gpu-{place}", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(stream)
            time.sleep(0.1)
            continue
        os.set_inheritable(stream, True)  # the lock passes to the command that this process becomes
        return gpus[place % len(gpus)]


if __name__ == "__main__":
    main(sys.argv[1])
