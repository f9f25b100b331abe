"""Train, measure and report: accelerate launch --quiet recipes/train.py [--config RECIPE] [--key value ...].

With no arguments it runs the quickstart. `attnfaith train` is the same in one process, `attnfaith train --processes 2` in
several of this machine, `accelerate launch -m attnfaith train` wherever the package is installed. --quiet: of one process
that ends with an error, accelerate shows no traceback of its own below our line; of several it always does, and `attnfaith
train --processes` never.
"""

import sys

from attnfaith.cli import main


if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
