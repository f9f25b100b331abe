"""The modules that make the pages, for the tests of them."""

import sys
from pathlib import Path


sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "site"))
