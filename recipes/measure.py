"""accelerate launch --quiet recipes/measure.py RUN [--measure.producers [gradient]] [--split validation] [--output PATH]."""

import sys

from attnfaith.cli import main


if __name__ == "__main__":
    sys.exit(main(["measure", *sys.argv[1:]]))
