"""Train, measure and report: accelerate launch --quiet recipes/train.py [--config RECIPE] [--key value ...].

With no arguments it runs the quickstart. `attnfaith train` is the same in one process, and `accelerate launch -m attnfaith
train` wherever the package is installed. With --quiet accelerate adds no traceback of its own to a mistake of one process.
"""

import sys

from attnfaith.cli import main


if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
