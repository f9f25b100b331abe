"""`python -m attnfaith COMMAND` and `accelerate launch -m attnfaith COMMAND`: the command line."""

import sys

from attnfaith.cli import main


if __name__ == "__main__":
    sys.exit(main())
