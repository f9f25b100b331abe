"""Classifiers of transformers as people have them: an object, a pipeline, a folder, a name on the Hub; and refusals."""

import json
import shutil

import pytest
import torch
from huggingface_hub import HfApi
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModel, GPT2Config, GPT2ForSequenceClassification, PreTrainedTokenizerFast, pipeline

import attnfaith
from attnfaith.loading import ModelError, load_subject
from attnfaith.subjects import SelfAttention
from tests.hub_server import HubServer
from tests.small_classifiers import classifier, tokenizer


TEXTS = ["the old ship sank slowly", "a film, and very good", "ship", ""]
HOW = {"measures": ["gradient"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A plain BERT classifier, as `save_pretrained` leaves it."""
    path = tmp_path_factory.mktemp("models") / "plain"
    classifier("bert", id2label={0: "bad", 1: "fair", 2: "good"}, label2id={"bad": 0, "fair": 1, "good": 2}).save_pretrained(
        path
    )
    tokenizer().save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def expected(folder):
    return attnfaith.measure(folder, TEXTS, **HOW)


@pytest.fixture
def copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copy")


def changed(path, **fields):
    file = path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))
    return path


def same(made, expected):
    assert made.table.column("tokens") == expected.table.column("tokens")
    for name in ("probs", "attention", "importance_gradient"):
        assert made.table.column(name) == expected.table.column(name), name


def test_an_object_a_pipeline_and_a_subject_say_what_the_folder_says(folder, expected):
    loaded, made = load_subject(folder).model, pipeline("text-classification", model=str(folder))
    same(attnfaith.measure(loaded, TEXTS, tokenizer=tokenizer(), **HOW), expected)
    same(attnfaith.measure(made, TEXTS, **HOW), expected)
    same(attnfaith.measure(SelfAttention(loaded, tokenizer()), TEXTS, **HOW), expected)
    for text, probs in zip(TEXTS, expected.table.column("probs").to_pylist(), strict=True):
        (said,) = made(text) if isinstance(made(text), list) else [made(text)]
        assert said["score"] == pytest.approx(max(probs), abs=1e-6)
        assert said["label"] == ["bad", "fair", "good"][probs.index(max(probs))]


def rewritten(path, change):
    """The weights of a folder, changed."""
    save_file(change(load_file(path / "model.safetensors")), path / "model.safetensors", {"format": "pt"})


def without_safetensors(path):
    torch.save(load_file(path / "model.safetensors"), path / "pytorch_model.bin")
    (path / "model.safetensors").unlink()


def of_another_task(kind):
    def change(path):
        tokens = tokenizer()
        config = classifier("bert").config
        shutil.rmtree(path)
        kind.from_config(config).save_pretrained(path)
        tokens.save_pretrained(path)

    return change


def without_its_head(path):
    rewritten(path, lambda whole: {name: values for name, values in whole.items() if "classifier" not in name})


def with_another_head(path):
    rewritten(path, lambda whole: whole | {"classifier.weight": torch.zeros(2, 32)})


def with_its_own_code(path):
    (path / "mine.py").write_text("raise SystemExit('this code was run')\n")
    changed(path, auto_map={"AutoModelForSequenceClassification": "mine.Mine", "AutoConfig": "mine.Config"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without_safetensors, "safetensors"),
        (of_another_task(AutoModel), "BertModel"),
        (without_its_head, r"lacks 2 weights .*classifier.bias, classifier.weight"),
        (with_another_head, "cannot be loaded|lacks 1 weights"),
        (with_its_own_code, "auto_map"),
        (lambda path: changed(path, model_type="never_heard_of"), "never_heard_of"),
        (lambda path: (path / "model.safetensors").write_bytes(b"\0" * 40), "cannot be loaded"),
    ],
)
def test_a_folder_that_cannot_be_trusted(change, message, copy):
    change(copy)
    with pytest.raises(ModelError, match=message) as refusal:
        attnfaith.measure(copy, TEXTS, **HOW)
    assert "\n" not in str(refusal.value)


@pytest.mark.filterwarnings("ignore:Use 'content=<...>' to upload:DeprecationWarning")  # huggingface_hub's own
def test_a_name_on_the_hub(folder, expected, tmp_path, monkeypatch):
    """Nothing but safetensors, configuration and tokenizer is fetched."""
    import huggingface_hub.constants as constants

    with HubServer() as server:
        api = HfApi(endpoint=server.endpoint, token="hf_alice")
        path = shutil.copytree(folder, tmp_path / "pushed")
        torch.save({}, path / "pytorch_model.bin")
        (path / "mine.py").write_text("raise SystemExit\n")
        given = {"ENDPOINT": server.endpoint, "HF_HUB_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": False}
        template = server.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        for name, value in (given | {"HF_HUB_DISABLE_XET": True, "HUGGINGFACE_CO_URL_TEMPLATE": template}).items():
            monkeypatch.setattr(constants, name, value)
        api.create_repo("alice/plain")
        api.upload_folder(repo_id="alice/plain", folder_path=path)
        same(attnfaith.measure("alice/plain", TEXTS, **HOW), expected)
        fetched = {file.name for file in (tmp_path / "cache").rglob("snapshots/*/*")}
        assert "model.safetensors" in fetched and not fetched & {"pytorch_model.bin", "mine.py"}
        commit = api.model_info("alice/plain").sha
        (path / "config.json").write_text("{}")
        api.upload_folder(repo_id="alice/plain", folder_path=path)
        subject = load_subject("alice/plain", revision=commit)
        assert subject.origin.name == f"alice/plain@{commit}"
        same(attnfaith.measure(subject, TEXTS, **HOW), expected)
        with pytest.raises(ModelError, match="alice/plain"):
            load_subject("alice/plain", revision="never-made")


# ---------------------------------------------------------------------- words whose id is that of a marker


def reader(roles, words=("!", "good", "film", "<end>")):
    backend = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<end>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<end>", **roles)


@pytest.mark.parametrize(
    ("roles", "fields", "text"),
    [
        ({"eos_token": "<end>"}, {}, "good film !"),  # no padding token: token 0 is a word
        ({"eos_token": "<end>"}, {}, "! ! !"),
        ({"pad_token": "<end>"}, {"pad_token_id": 3}, "good zzz !"),  # padding and unknown words are one token
        ({"pad_token": "<end>"}, {"pad_token_id": 1}, "good film !"),  # the configuration's padding is a word
    ],
)
def test_every_word_has_a_score_whatever_its_id(roles, fields, text):
    """Leave-one-out by the model itself: attention sums to 1 over all words."""
    torch.manual_seed(0)
    model = GPT2ForSequenceClassification(
        GPT2Config(vocab_size=4, n_embd=8, n_layer=1, n_head=2, bos_token_id=3, eos_token_id=3, num_labels=2, **fields)
    )
    model.double().eval()
    of = reader(roles)
    (row,) = attnfaith.measure(model, [text], tokenizer=of, measures=["leave_one_out"]).table.to_pylist()
    ids = of(text)["input_ids"]
    assert row["tokens"] == text.split() and sum(row["attention"]) == pytest.approx(1)

    def probs(ids):
        return model(torch.tensor([ids])).logits[0].softmax(-1)

    with torch.no_grad():
        whole = probs(ids)
        left = [float((probs(ids[:place] + ids[place + 1 :]) - whole).abs().sum() / 2) for place in range(len(ids))]
    assert row["importance_leave_one_out"] == pytest.approx(left, abs=1e-6)
