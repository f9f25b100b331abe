"""Attention on groups of tokens, by plain loops over the maps that a model gives out itself."""

import sys

import numpy as np
import pytest
import torch
from datasets import Dataset

import attnfaith
from attnfaith.data.in_memory import texts_in_memory
from attnfaith.data.taggers import UNIVERSAL
from attnfaith.measurement.registry import MeasurementError, build, find
from attnfaith.subjects import SelfAttention, SubjectError, subject_of
from tests.measuring import run
from tests.small_classifiers import classifier, tokenizer
from tests.taggers import BY_LETTER, offer
from tests.toy_subject import Toy


TEXTS = ["the old ships sailed slowly !", "a new ship sank", "", "! . !", "never bad ."]
MARKED = [["ships", "slowly"], [], [], ["!"], ["never", "bad", "."]]


def of_texts(kind="bert", reduction="last"):
    """A subject and its batch as a measurement has it: with what tokens are called, and marks."""
    subject = SelfAttention(classifier(kind), tokenizer(kind == "bert"), reduction)
    rows = [{**row, "instance_id": str(number)} for number, row in enumerate(subject.rows(texts_in_memory(TEXTS)).to_list())]
    batch = subject.collate(rows)
    batch |= {name: [row[name] for row in rows] for name in ("tokens", "word_of_token")}
    batch["impermissible"] = torch.zeros_like(batch["input_ids"])
    inside = subject.attendable(batch)
    for row, words in enumerate(MARKED):
        own = [part in words for part in words_of_tokens(batch, row)]
        batch["impermissible"][row, inside[row]] = torch.tensor(own, dtype=torch.long)
    return subject, batch


def words_of_tokens(batch, row):
    """The word that each token of a text is of."""
    owners = batch["word_of_token"][row]
    words = {}
    for token, owner in zip(batch["tokens"][row], owners, strict=True):
        words[owner] = words.get(owner, "") + token.removeprefix("##")
    return [words[owner] for owner in owners]


@torch.no_grad()
def heads_of(subject, batch, row):
    """(H,L) of one text: the last layer's rows of [CLS], by the model's own account."""
    text = batch.alone(row)
    with subject.evaluating():
        maps = subject.model(**subject.model_inputs(text), output_attentions=True).attentions
    return text, maps[-1][0, :, 0].double().numpy()


def test_by_the_maps_that_a_model_gives_out(tmp_path, monkeypatch):
    offer(tmp_path, monkeypatch, "by_letter", BY_LETTER)
    subject, batch = of_texts()
    made = run("group_mass", subject, batch, tagger="by_letter")
    names = ["impermissible", "punctuation", *UNIVERSAL, "markers"]
    assert made["group_mass_names"] == [names] * len(TEXTS)
    for row in range(len(TEXTS)):
        text, heads = heads_of(subject, batch, row)
        inside, words = subject.attendable(text)[0].numpy(), words_of_tokens(batch, row)
        groups = {
            "impermissible": [word in MARKED[row] for word in words],
            "punctuation": [word in ("!", ".") for word in words],
            "DET": [word[0] == "t" for word in words],
            "NOUN": [word[0] == "s" for word in words],
            "PUNCT": [word in ("!", ".") for word in words],
        }
        groups["X"] = [not any(of_word) for of_word in zip(groups["DET"], groups["NOUN"], groups["PUNCT"], strict=True)]
        for place, name in enumerate(names):
            marks = np.zeros(len(inside), bool)
            if name == "markers":
                marks = ~inside
            elif name in groups:
                marks[inside] = groups[name]
            assert made["group_mass_tokens"][row][place] == marks.sum()
            values = made["group_mass"][row][place], made["group_mass_head_max"][row][place]
            if not marks.any() or not (inside & ~marks).any():
                assert np.isnan(values).all(), name
                continue
            of_heads = heads[:, marks].sum(1)
            np.testing.assert_allclose(values, (of_heads.mean(), of_heads.max()), atol=1e-5, err_msg=name)


def test_of_what_is_shown_it_is_a_part():
    """A mass over 1 - that of markers is the sum of the attention that a record holds."""
    subject, batch = of_texts()
    made = run("group_mass", subject, batch)
    shown = (subject.attention(batch)[0] * batch["impermissible"][0]).sum()
    mass, _, markers = made["group_mass"][0]
    assert 0 < markers < 1 and mass / (1 - markers) == pytest.approx(float(shown), abs=1e-6)


def test_a_decoder_has_no_markers_and_rollout_has_heads():
    subject, batch = of_texts("gpt2")
    made = run("group_mass", subject, batch)
    assert np.isnan(made["group_mass"][0][2]) and made["group_mass_tokens"][0][2] == 0
    shown = (subject.attention(batch)[0] * batch["impermissible"][0]).sum()
    assert made["group_mass"][0][0] == pytest.approx(float(shown), abs=1e-6)
    subject, batch = of_texts(reduction="rollout")
    made = run("group_mass", subject, batch)
    assert 0 < made["group_mass"][0][0] < 1 and 0 < made["group_mass_head_max"][0][0] < 1


@pytest.mark.parametrize("hierarchy", ["none", "sentence", "word"])
def test_pooled_models(hierarchy, tiny_model, tiny_rows):
    """At each level by a loop over positions; a sentence is impermissible where one of its words is."""
    subject = subject_of(tiny_model(encoder="bigru", hierarchy=hierarchy))
    rows = tiny_rows((9, 0, 12, [9], 7), hierarchy=hierarchy)
    batch = subject.collate(rows)
    batch["impermissible"] = (batch["input_ids"] % 4 == 1).long()
    batch["tokens"] = [["..." if place == 1 else token for place, token in enumerate(row["tokens"])] for row in rows]
    made = run("group_mass", subject, batch)
    assert made["group_mass_names"] == [["impermissible", "punctuation"]] * 5 and "group_mass_head_max" not in made
    mask, items = subject.attendable(batch), subject.items(batch)
    some = 0
    for row in range(5):
        weights = subject.attention(batch)[row, mask[row]].double().numpy()
        marks = np.zeros(len(weights), bool)
        if items is None:
            marks = batch["impermissible"][row, mask[row]].bool().numpy()
        else:
            for item, mark in zip(items[row].tolist(), batch["impermissible"][row].tolist(), strict=True):
                if item >= 0 and mark:
                    marks[item] = True
        defined = marks.any() and not marks.all()
        some += defined
        np.testing.assert_allclose(made["group_mass"][row][0], weights[marks].sum() if defined else np.nan, atol=1e-6)
        np.testing.assert_allclose(made["group_mass"][row][1], weights[1] if len(weights) > 1 else np.nan, atol=1e-6)
        assert list(made["group_mass_tokens"][row]) == [marks.sum(), int(len(weights) > 1)]
    assert some


def test_a_batch_that_says_nothing_has_no_groups():
    toy = Toy()
    made = run("group_mass", toy, toy.encode(["7 12", "8"]))
    assert made["group_mass_names"] == [[], []] and all(len(row) == 0 for row in made["group_mass"])


def test_a_measurement(tmp_path, monkeypatch):
    """Of texts with marks, by the front door: groups and masses are those of the record's own columns."""
    offer(tmp_path, monkeypatch, "by_first_letter", BY_LETTER)
    marks = [[int(word in words) for word in text.split()] for text, words in zip(TEXTS, MARKED, strict=True)]
    texts = Dataset.from_dict({"text": TEXTS, "impermissible": marks})
    names = ["group_mass", "value_norm_share", "permissible_only", "conicity"]
    options = {"group_mass": {"tagger": "by_first_letter"}}
    given = {"measures": names, "options": options, "progress": False}
    frame = attnfaith.measure(classifier("bert"), texts, tokenizer=tokenizer(), **given).to_dataset().to_pandas()
    for row in frame.to_dict("records"):
        mass = dict(zip(row["group_mass_names"], row["group_mass"], strict=True))
        shown, markers = np.asarray(row["attention"], float), mass["markers"]
        for name, marks in (
            ("impermissible", row["impermissible"]),
            ("PUNCT", [token in ("!", ".") for token in row["tokens"]]),
            ("punctuation", [token in ("!", ".") for token in row["tokens"]]),
        ):
            marks = np.asarray(marks, bool)
            expected = shown[marks].sum() * (1 - markers) if marks.any() and not marks.all() else np.nan
            np.testing.assert_allclose(mass[name], expected, atol=1e-6, err_msg=name)
    assert frame["value_norm_share"].notna().tolist() == [True, False, False, True, False]
    assert [bool(np.isnan(probs).any()) for probs in frame["permissible_only_probs"]] == [False, True, True, False, True]


def test_a_missing_tagger_is_said_before_any_work(monkeypatch):
    monkeypatch.setitem(sys.modules, "denckring_en_pos", None)
    message = r"^options of 'group_mass': the tagger 'denckring' is not installed: pip install 'attnfaith\[tagger\]'$"
    with pytest.raises(MeasurementError, match=message):
        build(["group_mass"], {"group_mass": {"tagger": "denckring"}})


def test_what_is_refused(tiny_model, monkeypatch):
    with pytest.raises(ValueError, match="no tagger is called 'flair'"):
        find("group_mass")(tagger="flair")
    subject = subject_of(tiny_model(hierarchy="sentence"))
    monkeypatch.setattr("attnfaith.interventions.diagnostics.tagger_of", lambda name: None)  # as one that is installed
    with pytest.raises(SubjectError, match="a sentence has no part of speech: measure the words .* with level='word'"):
        find("group_mass")(tagger="denckring").check(subject, None)
    find("group_mass")().check(subject, None)
