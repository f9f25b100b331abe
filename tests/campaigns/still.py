"""Imported by processes whose files are compared byte for byte: every duration is 0, and the code is that of a commit."""

import os
import time

from attnfaith import provenance


time.perf_counter = lambda: 0.0
provenance.checkout = lambda: ("0" * 40, False)
os.fsync = os.fstat  # as in conftest.py; a process is killed here, not the machine
