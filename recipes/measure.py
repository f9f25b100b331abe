"""accelerate launch --quiet recipes/measure.py RUN [--measure.producers [gradient]] [--split validation] [--output PATH]."""

import sys

from attnfaith.cli import guarded, measure


if __name__ == "__main__":
    sys.exit(guarded(measure))
