"""python recipes/roar.py ...: `attnfaith roar` from a checkout."""

import sys

from attnfaith.cli import main


if __name__ == "__main__":
    sys.exit(main(["roar", *sys.argv[1:]]))
