"""The stories answer their questions: an independent reader of the text finds the same answer and the same facts."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from attnfaith.data import babi
from attnfaith.data.babi import LOCATIONS, OBJECTS, PEOPLE, generate
from attnfaith.data.tokenization import split_words
from attnfaith.errors import DatasetError


tasks = pytest.mark.parametrize("task", [1, 2, 3])


def read(text):
    """[(kind, person, thing)] of the statements, from their words only."""
    told = []
    for sentence in text.split(" . "):
        tokens = sentence.removesuffix(" .").split()
        person, last = tokens[0], tokens[-1]
        assert person in PEOPLE and tokens[-2] == "the"
        if last in LOCATIONS:
            told.append(("move", person, last))
        else:
            assert last in OBJECTS
            told.append(("take" if tokens[1] in ("took", "picked", "grabbed") else "drop", person, last))
    return told


def facts(row):
    """Indices of the statements that the rationale marks, each marked as a whole or not at all."""
    marks, marked = list(row["rationale"]), []
    for i, sentence in enumerate(row["text"].removesuffix(" .").split(" . ")):
        n = len(sentence.split()) + 1
        part, marks = marks[:n], marks[n:]
        assert len(part) == n and len(set(part)) == 1
        if part[0]:
            marked.append(i)
    assert not marks
    return marked


def places_of_object(told, thing):
    """The places a thing has been in, without repeats in a row, by replaying the story."""
    at, holder, trail = {}, None, []
    for kind, person, what in told:
        if kind == "move":
            at[person] = what
        elif what == thing:
            holder = person if kind == "take" else None
        place = at.get(holder) if holder else None
        if place and (not trail or trail[-1] != place):
            trail.append(place)
    return trail


@tasks
def test_answers_follow_from_the_story(task):
    for row in generate(task, 300, 4):
        told, asked = read(row["text"]), row["text_pair"].split()
        answer = LOCATIONS[row["label"]]
        if task == 1:
            person = asked[2]
            assert answer == [what for kind, who, what in told if (kind, who) == ("move", person)][-1]
        elif task == 2:
            assert answer == places_of_object(told, asked[3])[-1]
        else:
            trail = places_of_object(told, asked[3])
            assert trail.count(asked[6]) == 1
            assert answer == trail[trail.index(asked[6]) - 1]


@tasks
def test_facts_are_as_many_as_the_task_says_and_suffice(task):
    """The story of the marked statements alone still answers the question."""
    for row in generate(task, 300, 5):
        marked = facts(row)
        assert len(marked) == task
        told, asked = [read(row["text"])[i] for i in marked], row["text_pair"].split()
        answer = LOCATIONS[row["label"]]
        if task == 1:
            assert told == [("move", asked[2], answer)]
        elif task == 2:
            assert len({person for _, person, _ in told}) == 1
            assert [what for kind, _, what in told if kind == "move"] == [answer]
            assert [what for kind, _, what in told if kind != "move"] == [asked[3]]
        else:
            assert places_of_object(told, asked[3])[-2:] == [answer, asked[6]]


@tasks
def test_no_fact_can_be_left_out(task):
    """Without any one of them the marked statements no longer give the answer."""
    for row in generate(task, 200, 6):
        told, asked = [read(row["text"])[i] for i in facts(row)], row["text_pair"].split()
        answer = LOCATIONS[row["label"]]
        for left_out in range(task):
            rest = told[:left_out] + told[left_out + 1 :]
            if task == 1:
                assert not rest
            elif task == 2:
                # an object that is only seen put down needs the place of the one who put it down, and the other way
                assert {kind for kind, _, _ in rest} != {kind for kind, _, _ in told}
            else:
                assert places_of_object(rest, asked[3])[-2:] != [answer, asked[6]]


@tasks
def test_form(task):
    low, high = babi.STATEMENTS[task]
    counts = set()
    for row in generate(task, 200, 0):
        assert split_words([row["text"], row["text_pair"]], "whitespace") == [
            row["text"].split(),
            row["text_pair"].split(),
        ]
        assert len(row["rationale"]) == len(row["text"].split())
        counts.add(len(read(row["text"])))
    assert low <= min(counts) and max(counts) <= high and len(counts) > 3
    assert all(len(read(row["text"])) == 12 for row in generate(task, 20, 0, statements=(12, 12)))


@tasks
def test_every_place_is_an_answer(task):
    labels = np.bincount([row["label"] for row in generate(task, 1200, 0)], minlength=len(LOCATIONS))
    assert labels.min() > 120


@hypothesis.settings(max_examples=15)
@hypothesis.given(st.integers(0, 2**40), st.integers(0, 2), st.integers(1, 8), st.sampled_from([1, 2, 3]))
def test_a_row_does_not_depend_on_how_many_are_made(seed, stream, n, task):
    assert generate(task, n, seed, stream=stream) == generate(task, n + 4, seed, stream=stream)[:n]


@tasks
def test_seeds_and_streams_differ(task):
    one = generate(task, 30, 0)
    assert generate(task, 30, 1) != one != generate(task, 30, 0, stream=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((4, 1, 0), "tasks 1, 2 and 3; 4"),
        ((1, -1, 0), "n must not be negative"),
        ((1, 1, -1), "seed must not be negative"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(DatasetError, match=message):
        generate(*arguments)


def test_bad_statement_counts_are_refused():
    with pytest.raises(DatasetError, match="at least 3, the supporting facts"):
        generate(3, 1, 0, statements=(2, 9))
    with pytest.raises(DatasetError, match="least, greatest"):
        generate(1, 1, 0, statements=(5, 4))
