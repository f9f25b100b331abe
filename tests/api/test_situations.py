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
from attnfaith.data.tokenization import build_tokenizer
from attnfaith.loading import ModelError
from attnfaith.measurement.registry import MeasurementError
from attnfaith.subjects import SubjectError
from attnfaith.support.errors import DatasetError
from tests.measuring import run
from tests.small_classifiers import classifier, tokenizer
from tests.small_translators import PAIRS, translator
from tests.small_translators import tokenizer as of_translators


pytestmark = pytest.mark.filterwarnings("ignore:.*script_method. is deprecated:DeprecationWarning")  # torch.compile's own
TEXTS = ["the old ship sank slowly", "a film , and very good", "ship"]
HOW = {"measures": ["gradient", "leave_one_out"]}


@pytest.fixture(autouse=True, scope="module")
def _imported():
    """What libraries import on use takes longer than to measure."""
    measure(torch.compile(classifier("bert")))


# ------------------------------------------------------------------------------------------------ what works


def plain(model):
    return contextlib.nullcontext(model)


def within(make):
    """A situation: a context in which the model is measured."""

    @contextlib.contextmanager
    def situation(model):
        with make():
            yield model

    return situation


def trained_in_bfloat16(model):
    """As after `Trainer(…, bf16=True).train()`."""
    AcceleratorState._reset_state()  # a training before this test may have left its own
    prepared = Accelerator(mixed_precision="bf16", cpu=True).prepare_model(model)
    AcceleratorState._reset_state()
    return plain(prepared)


def compiled(model, *parts):
    for module in parts or [model]:
        module.compile()
    return plain(model)


def tuples(model):
    model.config.return_dict = False
    return plain(model)


WORKS = {
    "within inference mode": within(torch.inference_mode),
    "within another default device": within(lambda: torch.device("meta")),
    "within autocast": within(lambda: torch.autocast("cpu", torch.bfloat16)),
    "after a training in bfloat16": trained_in_bfloat16,
    "model.compile()": compiled,
    "module.compile()": lambda model: compiled(model, *model.children()),
    "torch.compile(model)": lambda model: plain(torch.compile(model)),
    "DataParallel(model)": lambda model: plain(torch.nn.DataParallel(model)),
    "both": lambda model: plain(torch.nn.DataParallel(torch.compile(model))),
    "return_dict=False": tuples,
}
IN_FLOAT32 = ("within autocast", "after a training in bfloat16")  # which change nothing in float64
MODELS = {
    "bert": lambda tiny: (classifier("bert"), tokenizer(), TEXTS, HOW),
    "gpt2": lambda tiny: (classifier("gpt2"), tokenizer(), TEXTS, HOW),
    "pooled": lambda tiny: (tiny(), build_tokenizer(TEXTS, preprocessing="whitespace"), TEXTS, HOW),
    "marian": lambda tiny: (translator("marian"), of_translators(), PAIRS, {"measures": ["attention", "gradient"]}),
    "luong": lambda tiny: (translator("luong"), of_translators(), PAIRS, {"measures": ["attention", "gradient"]}),
}
FAST = ("pooled",)


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=() if kind in FAST else pytest.mark.slow) for kind in MODELS])
@pytest.mark.parametrize("situation", WORKS)
def test_the_numbers_are_those_of_the_plain_way(situation, kind, tiny_model):
    dtype = torch.float32 if situation in IN_FLOAT32 else torch.float64
    (own, words, texts, how), (model, *_) = (MODELS[kind](tiny_model) for _ in range(2))
    expected = attnfaith.measure(own.to(dtype), texts, tokenizer=words, progress=False, **how)
    with WORKS[situation](model.to(dtype)) as wrapped:
        assert attnfaith.measure(wrapped, texts, tokenizer=words, progress=False, **how).table == expected.table
    assert model.config.return_dict is (situation != "return_dict=False") and not torch.is_autocast_enabled("cpu")


def test_what_else_reads_a_model_reads_it_plainly(tmp_path):
    model, words = classifier("bert"), tokenizer()
    subject = attnfaith.subjects.SelfAttention(torch.compile(model), words)
    batch = subject.encode(TEXTS[:1])
    expected = run("gradient", model, batch)["importance_gradient"][0].tolist()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        again = run("gradient", torch.nn.DataParallel(model), subject.encode(TEXTS[:1]))
        assert again["importance_gradient"][0].tolist() == expected
        probs = attnfaith.view(torch.compile(model), TEXTS[0], measures=["attention"], tokenizer=words).probs
    assert probs.tolist() == attnfaith.view(model, TEXTS[0], measures=["attention"], tokenizer=words).probs.tolist()


# ------------------------------------------------------------------------------------------------ what is refused


SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8, "vocab_size": 40}
ROWS = datasets.Dataset.from_dict({"text": TEXTS})
AUTO = "AutoModelForSequenceClassification"
NONE = {"tokenizer": None}


def measure(model, texts=TEXTS, **how):
    return attnfaith.measure(model, texts, progress=False, **{"tokenizer": tokenizer(), **HOW, **how})


def made_in_inference_mode():
    with torch.inference_mode():
        return bert()


def bert():
    return classifier("bert")


def generator():
    return GPT2LMHeadModel(GPT2Config(vocab_size=40, n_embd=8, n_layer=1, n_head=2))


def headless():
    return BertModel(BertConfig(**SIZES))


def tagger():
    return BertForTokenClassification(BertConfig(**SIZES))


def folder_of(*parts):
    for part in parts:
        part.save_pretrained("model")
    return "model"


REFUSED = {
    "made in inference mode": (SubjectError, "inference_mode", made_in_inference_mode, {}),
    "a model that generates": (SubjectError, f"GPT2LMHeadModel {AUTO}", generator, {}),
    "a model without a head": (SubjectError, f"BertModel {AUTO}", headless, {}),
    "a tagger": (SubjectError, f"BertForTokenClassification {AUTO}", tagger, {}),
    "a folder that generates": (ModelError, f"GPT2LMHeadModel {AUTO}", lambda: folder_of(generator(), tokenizer()), NONE),
    "no tokenizer": (ModelError, "tokenizer=", bert, NONE),
    "a folder without one": (ModelError, "tokenizer= tokenizer.json save_pretrained", lambda: folder_of(bert()), NONE),
    "a tokenizer, offline": (ModelError, "alice/words HF_HUB_OFFLINE", bert, {"tokenizer": "alice/words"}),
    "a model, offline": (ModelError, "alice/none HF_HUB_OFFLINE", lambda: "alice/none", NONE),
    "rows without an end": (DatasetError, "IterableDataset", bert, {"texts": ROWS.to_iterable_dataset()}),
    "rows as dictionaries": (DatasetError, "Dataset.from_list", bert, {"texts": [*ROWS]}),
    "labels as label": (DatasetError, "label= labels=", bert, {"label": ["neg", "pos", "neg"]}),
    "a spreadsheet": (DatasetError, "texts.xlsx spreadsheet CSV", bert, {"texts": "texts.xlsx"}),
    "a measure mistyped": (MeasurementError, "'leave-one-out' 'leave_one_out'", bert, {"measures": ["leave-one-out"]}),
}


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    (tmp_path / "texts.xlsx").write_bytes(b"PK\x03\x04\x14\0\x06\0")


@pytest.mark.parametrize("situation", REFUSED)
def test_an_error_names_the_cause_and_what_to_do(situation):
    kind, names, make, how = REFUSED[situation]
    with pytest.raises(AttnfaithError) as refusal:
        measure(make(), **how)
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
