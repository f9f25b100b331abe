"""What a notebook uses: `measure` a model on texts, look at the `Record`, `load` and `compare` records.

`texts` and `models`: what people have, as what is measured. `measuring`: from both to a record. `records`: the record in
their hands, `frames` what it says as frames. `listing`: what can be measured.
"""

from attnfaith.api.comparing import compare
from attnfaith.api.listing import measures
from attnfaith.api.measuring import measure
from attnfaith.api.records import Record, load


__all__ = ["Record", "compare", "load", "measure", "measures"]
