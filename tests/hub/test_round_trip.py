"""Runs, records, models and data sets to a Hub on loopback and back, by the unpatched clients in processes of their own."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.stats import kendalltau

from attnfaith import record
from tests.hub.server import HubServer
from tests.hub.test_hub import finished_run


pytestmark = [pytest.mark.slow, pytest.mark.gate]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folders of two finished runs, the second of a model that selects."""
    folder = tmp_path_factory.mktemp("runs")
    model = {"embedding_size": 8, "hidden_size": 8, "selector": {"kind": "budget", "budget": 0.5}}
    return finished_run(folder / "tiny"), finished_run(folder / "selects", model=model, name="selects")


@pytest.fixture(scope="module")
def server():
    with HubServer() as started:
        yield started
        started.shutdown()
    assert started.errors == []


def run_python(script, folder, environment, *words):
    command = [sys.executable, "-c", script, *map(str, words)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done


OWNER = """
import sys
from pathlib import Path

import datasets
from huggingface_hub import HfApi

import attnfaith
from attnfaith import cli, record
from attnfaith.record import lookup

tiny, selects = sys.argv[1:]
for _ in range(2):
    assert cli.main(["push", tiny, selects, "--to", "alice"]) == 0


def tables():
    return {path.split("/")[0] for path in HfApi().list_repo_files("alice/attnfaith-results", repo_type="dataset")}


HfApi().upload_file(path_or_fileobj=b"old", path_in_repo="old.py", repo_id="alice/tiny")
HfApi().upload_file(path_or_fileobj=b"mine", path_in_repo="LICENSE", repo_id="alice/tiny")
assert cli.main(["push", tiny, "--to", "alice"]) == 0
for run in (tiny, selects):
    Path(run, "report", "tables", "summary.parquet").unlink()
assert "summary" in tables() and cli.main(["push", tiny, selects, "--to", "alice"]) == 0
assert "summary" not in tables() >= {"agreement", "performance"}
files = HfApi().list_repo_files("alice/tiny")
assert "LICENSE" in files and "old.py" not in files, "a push deletes its own files alone"

own = attnfaith.load(tiny)
assert all(attnfaith.load(name) == own for name in ("alice/tiny", "alice/attnfaith-records:tiny"))
assert [source.name for source in lookup.find_records("alice/attnfaith-records")] == [
    "alice/attnfaith-records:selects", "alice/attnfaith-records:tiny"
]
address = own.push_to_hub("alice/mine", private=True)
assert address.endswith("/datasets/alice/mine"), address
again = attnfaith.load("alice/mine")
assert again == own and again.cells[0].identity == own.cells[0].identity
attnfaith.load(selects).push_to_hub("alice/mine", config="other")
own.push_to_hub("alice/mine", config="third")
assert attnfaith.load("alice/mine:default") == own != attnfaith.load("alice/mine:other"), "one of another name stays"

how = {"measures": ["gradient"], "progress": False}
assert attnfaith.measure("alice/tiny", ["w1 w2"], **how) == attnfaith.measure(tiny, ["w1 w2"], **how)
assert cli.main(["measure", "alice/tiny", "--producers", "occlusion"]) == 0
measured = record.load(lookup.FETCHED / "alice--tiny" / "record.parquet")
assert measured["attention"].equals(own.table["attention"]) and "importance_occlusion" in measured.column_names
assert cli.main(["reproduce", "alice/tiny"]) == 0

features = datasets.Features(sentence=datasets.Value("string"), label=datasets.ClassLabel(names=["pos", "neg"]))
rows = {"sentence": [f"text {row}" for row in range(40)], "label": [0, 1] * 20}
datasets.Dataset.from_dict(rows, features).push_to_hub("alice/texts", split="train")
small = ["--embedding_size=4", "--hidden_size=4", "--num_train_epochs=1", "--producers=[]", "--report.page=false"]
assert cli.main(["train", "--data.hub_id", "alice/texts", "--data.text", "sentence", *small]) == 0

api, recipe = HfApi(), Path(tiny, "recipe.yaml").read_text()
foreign = recipe.replace("name: planted_evidence", "name: null").replace("path: null", "path: /etc/passwd")
foreign = foreign.replace("preprocessing: null", "preprocessing: words").replace("max_length: null", "max_length: 9")
foreign = foreign[: foreign.index("  arguments:")] + foreign[foreign.index("  limits:"):]
for name, files in (("file", {"recipe.yaml": foreign.encode(), "run.json": str(Path(tiny, "run.json"))}), ("bare", {})):
    api.create_repo(f"alice/{name}")
    api.upload_folder(repo_id=f"alice/{name}", folder_path=Path(tiny, "model"))
    for path, content in files.items():
        api.upload_file(path_or_fileobj=content, path_in_repo=path, repo_id=f"alice/{name}")
refused = [
    "measure alice/file", "reproduce alice/file", "measure alice/bare", "measure alice/none",
    "show alice/attnfaith-records 1", "show alice/attnfaith-records:oter 1",
    "push " + tiny + " --to bob", "train --data.hub_id alice/none",
]
for line in refused:
    assert cli.main(line.split()) == 2, line
"""
REFUSED = ["reproduce alice/file --data.path FILE", "give it with --data.path", "lacks recipe.yaml, run.json"]
REFUSED += ["no folder of a run at alice/none", "holds 2 records: name one of", "holds no record of oter"]
REFUSED += ["alice cannot write for bob", "cannot be read from"]


@pytest.fixture(scope="module")
def owner(runs, server, tmp_path_factory):
    """The folder in which the owner works, and the process, ended: the Hub holds what it pushed."""
    folder = tmp_path_factory.mktemp("owner")
    environment = server.environment(folder / "home", PYTHONPATH=str(ROOT / "src"), HF_TOKEN="hf_alice")
    return folder, run_python(OWNER, folder, environment, *runs)


def test_what_an_owner_pushes_is_read_measured_and_reproduced(server, owner):
    folder, done = owner
    assert done.stdout.count("as it was: ") >= 9, "all of the second push; of the second run the metric in the first, too"
    assert "agree exactly, 0 agree within tolerance, 0 do not" in done.stdout and "hf_alice" not in done.stdout + done.stderr
    assert len(server.repos["space", "alice/attention_faithfulness"].commits) == 2
    assert not [path for path in server.requests if "/alice/tiny/resolve/" in path and path.endswith((".py", ".bin"))]
    dataset = json.loads((folder / "runs" / "alice-texts" / "run.json").read_text())["dataset"]
    assert dataset["revision"] == server.repos["dataset", "alice/texts"].commits[-1].id
    assert dataset["about"]["classes"]["pos"] == {"train": 14, "validation": 3, "test": 3}
    errors = re.findall(r"^error: (.*)$", done.stderr, re.M)
    assert [key for key, error in zip(REFUSED, errors, strict=True) if key not in error] == [], errors


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

tables = {
    name: datasets.load_dataset("alice/attnfaith-results", name, split="results").num_rows
    for name in datasets.get_dataset_config_names("alice/attnfaith-results")
}
tau = metric.compute(attention=record["attention"], importance=record["importance_gradient"])["kendall_tau"]
print(json.dumps({"apart": max([*apart("tiny"), *apart("selects")]), "tables": tables, "tau": tau}))
"""


def test_a_stranger_loads_what_was_measured_without_the_package(runs, server, owner, tmp_path):
    """Weights, attention, selection, records, tables and metric, by the lines of docs/how_to/publish.md."""
    page = (ROOT / "docs" / "how_to" / "publish.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"^```\{\.python notest\}\n(.*?)^```", page, re.M | re.S)
    lines = lines.replace("OWNER", "alice").replace("sst-bilstm-additive-sparsemax", "tiny")
    done = run_python(STRANGER.replace("# the page", lines), tmp_path, server.environment(tmp_path / "home"))
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert loaded["apart"] < 1e-6
    for name, rows in loaded["tables"].items():
        paths = [path for run in runs if (path := run / "report" / "tables" / f"{name}.parquet").is_file()]
        assert rows == sum(pq.read_metadata(path).num_rows for path in paths)
    table = record.load(runs[0] / "record.parquet")
    pairs = zip(record.rows(table, "attention"), record.rows(table, "importance_gradient"), strict=True)
    assert loaded["tau"] == pytest.approx(np.nanmean([kendalltau(*pair).statistic for pair in pairs]), abs=1e-6)
