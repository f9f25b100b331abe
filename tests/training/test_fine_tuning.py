"""Recipes that fine-tune a pretrained model: its own attention, a sparse one, or impermissible words apart."""

import csv
import json
import random
import shutil
from fnmatch import fnmatch
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from attnfaith import SelfAttentionClassifierForSequenceClassification, recipes, record, runs
from attnfaith.recipes import RecipeError
from attnfaith.runs import models
from attnfaith.subjects import SelfAttention
from tests.small_classifiers import tokenizer


pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_figures")]
GOOD, BAD = ("good", "new"), ("bad", "old")
NEUTRAL = ("a", "film", "the", "ship", "music", "and", "but", "sank", "sailed", "slowly")


def pretrain(folder, kind="bert", **fields):
    """A tiny encoder without a head, and its tokenizer, as a folder of transformers."""
    words = tokenizer()
    words.backend_tokenizer.enable_padding(length=40)  # as some are saved: a run does without
    words.save_pretrained(folder)
    torch.manual_seed(2)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    sizes |= {"vocab_size": len(words), "max_position_embeddings": 48, "pad_token_id": words.pad_token_id}
    model = AutoModel.from_config(AutoConfig.for_model(kind, **sizes, **fields))
    with torch.no_grad():  # as it is drawn, attention is too even for zeros
        for name, values in model.named_parameters():
            if "query.weight" in name or "key.weight" in name:
                values *= 8
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """The folder of a pretrained encoder; not to be changed."""
    return pretrain(tmp_path_factory.mktemp("pretrained") / "tiny-encoder")


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    path, draws = tmp_path_factory.mktemp("texts") / "reviews.csv", random.Random(5)
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label"])
        for number in range(150):
            words = draws.choices(NEUTRAL, k=draws.randint(4, 9))
            words[draws.randrange(len(words))] = draws.choice((BAD, GOOD)[number % 2])
            rows.writerow([" ".join(words), ("bad", "good")[number % 2]])
    return path


def recipe_of(encoder, texts, output_dir, **changes):
    settings = {"per_device_train_batch_size": 8, "learning_rate": 3e-3, "arguments": {"disable_tqdm": True}}
    tree = {
        "name": "tiny",
        "output_dir": str(output_dir),
        "seed": 3,
        "data": {"path": str(texts)},
        "model": {"pretrained": str(encoder)},
        "training": {"num_train_epochs": 8, **settings},
        "measure": {"producers": ["gradient", "leave_one_out"]},
        "report": {"examples": 1},
    }
    for key, value in changes.items():
        section, _, name = key.partition("__")
        tree[section] = {**tree.get(section, {}), name: value} if name else value
    return recipes.build(tree)


def loaded(folder):
    """The model and the record of a run, and the record's identity."""
    table = record.load(folder / "record.parquet")
    identity = record.from_row(table.slice(0, 1).to_pylist()[0])
    return AutoModelForSequenceClassification.from_pretrained(folder / "model").eval(), table, identity


@pytest.mark.gate
@pytest.mark.parametrize("projection", ["softmax", "sparsemax"])
def test_a_run_and_its_record(encoder, texts, tmp_path, monkeypatch, projection):
    folder = tmp_path / "run"
    recipe = recipe_of(encoder, texts, folder, model__projection=projection)
    runs.run(recipe)
    model, table, identity = loaded(folder)
    if projection == "softmax":
        with monkeypatch.context() as patch:
            patch.setattr(models, "_pretrained", lambda _: pytest.fail("a trained run needs no such files"))
            runs.run(recipe, resume=True)
        names = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
        assert type(model).__name__ == "BertForSequenceClassification"
        assert {path.name for path in (folder / "model").iterdir()} == names
    else:
        assert type(model) is SelfAttentionClassifierForSequenceClassification
        assert model.config.projection == projection
    assert model.config.id2label == {0: "bad", 1: "good"}
    state = json.loads((folder / "run.json").read_text())
    digest = models.pretrained_facts(recipe)["digest"]
    assert state["best"]["value"] > 0.95
    assert state["pretrained"] == {"name": "tiny-encoder", "revision": "local", "digest": digest}
    words = AutoTokenizer.from_pretrained(folder / "model")
    assert words.model_max_length == 48
    assert f"tiny-encoder (revision local, weights {digest})" in (folder / "report" / "index.html").read_text()

    assert (identity.model, identity.encoder, identity.seed) == ("self_attention", "bert", 3)
    assert (identity.projection, identity.objective) == (projection, "classification")
    (row,) = table.slice(0, 1).to_pylist()
    model.set_attn_implementation("eager")
    subject = SelfAttention(model, words)
    batch = subject.encode([" ".join(row["tokens"])])
    assert subject.predict(batch).softmax(-1)[0].tolist() == pytest.approx(row["probs"], abs=1e-5)
    assert subject.attention(batch)[subject.attendable(batch)].tolist() == pytest.approx(row["attention"], abs=1e-5)
    weights = [weight for attention in table.column("attention").to_pylist() for weight in attention]
    assert (0 in weights) == (projection == "sparsemax")

    runs.measure_run(folder, recipe, tmp_path / "again.parquet")
    again = record.load(tmp_path / "again.parquet")
    assert again.column("importance_gradient").equals(table.column("importance_gradient"))


@pytest.mark.parametrize("projection", ["softmax", "sparsegen"])
def test_training_begins_with_the_weights_of_the_files(encoder, texts, tmp_path, projection):
    """The head is drawn by the seed."""
    stored = []
    for name in ("run", "again"):
        model = {"pretrained": str(encoder), "projection": projection, "sparsegen_lambda": 0.25}
        sections = {"model": model, "objective": {"kind": "untrained"}, "measure": {"producers": []}}
        runs.run(recipe_of(encoder, texts, tmp_path / name, **sections))
        stored.append(load_file(tmp_path / name / "model" / "model.safetensors"))
    actual, prefix = load_file(encoder / "model.safetensors"), "bert." if projection == "softmax" else "model.bert."
    head = {f"{prefix.removesuffix('bert.')}classifier.{part}" for part in ("weight", "bias")}
    assert {name for name in stored[0] if name.removeprefix(prefix) not in actual} == head
    assert all(torch.equal(stored[0][prefix + name], values) for name, values in actual.items())
    assert all(torch.equal(stored[1][name], values) for name, values in stored[0].items())


def test_from_the_hub_neither_code_nor_pickles_are_fetched(encoder, texts, tmp_path, monkeypatch):
    request = {}
    snapshot = Path(shutil.copytree(encoder, tmp_path / "snapshots" / "0a1b2c"))

    def download(name, **options):
        request.update(options, name=name)
        return str(snapshot)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    model = {"pretrained": "owner/name", "revision": "v1"}
    sections = {"model": model, "measure": {"producers": []}, "objective": {"kind": "untrained"}}
    runs.run(recipe_of(encoder, texts, tmp_path / "run", **sections))
    assert (request["name"], request["revision"]) == ("owner/name", "v1")
    names = ["pytorch_model.bin", "model.pt", "modeling_name.py", "tokenizer.pkl", "flax_model.msgpack", "deep/model.bin"]
    assert not [name for name in names for pattern in request["allow_patterns"] if fnmatch(name, pattern)]
    assert all(any(fnmatch(path.name, pattern) for pattern in request["allow_patterns"]) for path in encoder.iterdir())
    state = json.loads((tmp_path / "run" / "run.json").read_text())
    assert [state["pretrained"][name] for name in ("name", "revision")] == ["owner/name", "0a1b2c"]


def separated(encoder, texts, folder, **changes):
    """A recipe whose impermissible words are those that decide the label."""
    sections = {"model__separate_impermissible": True, "data__impermissible_words": [*GOOD, *BAD]}
    sections |= {"penalties": {"impermissible_mass": 1.0}, "training__num_train_epochs": 2}
    return recipe_of(encoder, texts, folder, **sections, **changes)


def test_a_run_with_penalties_and_words_apart(encoder, texts, tmp_path):
    runs.run(separated(encoder, texts, tmp_path / "run", model__projection="sparsemax"))
    model, table, identity = loaded(tmp_path / "run")
    assert model.config.separate_impermissible and model.config.projection == "sparsemax"
    assert identity.separate_impermissible is True and identity.impermissible_mass == 1.0
    assert identity.heading["alignment"] == "dot(last layer, impermissible apart)"
    words = AutoTokenizer.from_pretrained(tmp_path / "run" / "model")
    for row in table.slice(0, 5).to_pylist():
        marks = [word in (*GOOD, *BAD) for word in row["tokens"]]
        assert row["impermissible"] == marks
        ids = torch.tensor([[words.cls_token_id, *words.convert_tokens_to_ids(row["tokens"]), words.sep_token_id]])
        marked = torch.tensor([[0, *marks, 0]]).long()
        with torch.no_grad():
            probs = model(ids, torch.ones_like(ids), torch.zeros_like(ids), impermissible=marked).logits.softmax(-1)
        assert row["probs"] == pytest.approx(probs[0].tolist(), abs=1e-5)


def truncated(folder):
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:900])


def larger_tokenizer(folder):
    words = AutoTokenizer.from_pretrained(folder)
    words.add_tokens(["one", "more"])
    words.save_pretrained(folder)


@pytest.mark.parametrize(
    ("spoil", "reason", "begun"),
    [
        (truncated, "cannot be used", True),
        (larger_tokenizer, "different models", True),
        (shutil.rmtree, "cannot be used", False),
    ],
)
def test_files_that_are_refused(encoder, texts, tmp_path, spoil, reason, begun):
    spoil(Path(shutil.copytree(encoder, tmp_path / "copied")))
    with pytest.raises(RecipeError, match=reason):
        runs.run(separated(tmp_path / "copied", texts, tmp_path / "run"))
    assert (tmp_path / "run").exists() == begun
