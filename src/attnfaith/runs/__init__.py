"""A recipe carried out in one folder.

`prepare`: from a recipe to texts, tokenizer and model. `train` and `measure`: the two parts of the work. `folder`: what a
run leaves, and how its folder is held. `base`: the run that another is trained against. `summary`: report and scores.
`translation`: all of that of sentence pairs. `execute`: all of them in their order.
"""

from attnfaith.runs.checkpoint import load_model, load_tokenizer
from attnfaith.runs.execute import measure_run, run
from attnfaith.runs.folder import MODEL, RECIPE, RECORD, STATE, RunError, read_state
from attnfaith.runs.prepare import load_data, make_model, make_tokenizer, training_arguments
from attnfaith.runs.summary import faithfulness
from attnfaith.runs.translation import load_pairs


__all__ = [
    "MODEL",
    "RECIPE",
    "RECORD",
    "STATE",
    "RunError",
    "faithfulness",
    "load_data",
    "load_model",
    "load_pairs",
    "load_tokenizer",
    "make_model",
    "make_tokenizer",
    "measure_run",
    "read_state",
    "run",
    "training_arguments",
]
