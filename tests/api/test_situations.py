"""Models that are wrapped, compiled or in half precision are measured with the numbers of the plain way."""

import contextlib

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

import attnfaith
from attnfaith.data.tokenization import build_tokenizer
from tests.small_classifiers import classifier, tokenizer
from tests.small_translators import PAIRS, translator
from tests.small_translators import tokenizer as translator_tokenizer


pytestmark = pytest.mark.filterwarnings("ignore:.*script_method. is deprecated:DeprecationWarning")  # torch.compile's own
TEXTS = ["the old ship sank slowly", "a film , and very good", "ship"]
MEASURES, OF_PAIRS = ["gradient", "leave_one_out"], ["attention", "gradient"]


def within(make):
    """Return a situation: a context in which the model is measured."""

    @contextlib.contextmanager
    def situation(model):
        with make():
            yield model

    return situation


def wrapped(wrap):
    return lambda model: contextlib.nullcontext(wrap(model))


def trained_in_bfloat16(model):
    """As after `Trainer(…, bf16=True).train()`."""
    AcceleratorState._reset_state()  # a training before this test may have left its own
    prepared = Accelerator(mixed_precision="bf16", cpu=True).prepare_model(model)
    AcceleratorState._reset_state()
    return prepared


def compiled(model):
    model.compile()
    return model


def tuples(model):
    model.config.return_dict = False
    return model


SITUATIONS = {
    "within inference mode": within(torch.inference_mode),
    "within another default device": within(lambda: torch.device("meta")),
    "within autocast": within(lambda: torch.autocast("cpu", torch.bfloat16)),
    "after a training in bfloat16": wrapped(trained_in_bfloat16),
    "model.compile()": wrapped(compiled),
    "DataParallel of a compiled model": wrapped(lambda model: torch.nn.DataParallel(torch.compile(model))),
    "return_dict=False": wrapped(tuples),
}
IN_FLOAT32 = ("within autocast", "after a training in bfloat16")  # which change nothing in float64
MODELS = {
    "pooled": lambda tiny: (tiny(), build_tokenizer(TEXTS, preprocessing="whitespace"), TEXTS, MEASURES),
    "bert": lambda tiny: (classifier("bert"), tokenizer(), TEXTS, MEASURES),
    "marian": lambda tiny: (translator("marian"), translator_tokenizer(), PAIRS, OF_PAIRS),
    "luong": lambda tiny: (translator("luong"), translator_tokenizer(), PAIRS, OF_PAIRS),
}


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.slow if kind != "pooled" else ()) for kind in MODELS])
@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_numbers_are_those_of_the_plain_way(situation, kind, tiny_model):
    dtype = torch.float32 if situation in IN_FLOAT32 else torch.float64
    (plain, words, texts, measures), (model, *_) = (MODELS[kind](tiny_model) for _ in range(2))
    how = {"measures": measures, "tokenizer": words, "progress": False}
    expected = attnfaith.measure(plain.to(dtype), texts, **how)
    with SITUATIONS[situation](model.to(dtype)) as subject:
        assert attnfaith.measure(subject, texts, **how).table == expected.table
    assert model.config.return_dict is (situation != "return_dict=False") and not torch.is_autocast_enabled("cpu")
