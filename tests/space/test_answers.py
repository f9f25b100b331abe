"""What the Space answers, without gradio: predictions, other attentions, records and their page, and what it refuses."""

import re
from html import unescape

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import attnfaith
from attnfaith.space import answers
from attnfaith.space.answers import Desk, called, checked, page_of, predictions, table, weights_of
from attnfaith.space.app import framed
from attnfaith.space.errors import SpaceError
from tests.toy_subject import Toy


TEXT = "the old ship sank"
HOSTILE = "<img src=x onerror='hit()'>\"&amp;${hit}</iframe><script>hit()</script>"


@pytest.fixture(scope="module")
def desk(affine, stack):
    return Desk([str(affine), str(stack)])


@pytest.fixture(scope="module")
def names(desk):
    return list(desk.offered)


# ------------------------------------------------------------------------------------------------ models and texts


def test_folders_are_called_by_their_names_and_never_by_their_place(desk, affine, stack):
    assert list(desk.offered) == [f"{affine.parent.name}/small", f"{stack.parent.name}/small"], "two of one name"
    assert called(str(affine), [str(affine)]) == "small" and called("owner/model", []) == "owner/model"
    assert desk.model("  " + next(iter(desk.offered))) == str(affine)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "no model was named"),
        (None, "no model was named"),
        (["a/b"], "no model was named"),
        ("/etc/passwd", "is no name of a model on the Hub"),
        ("../model", "is no name"),
        ("a/..", "is no name"),
        ("owner/model/more", "is no name"),
        (HOSTILE, "is no name"),
    ],
)
def test_a_name_that_is_no_model_is_refused(desk, name, said):
    with pytest.raises(SpaceError, match=said):
        desk.model(name)


def test_a_folder_of_the_server_cannot_be_named(desk, affine, monkeypatch):
    monkeypatch.chdir(affine.parent.parent)
    with pytest.raises(SpaceError, match="is a folder of the server"):
        Desk().model(f"{affine.parent.name}/small")
    with pytest.raises(SpaceError, match="is no name"):
        desk.model(str(affine))


def test_what_is_not_offered_is_refused_where_no_other_may_be_named(affine):
    closed = Desk([str(affine)], open=False)
    with pytest.raises(SpaceError, match="'owner/model' is not offered here: choose small"):
        closed.model("owner/model")
    assert closed.model("small") == str(affine)
    with pytest.raises(SpaceError, match="no model is offered"):
        Desk(open=False)


def test_a_model_on_the_hub_is_weighed_before_it_is_fetched(monkeypatch):
    monkeypatch.setattr(answers, "_size_on_hub", {"owner/small": 10**9, "owner/large": 3 * 10**9}.get)
    assert Desk().model("owner/small") == "owner/small"
    with pytest.raises(SpaceError, match=r"owner/large has 3.0 GB of weights, and this page takes 2 GB"):
        Desk().model("owner/large")


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "no text"), (" \n", "no text"), (None, "no text"), (7, "no text"), ("a" * 2001, "2,001 letters")],
)
def test_texts_are_checked(text, said):
    with pytest.raises(SpaceError, match=said):
        checked(text)


def test_a_text_is_read_with_single_blanks_and_whole_letters():
    assert checked(" a\n b\t\ud800 ") == "a b ?"


def test_a_text_of_too_many_tokens_is_refused_before_it_is_measured(desk, names, monkeypatch):
    monkeypatch.setattr(answers, "measure", lambda *_, **__: pytest.fail("it was measured"))
    with pytest.raises(SpaceError, match="reads 300 tokens in this text: this page takes 1 to 256"):
        desk.measured(names[0], "the " * 300)
    with pytest.raises(SpaceError, match=r"6[57] texts: this page reads 64 at once"):
        desk.edited(names[0], TEXT, "the\n" * 65)
    with pytest.raises(SpaceError, match="6[57] texts"):
        desk.without_words(names[0], "the " * 65)


# ---------------------------------------------------------------------------------------------------- other weights


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=8).filter(lambda row: sum(row) > 0), st.sampled_from([" ", ", ", "\n"])
)
def test_weights_are_divided_by_their_sum(row, between):
    weights = weights_of(between.join(map(repr, row)), len(row))
    assert weights.sum() == pytest.approx(1) and weights == pytest.approx(np.array(row) / sum(row))


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("1 2", "2 weights for 3 tokens"),
        ("1 2 x", "'x' is no number"),
        ("1 2 __import__('os')", "is no number"),
        ("1 2 1.2.3", "'1.2.3' is no number"),
        ("1 2 -1", "0 or more"),
        ("0 0 0", "one of them is above 0"),
        ("1 2 nan", "finite"),
        ("1 2 inf", "finite"),
        ("1e308 1e308 1e308", "finite"),
    ],
)
def test_other_weights_are_refused(written, said):
    with pytest.raises(SpaceError, match=said):
        weights_of(written, 3)


def test_under_an_affine_read_out_predictions_mix_those_of_the_tokens(desk, names):
    """Logits are sums of weights times what a token adds: those under mixed weights follow from one token at a time."""
    alone = [
        desk.under(names[0], TEXT, " ".join("1" if place == at else "0" for place in range(4)))[0][-1] for at in range(4)
    ]
    odds = np.array([np.log(one.probs[1] / one.probs[0]) for one in alone])
    rows, classes = desk.under(names[0], TEXT, "1 2 3 4")
    assert [row.name for row in rows] == [answers.OWN, answers.UNIFORM, rows[2].name, answers.TYPED]
    assert np.log(rows[-1].probs[1] / rows[-1].probs[0]) == pytest.approx(odds @ [0.1, 0.2, 0.3, 0.4], abs=1e-6)
    assert np.log(rows[1].probs[1] / rows[1].probs[0]) == pytest.approx(odds.mean(), abs=1e-6)
    own = attnfaith.measure(desk.model(names[0]), [TEXT], measures=[], progress=False)
    weights = np.array(own.table.column("attention")[0].as_py())
    assert np.log(rows[0].probs[1] / rows[0].probs[0]) == pytest.approx(odds @ weights, abs=1e-5)
    rest = np.where(np.arange(4) == weights.argmax(), 0, weights)
    assert np.log(rows[2].probs[1] / rows[2].probs[0]) == pytest.approx(odds @ rest / rest.sum(), abs=1e-5)
    assert TEXT.split()[weights.argmax()] in rows[2].name and classes == ("0 <b>bad</b>", "1 good")


def test_a_read_out_that_is_not_affine_is_asked_itself():
    toy = Toy()
    batch = toy.encode(["7 12 9"])
    with torch.no_grad():
        names, probs = answers._asked(toy, batch, "0 1 0", ["7", "12", "9"])
    assert names[0] == answers.OWN and names[-1] == answers.TYPED and len(names) == len(probs) == 4
    assert probs[0] == pytest.approx(toy.predict(batch).softmax(-1)[0].detach().numpy(), abs=1e-6)
    alone = toy.intervene(batch, torch.tensor([[0.0, 0.0, 1.0, 0.0, 0.0]])).softmax(-1)[0].detach().numpy()
    assert probs[-1] == pytest.approx(alone, abs=1e-6), "markers stand around the three tokens"
    assert probs.sum(1) == pytest.approx(1)


def test_what_is_shown_of_many_heads_cannot_be_replaced(desk, names):
    with pytest.raises(
        SpaceError, match="cannot be asked here about another attention: what is shown is made of many heads"
    ):
        desk.under(names[1], TEXT)


# ------------------------------------------------------------------------------------------------------ edited texts


def test_edited_texts_are_predicted_beside_the_text(desk, names):
    rows, classes = desk.edited(names[0], TEXT, "the old film sank\n\n the  good film ")
    assert [row.name for row in rows] == ["the text", "the old film sank", "the good film"] and len(classes) == 2
    for text, row in zip([TEXT, "the old film sank", "the good film"], rows, strict=True):
        alone = attnfaith.measure(desk.model(names[0]), [text], measures=[], progress=False)
        assert row.probs == pytest.approx(np.array(alone.table.column("probs")[0].as_py()), abs=1e-6)
        assert row.tvd == pytest.approx(np.abs(row.probs - rows[0].probs).sum() / 2)
    assert desk.edited(names[0], TEXT, "the \ud800")[0][1].name == "the ?"  # half a letter
    for nothing in ("", " \n ", None):
        with pytest.raises(SpaceError, match="there is no edited text"):
            desk.edited(names[0], TEXT, nothing)


def test_each_word_is_left_out_once_the_largest_change_first(desk, names):
    rows, _ = desk.without_words(names[0], TEXT)
    assert rows[0].name == "the text" and {int(row.name[-2]) for row in rows[1:]} == {1, 2, 3, 4}
    assert [row.tvd for row in rows[1:]] == sorted((row.tvd for row in rows[1:]), reverse=True)
    (sank,) = (row for row in rows if "sank" in row.name)
    assert sank.probs == pytest.approx(desk.edited(names[0], TEXT, "the old ship")[0][1].probs, abs=1e-6)
    with pytest.raises(SpaceError, match="the text has one word"):
        desk.without_words(names[0], "ship")


def test_predictions_stand_beside_the_first():
    rows = predictions(["a", "b", "c"], np.array([[0.7, 0.3], [0.4, 0.6], [0.7, 0.3]]))
    assert [row.tvd for row in rows] == pytest.approx([0, 0.3, 0]) and [row.flips for row in rows] == [False, True, False]


# --------------------------------------------------------------------------------------------- records and pages


@pytest.mark.slow
def test_the_record_is_that_of_measure_and_is_kept(desk, names, affine, monkeypatch):
    made = desk.measured(names[0], f"  {TEXT} ")
    assert made == attnfaith.measure(affine, [TEXT], name="typed", split="text", progress=False)
    monkeypatch.setattr(answers, "measure", lambda *_, **__: pytest.fail("it was measured anew"))
    assert desk.measured(names[0], TEXT) is made
    monkeypatch.setattr(answers, "measure", lambda *_, **__: made)
    for number in range(answers.KEPT):
        desk.measured(names[0], "the ship " + "old " * number)
    assert len(desk._records) == answers.KEPT and (str(affine), TEXT) not in desk._records, "the oldest goes"


@pytest.mark.slow
@pytest.mark.parametrize("place", [0, 1])
def test_the_page_is_the_report_s_and_stands_in_a_frame(desk, names, place):
    page = page_of(desk.measured(names[place], TEXT), "a title")
    assert page.lower().startswith("<!doctype html>") and "a title" in page and "Content-Security-Policy" in page
    frame = framed(page)
    assert frame.count("<") == 2 and 'sandbox="allow-scripts"' in frame and "allow-same-origin" not in frame
    (source,) = re.findall(r'srcdoc="([^"]*)"', frame)
    assert unescape(source) == page


def test_what_readers_write_stays_text_in_the_frame():
    assert "<img" not in framed(HOSTILE) and "<script" not in framed(HOSTILE)


def test_of_many_classes_the_most_probable_are_shown():
    probs = np.full((2, 20), 0.01)
    probs[0, 3], probs[1, 17] = 0.81, 0.81
    shown = table(predictions(["a", "b"], probs), [f"class {number}" for number in range(20)], "text")
    assert shown.shape == (2, 1 + 8 + 2) and {"class 3", "class 17"} <= set(shown) and shown["text"].tolist() == ["a", "b"]
    assert shown["decision"].tolist() == ["class 3", "class 17 (flips)"] and shown["class 3"].tolist() == [0.81, 0.01]
