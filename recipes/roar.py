"""python recipes/roar.py ...: `attnfaith roar` from a checkout."""

import sys

from attnfaith.cli import guarded, roar


if __name__ == "__main__":
    sys.exit(guarded(roar))
