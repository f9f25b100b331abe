"""`attnfaith.measure` and the Space: texts, labels, models and options from whoever asks."""

from pathlib import Path
from random import Random

import numpy as np
import pandas as pd
from hypothesis import strategies as st

import attnfaith
from attnfaith.space.answers import Desk
from tests.campaigns.fuzz.hostile import NUMBERS, OTHERS, WORDS, damaged
from tests.campaigns.fuzz.models import affine, stack
from tests.campaigns.fuzz.probe import Case, Unclean


ANYTHING = st.sampled_from(
    (*WORDS, *NUMBERS, *OTHERS, b"a", {"a"}, object, np.float32(1), np.array([1, 2]), pd.NA, Path("/"))
)
WORD = st.sampled_from(["the", "old ship", "sank.", "film " * 50]) | st.sampled_from(WORDS) | st.text(max_size=8)


def _frame(texts, **more) -> pd.DataFrame:
    return pd.DataFrame({"text": pd.Series(texts, dtype=object), **more})  # pandas' own texts hold no half a letter


TEXTS = (
    st.lists(WORD, max_size=4)
    | st.lists(st.tuples(WORD, WORD), max_size=3)
    | st.lists(WORD | ANYTHING, min_size=1, max_size=3)
    | st.lists(WORD, min_size=1, max_size=3).map(lambda texts: _frame(texts, label=range(len(texts))))
    | st.lists(WORD | ANYTHING, min_size=2, max_size=2).map(lambda texts: _frame(texts, instance_id=["a", "b"]))
    | ANYTHING
)
NAMES = st.lists(
    st.sampled_from(["gradient", "gradient_norm", "leave_one_out", "attention_norm", "permutation", "uniform", "x"]),
    max_size=2,
)
MODEL = st.sampled_from(["affine", "affine", "affine", "stack", "stack", "anything"])
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "labels": st.lists(st.sampled_from([0, 1, "good", "bad", None, 2, -1, 0.5, "x", float("nan")]), max_size=4)
        | ANYTHING,
        "measures": NAMES | ANYTHING,
        "experiments": st.just([]) | NAMES | ANYTHING,
        "add": NAMES | ANYTHING,
        "options": st.dictionaries(
            st.sampled_from(["permutation", "gradient", "leave_one_out", "x"]),
            st.dictionaries(st.sampled_from(["draws", "permutations", "seed", "samples"]), ANYTHING, max_size=2) | ANYTHING,
            max_size=2,
        )
        | ANYTHING,
        "text": st.sampled_from(["text", "txet"]) | ANYTHING,
        "text_pair": ANYTHING,
        "label": st.sampled_from(["label", None]) | ANYTHING,
        "level": st.sampled_from(["sentence", "word"]) | ANYTHING,
        "attention": st.sampled_from(["last", "all", "rollout", "flow", {"layers": 0, "head": 0}, {"layers": [0, 1]}])
        | ANYTHING,
        "seed": st.integers(-1, 5) | ANYTHING,
        "name": ANYTHING,
        "split": ANYTHING,
        "output": st.sampled_from(["new.parquet", "new", ".", "no/such/folder/new.parquet", "", "\0", "x" * 300]) | ANYTHING,
        "batch_tokens": st.sampled_from([1, 64, 2**40]) | ANYTHING,
        "links": ANYTHING,
        "links_from": ANYTHING,
        "tokenizer": ANYTHING,
    },
)


@st.composite
def _questions(draw):
    """(model, what stands in its place, texts, arguments), of which a few are hostile."""
    given = draw(OPTIONS)
    kept = draw(st.lists(st.sampled_from(sorted(given)), max_size=2, unique=True)) if given else []
    texts = draw(TEXTS) if draw(st.booleans()) else ["the old ship", "the film was good"]
    return draw(MODEL), draw(ANYTHING), texts, {name: given[name] for name in kept}


class Measure:
    """`attnfaith.measure` with arguments of any kind."""

    name, inputs, batch = "measure", 900, 75
    strategy = _questions()

    def __init__(self, folder: Path):
        self.models = {"affine": affine(folder / "affine"), "stack": stack(folder / "stack")}

    def case(self, drawn: tuple, folder: Path) -> Case:
        name, other, texts, given = drawn
        model = self.models.get(name, other)
        outputs = given.get("output")
        given = dict(given)
        if isinstance(outputs, str) and outputs and not outputs.startswith("/"):
            given["output"] = str(folder / outputs)
        elif "output" in given and isinstance(outputs, Path):
            del given["output"]

        def act():
            try:
                made = attnfaith.measure(
                    model, texts, **{"measures": ["gradient"], "experiments": [], **given}, progress=False
                )
            except attnfaith.AttnfaithError:
                if left := [path.name for path in folder.glob("**/*.parquet")]:
                    raise Unclean(f"refused, and {left} is left behind") from None
                raise
            repr(made), made.show(0)._repr_html_().encode()

        return Case(act, _shown((name, other if name == "anything" else "", texts, given)))


def _shown(one: object) -> str:
    try:
        return repr(one)[:500]
    except ValueError:  # a number of too many digits
        return f"a {type(one).__name__} with a number of many digits"


class Space:
    """The Space's answers: names of models, texts, edited texts and weights that a reader types."""

    name, inputs, batch = "space", 500, 100

    def __init__(self, folder: Path):
        self.models = [str(affine(folder / "affine")), str(stack(folder / "stack"))]
        self.desk = Desk(self.models, open=False)
        self.open = Desk(self.models)

    def case(self, chance: Random, folder: Path) -> Case:
        desk = chance.choice((self.desk, self.desk, self.open))
        model = chance.choice([*desk.offered])
        model = model if chance.random() < 0.9 else _typed(chance, model)
        text, edits, weights = (
            _typed(chance, one) for one in ("the old ship sank", "the ship\nthe old film", "0.25 0.25 0.25 0.25")
        )
        ways = {
            "edited": lambda: repr(desk.edited(model, text, edits)),
            "without_words": lambda: repr(desk.without_words(model, text)),
            "under": lambda: repr(desk.under(model, text, weights)),
            "measured": lambda: repr(desk.measured(model, text)),
        }
        way = chance.choice(("edited", "without_words", "under", "under", "measured"))

        def act():
            shown = ways[way]()
            if not isinstance(shown, str) or "<script>" in shown:
                raise Unclean(f"the page would show {str(shown)[:200]}")
            shown.encode()

        return Case(act, f"{way} {_shown((model, text, edits, weights))}")


def _typed(chance: Random, usual: str) -> object:
    kind = chance.random()
    if kind < 0.4:
        return usual
    if kind < 0.7:
        return damaged(chance, usual.encode())[0].decode("utf-8", chance.choice(("replace", "surrogateescape")))
    if kind < 0.9:
        return f"{usual} {chance.choice(WORDS)}"
    return chance.choice((*WORDS, *NUMBERS, *OTHERS))
