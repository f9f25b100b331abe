"""Runs, records, models and data sets to a Hub on loopback and back, by the unpatched clients in processes of their own."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kendalltau

from attnfaith import record
from tests.hub.server import HubServer
from tests.tiny_recipes import finished_run


pytestmark = [pytest.mark.slow, pytest.mark.gate]
ROOT = Path(__file__).parents[2]
OWNER = """
import sys
from pathlib import Path

import yaml
from huggingface_hub import HfApi

import attnfaith
from attnfaith import cli, record
from attnfaith.record import lookup

tiny, selects = sys.argv[1:]
api = HfApi()
for _ in range(2):
    assert cli.main(["push", tiny, selects, "--to", "alice"]) == 0


def put(path, content, repo_id, kind="model"):
    api.create_repo(repo_id, repo_type=kind, exist_ok=True)
    api.upload_file(path_or_fileobj=content, path_in_repo=path, repo_id=repo_id, repo_type=kind)


put("old.py", b"old", "alice/tiny")
put("LICENSE", b"mine", "alice/tiny")
put("tiny/tables/old.csv", b"old", "alice/attnfaith-records", "dataset")
assert cli.main(["push", tiny, "--to", "alice"]) == 0
files = {*api.list_repo_files("alice/tiny"), *api.list_repo_files("alice/attnfaith-records", repo_type="dataset")}
assert {"LICENSE", "tiny/tables/summary.csv", "selects/tables/summary.csv"} <= files
assert not {"old.py", "tiny/tables/old.csv"} & files, "a push deletes its own files alone"

own = attnfaith.load(tiny)
assert all(attnfaith.load(name) == own for name in ("alice/tiny", "alice/attnfaith-records:tiny"))
assert [*lookup.find_records("alice/attnfaith-records").values()] == [
    "alice/attnfaith-records:selects", "alice/attnfaith-records:tiny"
]
address = own.push_to_hub("alice/mine", private=True)
assert address.endswith("/datasets/alice/mine"), address
again = attnfaith.load("alice/mine")
assert again == own and again.cells[0].identity == own.cells[0].identity
attnfaith.load(selects).push_to_hub("alice/mine", config="other")
assert attnfaith.load("alice/mine:default") == own != attnfaith.load("alice/mine:other"), "one of another name stays"

how = {"measures": ["gradient"], "progress": False}
assert attnfaith.measure("alice/tiny", ["w1 w2"], **how) == attnfaith.measure(tiny, ["w1 w2"], **how)
assert cli.main(["measure", "alice/tiny", "--producers", "occlusion"]) == 0
measured = record.load(lookup.FETCHED / "alice--tiny" / "record.parquet")
assert measured["attention"].equals(own.table["attention"]) and "importance_occlusion" in measured.column_names
assert cli.main(["reproduce", "alice/tiny"]) == 0

lines = ["sentence,label", *(f"text {row},{('pos', 'neg')[row % 2]}" for row in range(40))]
put("train.csv", "\\n".join(lines).encode(), "alice/texts", "dataset")
small = ["--embedding_size=4", "--hidden_size=4", "--num_train_epochs=1", "--producers=[]", "--report.page=false"]
assert cli.main(["train", "--data.hub_id", "alice/texts", "--data.text", "sentence", *small]) == 0

foreign = yaml.safe_load(Path(tiny, "recipe.yaml").read_text())
del foreign["data"]["arguments"]
foreign["data"].update(name=None, path="/etc/passwd", preprocessing="words", max_length=9)
put("recipe.yaml", yaml.safe_dump(foreign).encode(), "alice/file")
put("run.json", str(Path(tiny, "run.json")), "alice/file")
for name in ("file", "bare"):
    api.create_repo(f"alice/{name}", exist_ok=True)
    api.upload_folder(repo_id=f"alice/{name}", folder_path=Path(tiny, "model"))
for line in sys.stdin.read().splitlines():
    assert cli.main(line.format(tiny=tiny).split()) == 2, line
"""
REFUSED = {
    "measure alice/file": "reproduce alice/file --data.path FILE",
    "reproduce alice/file": "give it with --data.path",
    "measure alice/bare": "lacks recipe.yaml, run.json",
    "measure alice/none": "no folder of a run at alice/none",
    "show alice/attnfaith-records 1": "holds 2 records: name one of",
    "show alice/attnfaith-records:oter 1": "holds no record of oter",
    "push {tiny} --to bob": "alice cannot write for bob",
    "train --data.hub_id alice/none": "cannot be read from",
}
STRANGER = """
import json, sys
sys.modules["attnfaith"] = None

# the page

import datasets, torch

def apart(name):
    tokenizer = AutoTokenizer.from_pretrained(f"alice/{name}", trust_remote_code=True)
    model = AutoModelForSequenceClassification.from_pretrained(f"alice/{name}", trust_remote_code=True).eval()
    assert type(model).__module__.startswith("transformers_modules.")
    for row in datasets.load_dataset("alice/attnfaith-records", name, split="test"):
        with torch.no_grad():
            output = model(**tokenizer(" ".join(row["tokens"]), return_tensors="pt"))
        yield (output.logits.softmax(-1)[0] - torch.tensor(row["probs"])).abs().max().item()
        weights, column = (output.attention, "attention") if name == "tiny" else (output.selection, "selection")
        yield (weights[0, 1:-1].double() - torch.tensor(row[column]).double()).abs().max().item()

tau = metric.compute(attention=record["attention"], importance=record["importance_gradient"])["kendall_tau"]
print(json.dumps({"apart": max([*apart("tiny"), *apart("selects")]), "rows": table.num_rows, "tau": tau}))
"""


def run_python(script, folder, environment, *words, stdin=None):
    command = [sys.executable, "-c", script, *map(str, words)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, input=stdin)
    assert done.returncode == 0, done.stderr[-3000:]
    return done


@pytest.fixture(scope="module")
def owner(tmp_path_factory):
    """Two finished runs, the second of a model that selects; the Hub; the owner's folder and process, ended."""
    folder, trained = tmp_path_factory.mktemp("owner"), tmp_path_factory.mktemp("trained")
    model = {"embedding_size": 8, "hidden_size": 8, "selector": {"kind": "budget", "budget": 0.5}}
    runs = finished_run(trained / "tiny"), finished_run(trained / "selects", model=model, name="selects")
    with HubServer() as server:
        environment = server.environment(folder / "home", PYTHONPATH=str(ROOT / "src"), HF_TOKEN="hf_alice")
        yield runs, server, folder, run_python(OWNER, folder, environment, *runs, stdin="\n".join(REFUSED))


def test_what_an_owner_pushes_is_read_measured_and_reproduced(owner):
    _, server, folder, done = owner
    assert "agree exactly, 0 agree within tolerance, 0 do not" in done.stdout and "hf_alice" not in done.stdout + done.stderr
    for repo in (("space", "alice/attention_faithfulness"), ("model", "alice/selects")):
        assert len(server.repos[repo].commits) == 2, "as it was at the second push"
    assert not [path for path in server.requests if "/alice/tiny/resolve/" in path and path.endswith((".py", ".bin"))]
    dataset = json.loads((folder / "runs" / "alice-texts" / "run.json").read_text())["dataset"]
    assert dataset["revision"] == server.repos["dataset", "alice/texts"].commits[-1].id
    assert dataset["about"]["classes"]["pos"] == {"train": 14, "validation": 3, "test": 3}
    errors = re.findall(r"^error: (.*)$", done.stderr, re.M)
    assert [key for key, error in zip(REFUSED.values(), errors, strict=True) if key not in error] == [], errors


def test_a_stranger_loads_what_was_measured_without_the_package(owner, tmp_path):
    """Weights, attention, selection, records, tables and metric, by the lines of docs/how_to/publish.md."""
    (tiny, _), server, *_ = owner
    page = (ROOT / "docs" / "how_to" / "publish.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"^```\{\.python notest\}\n(.*?)^```", page, re.M | re.S)
    lines = lines.replace("OWNER", "alice").replace("sst-bilstm-additive-sparsemax", "tiny")
    done = run_python(STRANGER.replace("# the page", lines), tmp_path, server.environment(tmp_path / "home"))
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert loaded["apart"] < 1e-6
    assert loaded["rows"] == len(pd.read_csv(tiny / "report" / "tables" / "agreement.csv")) > 0
    table = record.load(tiny / "record.parquet")
    pairs = zip(record.rows(table, "attention"), record.rows(table, "importance_gradient"), strict=True)
    assert loaded["tau"] == pytest.approx(np.nanmean([kendalltau(*pair).statistic for pair in pairs]), abs=1e-6)
