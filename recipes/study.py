"""python recipes/study.py ...: `attnfaith study` from a checkout; it starts processes of its own."""

import sys

from attnfaith.cli import main


if __name__ == "__main__":
    sys.exit(main(["study", *sys.argv[1:]]))
