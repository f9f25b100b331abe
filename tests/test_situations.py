"""Situations of new users: each gives the numbers of the plain way, or one error that names the cause and what to do."""

import contextlib

import datasets
import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from transformers import BertConfig, BertForTokenClassification, BertModel, GPT2Config, GPT2LMHeadModel

import attnfaith
from attnfaith import AttnfaithError, cli
from attnfaith.api.models import ModelError
from attnfaith.data.tokenization import build_tokenizer
from attnfaith.errors import DatasetError
from attnfaith.locate import LocateError
from attnfaith.subjects import SubjectError
from tests.small_classifiers import classifier, tokenizer
from tests.small_translators import PAIRS, translator
from tests.small_translators import tokenizer as of_translators


pytestmark = pytest.mark.filterwarnings("ignore:.*script_method. is deprecated:DeprecationWarning")  # torch.compile's own
TEXTS = ["the old ship sank slowly", "a film , and very good", "ship"]
HOW = {"measures": ["gradient", "leave_one_out"], "experiments": []}


@pytest.fixture(autouse=True, scope="module")
def _imported():
    """What libraries import on use takes longer than to measure."""
    measure(torch.compile(classifier("bert")))


# ------------------------------------------------------------------------------------------------ what works


def plain(model):
    return contextlib.nullcontext(model)


@contextlib.contextmanager
def inference_mode(model):
    with torch.inference_mode():
        yield model


@contextlib.contextmanager
def bfloat16(model):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        yield model.float()


@contextlib.contextmanager
def other_device(model):
    with torch.device("meta"):
        yield model


def trained_in_bfloat16(model):
    """As after `Trainer(…, bf16=True).train()`."""
    prepared = Accelerator(mixed_precision="bf16", cpu=True).prepare_model(model.float())
    AcceleratorState._reset_state()
    return plain(prepared)


def compiled_in_place(model):
    model.compile()
    return plain(model)


def parts_compiled(model):
    for module in model.children():
        module.compile()
    return plain(model)


def tuples(model):
    model.config.return_dict = False
    return plain(model)


WORKS = {
    "within inference mode": inference_mode,
    "within autocast": bfloat16,
    "within another default device": other_device,
    "after a training in bfloat16": trained_in_bfloat16,
    "model.compile()": compiled_in_place,
    "module.compile()": parts_compiled,
    "torch.compile(model)": lambda model: plain(torch.compile(model)),
    "DataParallel(model)": lambda model: plain(torch.nn.DataParallel(model)),
    "both": lambda model: plain(torch.nn.DataParallel(torch.compile(model))),
    "return_dict=False": tuples,
}
MODELS = {
    "bert": lambda tiny: (classifier("bert").double(), tokenizer(), TEXTS, HOW),
    "gpt2": lambda tiny: (classifier("gpt2").double(), tokenizer(), TEXTS, HOW),
    "pooled": lambda tiny: (tiny(), build_tokenizer(TEXTS, preprocessing="whitespace"), TEXTS, HOW),
    "marian": lambda tiny: (translator("marian").double(), of_translators(), PAIRS, {"measures": ["attention", "gradient"]}),
    "luong": lambda tiny: (translator("luong").double(), of_translators(), PAIRS, {"measures": ["attention", "gradient"]}),
}
FAST = ("bert", "pooled")


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=() if kind in FAST else pytest.mark.slow) for kind in MODELS])
@pytest.mark.parametrize("situation", WORKS)
def test_the_numbers_are_those_of_the_plain_way(situation, kind, tiny_model):
    (model, words, texts, how), (own, *_) = (MODELS[kind](tiny_model) for _ in range(2))
    own = own.float() if WORKS[situation] in (bfloat16, trained_in_bfloat16) else own
    expected = attnfaith.measure(own, texts, tokenizer=words, progress=False, **how)
    with WORKS[situation](model) as wrapped:
        assert attnfaith.measure(wrapped, texts, tokenizer=words, progress=False, **how).table == expected.table
    assert model.config.return_dict is (situation != "return_dict=False") and not torch.is_autocast_enabled("cpu")


def test_what_else_reads_a_model_reads_it_plainly(tmp_path):
    model, words = classifier("bert"), tokenizer()
    subject = attnfaith.subjects.SelfAttention(torch.compile(model), words)
    batch = subject.encode(TEXTS[:1])
    expected = attnfaith.importance.gradient.measure(model, batch)["importance_gradient"][0].tolist()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        again = attnfaith.importance.gradient.measure(torch.nn.DataParallel(model), subject.encode(TEXTS[:1]))
        assert again["importance_gradient"][0].tolist() == expected
        probs = attnfaith.view(torch.compile(model), TEXTS[0], measures=["attention"], tokenizer=words).probs
    assert probs.tolist() == attnfaith.view(model, TEXTS[0], measures=["attention"], tokenizer=words).probs.tolist()


# ------------------------------------------------------------------------------------------------ what is refused


SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8, "vocab_size": 40}
ROWS = datasets.Dataset.from_dict({"text": TEXTS})


def measure(model, texts=TEXTS, **how):
    return attnfaith.measure(model, texts, progress=False, **{"tokenizer": tokenizer(), **HOW, **how})


def made_in_inference_mode():
    with torch.inference_mode():
        return classifier("bert")


def generator():
    return GPT2LMHeadModel(GPT2Config(vocab_size=40, n_embd=8, n_layer=1, n_head=2))


def folder_of(model, *others):
    for part in (model, *others):
        part.save_pretrained("model")
    return "model"


def spreadsheet():
    with open("texts.xlsx", "wb") as file:
        file.write(b"PK\x03\x04\x14\0\x06\0")
    return "texts.xlsx"


REFUSED = {
    "weights made in inference mode": (lambda: measure(made_in_inference_mode()), SubjectError, "inference_mode"),
    "a model that generates": (
        lambda: measure(generator()),
        SubjectError,
        "GPT2LMHeadModel AutoModelForSequenceClassification",
    ),
    "a model without a head": (
        lambda: measure(BertModel(BertConfig(**SIZES))),
        SubjectError,
        "BertModel AutoModelForSequenceClassification",
    ),
    "a tagger": (
        lambda: measure(BertForTokenClassification(BertConfig(**SIZES))),
        SubjectError,
        "BertForTokenClassification AutoModelForSequenceClassification",
    ),
    "a folder of one that generates": (
        lambda: measure(folder_of(generator(), tokenizer()), tokenizer=None),
        ModelError,
        "GPT2LMHeadModel AutoModelForSequenceClassification",
    ),
    "no tokenizer": (lambda: measure(classifier("bert"), tokenizer=None), ModelError, "tokenizer="),
    "a folder without tokenizer": (
        lambda: measure(folder_of(classifier("bert")), tokenizer=None),
        ModelError,
        "tokenizer= tokenizer.json save_pretrained",
    ),
    "a tokenizer's name, offline": (
        lambda: measure(classifier("bert"), tokenizer="alice/words"),
        ModelError,
        "alice/words HF_HUB_OFFLINE",
    ),
    "a model's name, offline": (
        lambda: measure("alice/none", tokenizer=None),
        ModelError,
        "alice/none HF_HUB_OFFLINE",
    ),
    "a record's name, offline": (lambda: attnfaith.load("alice/none"), LocateError, "alice/none HF_HUB_OFFLINE"),
    "rows without an end": (
        lambda: measure(classifier("bert"), ROWS.to_iterable_dataset()),
        DatasetError,
        "IterableDataset Dataset.from_list",
    ),
    "rows as dictionaries": (lambda: measure(classifier("bert"), [*ROWS]), DatasetError, "Dataset.from_list"),
    "labels as label": (lambda: measure(classifier("bert"), label=["neg", "pos", "neg"]), DatasetError, "label= labels="),
    "a spreadsheet": (lambda: measure(classifier("bert"), spreadsheet()), DatasetError, "texts.xlsx spreadsheet CSV"),
    "a measure mistyped": (
        lambda: measure(classifier("bert"), measures=["leave-one-out"]),
        AttnfaithError,
        "'leave-one-out' 'leave_one_out'",
    ),
}


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)


@pytest.mark.parametrize("situation", REFUSED)
def test_an_error_names_the_cause_and_what_to_do(situation):
    refused, kind, names = REFUSED[situation]
    with pytest.raises(AttnfaithError) as refusal:
        refused()
    said = str(refusal.value)
    assert type(refusal.value) is kind and [name for name in names.split() if name not in said] == [], said


OWN = "measure model --data.path texts.csv"


@pytest.mark.parametrize(
    ("words", "names", "never"),
    [
        (f"{OWN} --producer gradient", "--producer --producers", "train"),
        (f"{OWN} --measures gradient", "--measures producers", "train random_erasure"),
        (f"{OWN} --producers gradent", "'gradent' 'gradient'", ""),
        (f"{OWN} --add leave-one-out", "'leave-one-out' 'leave_one_out'", ""),
        ("measure run --producer gradient", "--producer --producers", "train"),
        ("train --producers gradent", "'gradent' 'gradient'", "adversary"),
        ("train --producer gradent", "--producers `attnfaith train --help`", ""),
        ("measure alice/none --data.path texts.csv", "alice/none HF_HUB_OFFLINE", ""),
        ("measure model --data.hub_id alice/none", "alice/none HF_HUB_OFFLINE", ""),
        ("report alice/none", "alice/none HF_HUB_OFFLINE", ""),
    ],
)
def test_a_line_of_the_command_line_names_what_was_meant(words, names, never, capsys):
    folder_of(classifier("bert"), tokenizer())
    ROWS.to_csv("texts.csv")
    capsys.readouterr()
    assert cli.main(words.split()) == 2
    said = capsys.readouterr().err
    assert said.count("error:") == 1 and [name for name in names.split(" ") if name not in said] == [], said
    assert [word for word in never.split() if word in said] == []
