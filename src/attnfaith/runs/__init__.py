"""A recipe carried out in one folder: texts, tokenizer and model prepared, the model trained, measured and reported on."""

from attnfaith.runs.execute import measure_run, run
from attnfaith.runs.folder import RunError
from attnfaith.runs.models import check_model, model_config
from attnfaith.runs.preparation import load_data
from attnfaith.runs.train import training_arguments


__all__ = ["RunError", "check_model", "load_data", "measure_run", "model_config", "run", "training_arguments"]
