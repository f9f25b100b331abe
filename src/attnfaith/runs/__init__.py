"""A recipe carried out in one folder.

`folder`: the files of a run and the lock of its folder. `preparation` and `models`: from a recipe to its texts, tokenizer
and model. `train` and `measure`: the two parts of the work. `execute`: all of them in their order.
"""

from attnfaith.runs.execute import measure_run, run
from attnfaith.runs.folder import RunError, read_state
from attnfaith.runs.models import load_model, load_tokenizer, make_model
from attnfaith.runs.preparation import load_data
from attnfaith.runs.train import training_arguments


__all__ = ["RunError", "load_data", "load_model", "load_tokenizer", "make_model", "measure_run", "read_state", "run"]
__all__ += ["training_arguments"]
