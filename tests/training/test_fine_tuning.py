"""Recipes that fine-tune a pretrained model, with its own attention or a sparse one."""

import csv
import json
import random
import shutil
from fnmatch import fnmatch
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tokenizers.processors import TemplateProcessing
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedTokenizerFast,
)

from attnfaith import SelfAttentionClassifierForSequenceClassification, recipes, record, runs
from attnfaith.data.subwords import tokenizer_digest
from attnfaith.recipes import RecipeError
from attnfaith.runs import models
from attnfaith.subjects import SelfAttention
from tests.subword_tokenizers import train


pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_report")]
GOOD, BAD = ("moving", "superb", "warm"), ("clumsy", "dull", "stale")
OTHERS = ("a", "film", "with", "plot", "and", "the", "cast", "of", "scenes")
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}


def write_texts(path: Path, count: int = 150, pair: bool = False) -> Path:
    draws = random.Random(5)
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "second", "label"] if pair else ["text", "label"])
        for number in range(count):
            words = draws.choices(OTHERS, k=draws.randint(4, 9))
            words[draws.randrange(len(words))] = draws.choice((BAD, GOOD)[number % 2])
            label = ("bad", "good")[number % 2]
            rows.writerow([" ".join(words), "the plot of a film", label] if pair else [" ".join(words), label])
    return path


def pretrain(folder: Path, kind: str = "bert", **fields) -> Path:
    """A tiny encoder without a head, and its tokenizer, as a folder of transformers."""
    train("wordpiece", folder, [" ".join((*GOOD, *BAD, *OTHERS))])
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ends = [(token, tokenizer.convert_tokens_to_ids(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    tokenizer.backend_tokenizer.enable_padding(length=40)  # as some are saved: a run does without
    special = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep")}
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **special,
    ).save_pretrained(folder)
    torch.manual_seed(2)
    sizes = {**SIZES, "vocab_size": len(tokenizer), "max_position_embeddings": 48, "pad_token_id": tokenizer.pad_token_id}
    model = AutoModel.from_config(AutoConfig.for_model(kind, **{**sizes, **fields}))
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


@pytest.fixture
def copied(encoder, tmp_path):
    """A copy of it that may be changed; what was read of it is forgotten."""
    yield Path(shutil.copytree(encoder, tmp_path / "copied"))
    models.files_of.cache_clear()


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return write_texts(tmp_path_factory.mktemp("texts") / "reviews.csv")


def recipe_of(encoder, texts, output_dir, **changes):
    tree = {
        "name": "tiny",
        "output_dir": str(output_dir),
        "seed": 3,
        "data": {"path": str(texts)},
        "model": {"pretrained": str(encoder)},
        "training": {
            "num_train_epochs": 8,
            "per_device_train_batch_size": 8,
            "learning_rate": 3e-3,
            "arguments": {"disable_tqdm": True},
        },
        "measure": {"producers": ["gradient", "leave_one_out"]},
        "report": {"examples": 1},
    }
    for key, value in changes.items():
        section, _, name = key.partition("__")
        tree[section] = {**tree[section], name: value} if name else value
    return recipes.build(tree)


@pytest.fixture(scope="module", params=["softmax", "sparsemax"])
def finished(request, encoder, texts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    recipe = recipe_of(encoder, texts, folder, model={"pretrained": str(encoder), "projection": request.param})
    runs.run(recipe)
    return folder, recipe


# ------------------------------------------------------------------------------------------------ a run


@pytest.mark.gate
def test_what_a_run_leaves(finished, encoder):
    folder, recipe = finished
    model, projection = AutoModelForSequenceClassification.from_pretrained(folder / "model"), recipe.model.projection
    if projection == "softmax":
        assert type(model).__name__ == "BertForSequenceClassification"
        assert {path.name for path in (folder / "model").iterdir()} == {
            "config.json",
            "model.safetensors",
            "tokenizer.json",
            "tokenizer_config.json",
        }
    else:
        assert type(model) is SelfAttentionClassifierForSequenceClassification
        assert model.config.projection == projection
    assert model.config.id2label == {0: "bad", 1: "good"}
    state = json.loads((folder / "run.json").read_text())
    assert state["status"] == "complete"
    assert state["best"]["value"] > 0.95
    assert state["pretrained"] == {
        "name": "tiny-encoder",
        "revision": "local",
        "digest": models.Pretrained(recipe).facts()["digest"],
    }
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    assert state["tokenizer"]["digest"] == tokenizer_digest(tokenizer)
    assert tokenizer.model_max_length == 48
    page = (folder / "report" / "index.html").read_text()
    assert f"tiny-encoder (revision local, weights {state['pretrained']['digest']})" in page


def test_the_record_is_of_the_model_that_was_trained(finished):
    folder, recipe = finished
    table = record.load(folder / "record.parquet")
    (row,) = table.slice(0, 1).to_pylist()
    identity = record.from_row(row)
    assert (identity.model, identity.encoder, identity.seed) == ("self_attention", "bert", 3)
    assert identity.projection == recipe.model.projection
    assert identity.objective == "classification"
    model = AutoModelForSequenceClassification.from_pretrained(folder / "model", attn_implementation="eager")
    subject = SelfAttention(model, AutoTokenizer.from_pretrained(folder / "model"))
    batch = subject.encode([" ".join(row["tokens"])])
    assert subject.predict(batch).softmax(-1)[0].tolist() == pytest.approx(row["probs"], abs=1e-5)
    assert subject.attention(batch)[subject.attendable(batch)].tolist() == pytest.approx(row["attention"], abs=1e-5)
    weights = [weight for attention in table.column("attention").to_pylist() for weight in attention]
    assert (0 in weights) == (recipe.model.projection == "sparsemax")


def test_a_run_is_measured_anew_and_gone_on_with(finished, tmp_path):
    folder, recipe = finished
    other = tmp_path / "again.parquet"
    runs.measure_run(folder, recipe, other)
    assert (
        record.load(other)
        .column("importance_gradient")
        .equals(record.load(folder / "record.parquet").column("importance_gradient"))
    )
    weights = (folder / "model" / "model.safetensors").read_bytes()
    runs.run(recipe, resume=True)
    assert (folder / "model" / "model.safetensors").read_bytes() == weights


@pytest.mark.parametrize("projection", ["softmax", "sparsegen"])
def test_training_begins_with_the_weights_of_the_files(encoder, texts, tmp_path, projection):
    model = {"pretrained": str(encoder), "projection": projection, "sparsegen_lambda": 0.25}
    recipe = recipe_of(
        encoder, texts, tmp_path / "run", model=model, objective={"kind": "untrained"}, measure={"producers": []}
    )
    runs.run(recipe)
    actual, stored = load_file(encoder / "model.safetensors"), load_file(tmp_path / "run" / "model" / "model.safetensors")
    prefix = "bert." if projection == "softmax" else "model.bert."
    assert {name for name in stored if name.removeprefix(prefix) not in actual} == {
        f"{prefix.removesuffix('bert.')}classifier.{part}" for part in ("weight", "bias")
    }
    assert all(torch.equal(stored[prefix + name], values) for name, values in actual.items())
    again = recipe_of(
        encoder, texts, tmp_path / "again", model=model, objective={"kind": "untrained"}, measure={"producers": []}
    )
    runs.run(again)
    assert (tmp_path / "again" / "model" / "model.safetensors").read_bytes() == (
        tmp_path / "run" / "model" / "model.safetensors"
    ).read_bytes(), "the head is drawn by the seed"


# ------------------------------------------------------------------------------------------------ settings


# ------------------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        *(("model", "encoder", "cnn"), ("model", "kernel_sizes", [3]), ("model", "hierarchy", "sentence")),
        *(("data", "tokenizer", "c/d"), ("data", "vectors", "v.vec"), ("data", "min_df", 2)),
        *(("training", "amsgrad", True), ("training", "random_erasure", 0.5)),
        ("training", "attention_learning_rate_factor", 0.0),
        ("measure", "outputs", ["train"]),
        ("objective", "kind", "guided"),
    ],
)
def test_keys_that_a_pretrained_model_leaves_no_room_for(section, key, value):
    tree = {"name": "a", "output_dir": "b", "model": {"pretrained": "a/b"}, "measure": {"producers": []}}
    tree[section] = {**tree.get(section, {}), key: value, **({"base": "runs/c"} if value == "guided" else {})}
    with pytest.raises(RecipeError, match=rf"{section}\.{key}="):
        recipes.build(tree)


def pickled(folder):
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def cut_off(folder):
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:900])


def with_code(folder):
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "unheard_of", "auto_map": {"AutoConfig": "code.Config", "AutoModel": "code.Model"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "code.py").write_text("raise SystemExit('this code was run')")


def larger_tokenizer(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["one", "more"])
    tokenizer.save_pretrained(folder)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (pickled, "safetensors"),
        (cut_off, "cannot be loaded"),
        (with_code, "unknown to transformers"),
        (larger_tokenizer, "of another model"),
    ],
)
def test_files_that_cannot_be_used(copied, texts, tmp_path, spoil, reason):
    spoil(copied)
    with pytest.raises(RecipeError, match=reason):
        runs.run(recipe_of(copied, texts, tmp_path / "run"))


def test_of_the_hub_neither_code_nor_pickles_are_fetched(encoder, texts, tmp_path, monkeypatch):
    questions = {}
    snapshot = Path(shutil.copytree(encoder, tmp_path / "snapshots" / "0a1b2c"))

    def download(name, **options):
        questions.update(options, name=name)
        return str(snapshot)

    monkeypatch.setattr("attnfaith.runs.models.snapshot_download", download)
    model = {"pretrained": "owner/name", "revision": "v1"}
    recipe = recipe_of(encoder, texts, tmp_path / "run", model=model, measure={"producers": []})
    runs.run(recipe)
    models.files_of.cache_clear()
    assert (questions["name"], questions["revision"]) == ("owner/name", "v1")
    names = ["pytorch_model.bin", "model.pt", "modeling_name.py", "tokenizer.pkl", "flax_model.msgpack", "deep/model.bin"]
    assert not [name for name in names for pattern in questions["allow_patterns"] if fnmatch(name, pattern)]
    assert all(any(fnmatch(path.name, pattern) for pattern in questions["allow_patterns"]) for path in encoder.iterdir())
    state = json.loads((tmp_path / "run" / "run.json").read_text())
    assert [state["pretrained"][name] for name in ("name", "revision")] == ["owner/name", "0a1b2c"]


# ------------------------------------------------------------------------------------------------ impermissible words


PENALTIES = {"impermissible_mass": 1.0, "diversity": 0.1, "word_tying": 0.01, "masked_language_model": 0.1}


def apart(encoder, texts, folder, **changes):
    """A recipe whose impermissible words are those that decide the label."""
    settings = {
        "model__separate_impermissible": True,
        "data__impermissible_words": [*GOOD, *BAD],
        "penalties": PENALTIES,
        "training__num_train_epochs": 2,
    }
    return recipe_of(encoder, texts, folder, **{**settings, **changes})


@pytest.mark.parametrize("projection", ["softmax", "sparsemax"])
def test_a_run_with_penalties_and_words_apart(encoder, texts, tmp_path, projection):
    recipe = apart(encoder, texts, tmp_path / "run", model__projection=projection)
    runs.run(recipe)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "run" / "model").eval()
    assert type(model) is SelfAttentionClassifierForSequenceClassification
    assert model.config.separate_impermissible and model.config.projection == projection
    table = record.load(tmp_path / "run" / "record.parquet")
    identity = record.from_row(table.slice(0, 1).to_pylist()[0])
    assert identity.separate_impermissible is True
    assert identity.impermissible_mass == 1.0
    assert identity.heading["alignment"] == "dot(last layer, impermissible apart)"
    # the record's probabilities are those of the saved model
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run" / "model")
    marked = {tokenizer.convert_tokens_to_ids(word) for word in (*GOOD, *BAD)}
    for row in table.slice(0, 5).to_pylist():
        ids = torch.tensor(
            [[tokenizer.cls_token_id, *tokenizer.convert_tokens_to_ids(row["tokens"]), tokenizer.sep_token_id]]
        )
        marks = torch.tensor([[int(number in marked) for number in ids[0].tolist()]])
        assert [bool(mark) for mark in marks[0, 1:-1]] == row["impermissible"]
        with torch.no_grad():
            probs = model(ids, torch.ones_like(ids), torch.zeros_like(ids), impermissible=marks).logits.softmax(-1)
        assert row["probs"] == pytest.approx(probs[0].tolist(), abs=1e-5)


def test_a_type_in_which_kinds_would_meet(texts, tmp_path):
    folder = pretrain(tmp_path / "convolutions", "convbert", embedding_size=16, conv_kernel_size=3)
    with pytest.raises(RecipeError, match=r"^model\.pretrained='.*convolutions': the attention of .* check 'separation'"):
        runs.run(apart(folder, texts, tmp_path / "run"))
