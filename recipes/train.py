"""accelerate launch recipes/train.py [--config recipes/<recipe>.yaml] [--key value ...]; with no arguments, the quickstart."""

import sys

from attnfaith.cli import guarded, train


if __name__ == "__main__":
    sys.exit(guarded(train))
