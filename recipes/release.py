"""python recipes/release.py ...: `attnfaith release` from a checkout; it starts processes of its own."""

import sys

from attnfaith.cli import main


if __name__ == "__main__":
    sys.exit(main(["release", *sys.argv[1:]]))
