"""Train, measure and report: accelerate launch recipes/train.py [--config RECIPE] [--key value ...].

With no arguments it runs the quickstart.
"""

import sys

from attnfaith.cli import guarded, train


if __name__ == "__main__":
    sys.exit(guarded(train))
