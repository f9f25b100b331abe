"""python recipes/study.py ...: `attnfaith study` from a checkout; it starts processes of its own."""

import sys

from attnfaith.cli import guarded, study


if __name__ == "__main__":
    sys.exit(guarded(study))
