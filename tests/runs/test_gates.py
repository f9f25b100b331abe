"""DiffMask in a run: its gates are trained on the run's own texts, kept with the model, and named by what made them."""

import dataclasses
import json
from pathlib import Path

import pytest

from attnfaith import recipes, record, runs
from attnfaith.importance.diffmask import load_gates
from attnfaith.measurement.registry import MeasurementError


pytestmark = pytest.mark.slow
SETTINGS = {"epochs": 2, "batch_size": 16, "train_texts": 40, "validation_texts": 10}


def with_options(recipe, **options):
    measure = {"producers": ["diffmask"], "options": {"diffmask": options}}
    return recipes.build({**dataclasses.asdict(recipe), "measure": measure, "report": {"page": False}})


def test_gates_of_a_run(tiny_recipe, capsys):
    with pytest.raises(MeasurementError, match="'diffmask': nowhere.safetensors holds no gates"):
        runs.run(with_options(tiny_recipe(), gates="nowhere.safetensors"))
    recipe = with_options(tiny_recipe(), **SETTINGS)
    folder = Path(recipe.output_dir)
    assert not (folder / "model").exists(), "gates are checked before the training"
    runs.run(recipe, resume=True)
    (gates,) = (folder / "gates").glob("*.safetensors")
    about, log = load_gates(gates).about, gates.with_suffix(".csv")
    assert about["settings"]["epochs"] == 2 and about["texts"] == [40, 10] and log.read_text().count("\n") == 5
    assert "diffmask epoch 2/2: divergence" in capsys.readouterr().out
    table = record.load(folder / "record.parquet")
    rows = (record.rows(table, name) for name in ("importance_diffmask", "diffmask_layers"))
    for scores, layers in zip(*rows, strict=True):
        assert layers.shape == (2, len(scores)) and ((scores >= 0) & (scores <= 1)).all()
    stated = record.settings(table)[0]["options"]["diffmask"]
    assert stated["epochs"] == 2 and len(stated["gates"]) == 12 and str(folder) not in json.dumps(stated)

    stamp = gates.stat().st_mtime_ns  # gates of the same settings are used again
    runs.measure_run(folder, recipe, overwrite=True)
    assert gates.stat().st_mtime_ns == stamp and "diffmask epoch" not in capsys.readouterr().out
    runs.measure_run(folder, with_options(recipe, **{**SETTINGS, "margin": 0.3}), folder / "other.parquet")
    assert len(list((folder / "gates").glob("*.safetensors"))) == 2
    runs.measure_run(folder, with_options(recipe, gates=str(gates)), folder / "named.parquet")
    columns = ["importance_diffmask", "diffmask_layers"]
    assert record.equal(table.select(columns), record.load(folder / "named.parquet").select(columns))
