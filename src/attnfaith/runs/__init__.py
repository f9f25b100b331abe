"""A recipe carried out in one folder.

`folder`: the files of a run and the lock of its folder. `preparation` and `models`: from a recipe to its texts, tokenizer
and model. `train`: the training. `execute`: all of them in their order, and the measurement.
"""

from attnfaith.runs.execute import measure_run, run
from attnfaith.runs.folder import RunError
from attnfaith.runs.models import check_model, model_config
from attnfaith.runs.preparation import load_data
from attnfaith.runs.train import training_arguments


__all__ = ["RunError", "check_model", "load_data", "measure_run", "model_config", "run", "training_arguments"]
