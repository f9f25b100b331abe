"""Imported by `warm_attnfaith`: the digests of all that measures are known then, and no program there computes them anew."""

from attnfaith import record
from attnfaith.measurement import producers


for path in producers().values():
    record.code_digest(path.removeprefix("attnfaith."))
