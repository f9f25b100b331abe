"""Recipes that fine-tune a pretrained model: with its own attention, a sparse one, words apart, or a selection."""

import csv
import json
import random
import shutil
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
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
NEUTRAL = ("a", "film", "with", "plot", "and", "the", "cast", "of", "scenes")
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}


def pretrain(folder: Path, kind: str = "bert", **fields) -> Path:
    """A tiny encoder without a head, and its tokenizer, as a folder of transformers."""
    train("wordpiece", folder, [" ".join((*GOOD, *BAD, *NEUTRAL))])
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ends = [(token, tokenizer.convert_tokens_to_ids(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    tokenizer.backend_tokenizer.enable_padding(length=40)  # as some are saved: a run does without
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **{f"{role}_token": f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep")},
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


@pytest.mark.gate
@pytest.mark.parametrize("projection", ["softmax", "sparsemax"])
def test_a_run_and_its_record(encoder, texts, tmp_path, projection):
    folder = tmp_path / "run"
    recipe = recipe_of(encoder, texts, folder, model__projection=projection)
    runs.run(recipe)
    model = AutoModelForSequenceClassification.from_pretrained(folder / "model")
    if projection == "softmax":
        names = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
        assert type(model).__name__ == "BertForSequenceClassification"
        assert {path.name for path in (folder / "model").iterdir()} == names
    else:
        assert type(model) is SelfAttentionClassifierForSequenceClassification
        assert model.config.projection == projection
    assert model.config.id2label == {0: "bad", 1: "good"}
    state, digest = json.loads((folder / "run.json").read_text()), models.Pretrained(recipe).facts()["digest"]
    assert state["best"]["value"] > 0.95
    assert state["pretrained"] == {"name": "tiny-encoder", "revision": "local", "digest": digest}
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    assert state["tokenizer"]["digest"] == tokenizer_digest(tokenizer) and tokenizer.model_max_length == 48
    assert f"tiny-encoder (revision local, weights {digest})" in (folder / "report" / "index.html").read_text()

    table = record.load(folder / "record.parquet")
    (row,) = table.slice(0, 1).to_pylist()
    identity = record.from_row(row)
    assert (identity.model, identity.encoder, identity.seed) == ("self_attention", "bert", 3)
    assert (identity.projection, identity.objective) == (projection, "classification")
    model.set_attn_implementation("eager")
    subject = SelfAttention(model, tokenizer)
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


# ------------------------------------------------------------------------------------------------ selections


def test_a_selector_and_a_classifier_over_the_encoder(encoder, texts, tmp_path):
    """Both begin as the encoder of the files, learn apart, and the record has what was selected."""
    recipe = recipe_of(encoder, texts, tmp_path / "run", model__selector={"kind": "budget", "budget": 0.3})
    loaded = runs.load_data(recipe)
    model = runs.make_model(recipe, loaded, runs.make_tokenizer(recipe, loaded)).eval()
    ids = torch.tensor([[2, 5, 6, 7, 3]])
    with torch.no_grad():
        own = AutoModel.from_pretrained(encoder, attn_implementation="eager").eval()
        states, embedded = own(ids, attention_mask=torch.ones_like(ids)).last_hidden_state, model.embed(ids)
        for part, vectors in zip((model.selector.encoder, model.encoder), model._parts(embedded.vectors), strict=True):
            torch.testing.assert_close(part(vectors, embedded.present)[0], states, atol=1e-5, rtol=1e-4)
    assert not model.selector.score.weight.any() and model.config.encoder == "pretrained"
    runs.run(recipe)
    table = record.load(tmp_path / "run" / "record.parquet")
    identity = record.from_row(table.slice(0, 1).to_pylist()[0])
    assert (identity.encoder, identity.selection_encoder, identity.selection_kind) == ("bert", "bert", "budget")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "run" / "model").eval()
    weights = [part.network.encoder.layer[0].output.dense.weight for part in (model.selector.encoder, model.encoder)]
    assert not torch.equal(*weights)
    tokenizer, tokens = runs.load_tokenizer(tmp_path / "run"), table.column("tokens").to_pylist()
    for row, chosen in enumerate(record.rows(table, "selected")):
        assert len(chosen) == len(tokens[row]) and chosen.sum() <= max(1, round(0.3 * len(chosen)))
    output = model(**tokenizer([" ".join(tokens[0])], return_tensors="pt"))
    np.testing.assert_allclose(record.rows(table, "selection")[0], output.selection[0, 1:-1].detach(), atol=1e-6)


# ------------------------------------------------------------------------------------------------ what is refused


def truncated(folder):
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:900])


def larger_tokenizer(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["one", "more"])
    tokenizer.save_pretrained(folder)


@pytest.mark.parametrize(("spoil", "reason"), [(truncated, "cannot be loaded"), (larger_tokenizer, "of another model")])
def test_files_that_cannot_be_used(encoder, texts, tmp_path, spoil, reason):
    spoil(Path(shutil.copytree(encoder, tmp_path / "copied")))
    with pytest.raises(RecipeError, match=reason):
        runs.run(recipe_of(tmp_path / "copied", texts, tmp_path / "run"))
    models.files_of.cache_clear()


def test_from_the_hub_neither_code_nor_pickles_are_fetched(encoder, texts, tmp_path, monkeypatch):
    request = {}
    snapshot = Path(shutil.copytree(encoder, tmp_path / "snapshots" / "0a1b2c"))

    def download(name, **options):
        request.update(options, name=name)
        return str(snapshot)

    monkeypatch.setattr("attnfaith.runs.models.snapshot_download", download)
    model = {"pretrained": "owner/name", "revision": "v1"}
    sections = {"model": model, "measure": {"producers": []}, "objective": {"kind": "untrained"}}
    runs.run(recipe_of(encoder, texts, tmp_path / "run", **sections))
    models.files_of.cache_clear()
    assert (request["name"], request["revision"]) == ("owner/name", "v1")
    names = ["pytorch_model.bin", "model.pt", "modeling_name.py", "tokenizer.pkl", "flax_model.msgpack", "deep/model.bin"]
    assert not [name for name in names for pattern in request["allow_patterns"] if fnmatch(name, pattern)]
    assert all(any(fnmatch(path.name, pattern) for pattern in request["allow_patterns"]) for path in encoder.iterdir())
    state = json.loads((tmp_path / "run" / "run.json").read_text())
    assert [state["pretrained"][name] for name in ("name", "revision")] == ["owner/name", "0a1b2c"]


# ------------------------------------------------------------------------------------------------ impermissible words


PENALTIES = {"impermissible_mass": 1.0, "diversity": 0.1, "word_tying": 0.01, "masked_language_model": 0.1}


def apart(encoder, texts, folder, **changes):
    """A recipe whose impermissible words are those that decide the label."""
    sections = {"model__separate_impermissible": True, "data__impermissible_words": [*GOOD, *BAD], "penalties": PENALTIES}
    return recipe_of(encoder, texts, folder, **sections, training__num_train_epochs=2, **changes)


def test_a_run_with_penalties_and_words_apart(encoder, texts, tmp_path):
    runs.run(apart(encoder, texts, tmp_path / "run", model__projection="sparsemax"))
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "run" / "model").eval()
    assert model.config.separate_impermissible and model.config.projection == "sparsemax"
    table = record.load(tmp_path / "run" / "record.parquet")
    identity = record.from_row(table.slice(0, 1).to_pylist()[0])
    assert identity.separate_impermissible is True and identity.impermissible_mass == 1.0
    assert identity.heading["alignment"] == "dot(last layer, impermissible apart)"
    # the record's probabilities are those of the saved model
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run" / "model")
    marked = {tokenizer.convert_tokens_to_ids(word) for word in (*GOOD, *BAD)}
    for row in table.slice(0, 5).to_pylist():
        words = tokenizer.convert_tokens_to_ids(row["tokens"])
        ids = torch.tensor([[tokenizer.cls_token_id, *words, tokenizer.sep_token_id]])
        marks = torch.tensor([[int(number in marked) for number in ids[0].tolist()]])
        assert [bool(mark) for mark in marks[0, 1:-1]] == row["impermissible"]
        with torch.no_grad():
            probs = model(ids, torch.ones_like(ids), torch.zeros_like(ids), impermissible=marks).logits.softmax(-1)
        assert row["probs"] == pytest.approx(probs[0].tolist(), abs=1e-5)


def test_a_type_in_which_kinds_would_meet(texts, tmp_path):
    folder = pretrain(tmp_path / "convolutions", "convbert", embedding_size=16, conv_kernel_size=3)
    with pytest.raises(RecipeError, match=r"^model\.pretrained='.*convolutions': the attention of .* check 'separation'"):
        runs.run(apart(folder, texts, tmp_path / "run"))
