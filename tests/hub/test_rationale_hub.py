"""A model that reads a selection, pushed and loaded by a stranger; and measured by its folder and as an object."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoModelForSequenceClassification

import attnfaith
from attnfaith import hub, record
from attnfaith.data.tokenization import build_tokenizer
from attnfaith.loading import ModelError
from tests.hub.test_hub import make
from tests.small_rationales import rationale_model


pytestmark = pytest.mark.slow


TEXTS = ["the old ship sank", "a new ship sailed again", "ship", ""]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    model = {"embedding_size": 8, "hidden_size": 8, "selector": {"kind": "budget", "budget": 0.5, "contiguous": True}}
    return make(tmp_path_factory.mktemp("finished") / "run", model=model)


def test_what_its_card_says(finished):
    plan = hub.plan(finished, "somebody")
    (model,) = [repo for repo in plan.repos if repo.kind == "model"]
    card = model.card
    assert "reads a part of each text and says which" in card and "at most 50% of them, in one window" in card
    assert "output.selection, output.gates" in card and "guerreiro-martins-2021-spectra" in card
    assert {"modeling_rationale_classifier.py", "rationale_samplers.py", "sequence_budget.py"} <= set(model.files)


STRANGER = """
import json, sys
sys.modules["attnfaith"] = None
import datasets, torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("alice/tiny", trust_remote_code=True)
model = AutoModelForSequenceClassification.from_pretrained("alice/tiny", trust_remote_code=True).eval()
apart, same = [], []
for row in datasets.load_dataset("alice/attnfaith-records", "tiny", split="test"):
    with torch.no_grad():
        output = model(**tokenizer(" ".join(row["tokens"]), return_tensors="pt"))
    apart.append((output.logits.softmax(-1)[0] - torch.tensor(row["probs"])).abs().max().item())
    apart.append((output.selection[0, 1:-1].double() - torch.tensor(row["selection"]).double()).abs().max().item())
    same.append(output.gates[0, 1:-1].bool().tolist() == row["selected"])
print(json.dumps([type(model).__module__, max(apart), all(same), len(same)]))
"""


@pytest.mark.gate
def test_pushed_and_loaded_by_a_stranger(finished, hub_of_alice, tmp_path):
    """What is loaded with its own code is what was measured."""
    server, environment = hub_of_alice
    script = f"from attnfaith import hub; hub.push(hub.plan({str(finished)!r}, 'alice'))"
    pushed = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert pushed.returncode == 0, pushed.stderr
    without = {name: value for name, value in environment.items() if name not in ("PYTHONPATH", "HF_TOKEN")}
    done = subprocess.run([sys.executable, "-c", STRANGER], env=without, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    module, apart, same, count = json.loads(done.stdout.splitlines()[-1])
    assert module.startswith("transformers_modules.") and apart < 1e-6 and same and count == 24


@pytest.fixture
def hub_of_alice(tmp_path):
    from tests.hub.server import HubServer

    with HubServer(tmp_path / "hub") as server:
        server.add_user("alice", "hf_alice_kept_secret")
        environment = server.environment(tmp_path / "home", token="hf_alice_kept_secret")
        yield server, environment | {"PYTHONPATH": str(Path(__file__).parents[1] / "src")}


def test_a_folder_and_an_object_are_measured_alike(finished, tmp_path):
    """`attnfaith.measure` of a run, of its model's folder, and of the model as an object."""
    tokenizer = build_tokenizer(TEXTS, preprocessing="default")
    model = rationale_model("budget", vocab_size=len(tokenizer))
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model").eval()
    tables = [
        attnfaith.measure(given, TEXTS, [0, 1, 0, None], progress=False, tokenizer=used).table
        for given, used in ((tmp_path / "model", None), (model, tokenizer), (loaded, None))
    ]
    for table in tables:
        assert {"selection", "selected", "importance_gradient", "permuted_probs"} <= set(table.column_names)
        for name in ("selection", "attention", "importance_gradient"):
            for one, other in zip(record.rows(table, name), record.rows(tables[0], name), strict=True):
                np.testing.assert_allclose(one, other, atol=1e-6)
    assert [len(row) for row in record.rows(tables[0], "selected")] == [4, 5, 1, 0]
    with pytest.raises(ModelError, match="classifiers that read a selection have one attention only"):
        attnfaith.measure(model, TEXTS, tokenizer=tokenizer, attention="all")
    of_run = attnfaith.measure(finished, TEXTS, measures=[], progress=False).table
    identity = record.from_row(of_run.slice(0, 1).to_pylist()[0])
    assert identity.seed == 3 and identity.selection_contiguous and identity.objective == "classification"
