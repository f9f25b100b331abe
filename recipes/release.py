"""python recipes/release.py ...: `attnfaith release` from a checkout; it starts processes of its own."""

import sys

from attnfaith.cli import guarded, release


if __name__ == "__main__":
    sys.exit(guarded(release))
