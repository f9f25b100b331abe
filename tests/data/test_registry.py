"""Every entry obeys the registry's own rules."""

import dataclasses
import re
import subprocess
import sys

import pytest

from attnfaith.data.registry import DATASETS, DatasetEntry, get_entry, read_entries
from attnfaith.data.tokenization import PREPROCESSING
from attnfaith.errors import DatasetError


entries = pytest.mark.parametrize("entry", DATASETS.values(), ids=list(DATASETS))


def test_known_data_sets():
    assert set(DATASETS) == {
        "sst", "imdb", "adr", "ade", "20news_sports", "ag_news", "mimic_diabetes", "mimic_anemia", "movie_reviews",
        "babi_1", "babi_2", "babi_3", "planted_evidence", "counting", "snli", "cnn_qa", "daily_mail_qa",
        "yelp", "amazon", "yahoo_answers", "imdb_10",
        "occupation", "pronoun", "sst_wiki",
        *(f"babi_qa_{task}{variant}" for task in (1, 2, 3) for variant in ("", "_1k", "_valid")),
    }  # fmt: skip


@entries
def test_entry_is_complete(entry: DatasetEntry):
    assert DATASETS[entry.name] is entry is get_entry(entry.name)
    assert {"text", "label"} <= set(entry.columns) <= {"text", "text_pair", "label", "impermissible"}
    assert entry.preprocessing in PREPROCESSING
    assert entry.citation and entry.notes
    assert len(set(entry.label_names)) == len(entry.label_names)
    assert entry.answers == (len(entry.label_names) < 2)
    assert entry.answers or not entry.candidates
    assert entry.min_df >= 1
    if entry.answers:
        assert entry.label_names == () and entry.label_subset is None
    elif entry.label_subset is None:
        assert len(entry.label_names) == entry.published_labels
    else:
        assert sorted(entry.label_subset.values()) == list(range(len(entry.label_names)))
        assert all(0 <= old < entry.published_labels for old in entry.label_subset)


@entries
def test_entry_has_one_source(entry: DatasetEntry):
    assert (entry.folder is None) == entry.built_in
    if entry.hub_id is not None:
        assert entry.folder == entry.hub_id and entry.revision


@entries
def test_cuts_can_be_made(entry: DatasetEntry):
    if entry.pooled:
        assert entry.test_fraction is not None and entry.validation_fraction is not None
    assert entry.pooled or not entry.distinct
    for fraction in (entry.test_fraction, entry.validation_fraction):
        assert fraction is None or 0 < fraction < 1


@pytest.mark.parametrize(
    ("name", "shortest", "longest", "min_df"),
    [
        ("sst", 5, None, 1),
        ("adr", 5, 100, 2),
        ("imdb", 6, 400, 10),
        ("20news_sports", 6, 500, 2),
        ("ag_news", None, None, 5),
        ("mimic_diabetes", 6, 4000, 5),
        ("mimic_anemia", None, 4000, 5),
    ],
)
def test_filters_of_the_papers(name, shortest, longest, min_df):
    """Jain & Wallace's table: strict bounds in words, the extreme of each split where they name none."""
    entry = get_entry(name)
    assert (entry.min_length, entry.max_length, entry.min_df) == (shortest, longest, min_df)
    assert entry.drop_shortest == (shortest is None)
    assert entry.drop_longest == (longest is None)


@pytest.mark.parametrize(("name", "min_df"), [("snli", 3), ("cnn_qa", 8), ("babi_qa_1", 1), ("babi_qa_3", 1)])
def test_pairs_of_the_papers_are_not_filtered(name, min_df):
    entry = get_entry(name)
    assert entry.min_df == min_df
    assert (entry.min_length, entry.max_length, entry.drop_shortest, entry.drop_longest) == (None, None, False, False)


SMALL = "name: a\n  citation: b\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"- {SMALL}  mindf: 3", "entry 'a', mindf=3: Unexpected keyword argument"),
        ("- name: a", "entry 'a', citation=.*: Field required"),
        ("- citation: a", "entry 0, name=.*: Field required"),
        (f"- {SMALL}  min_df: '3'", "entry 'a', min_df='3': Input should be a valid integer"),
        (f"- {SMALL}  min_df: true", "entry 'a', min_df=True: Input should be a valid integer"),
        (f"- {SMALL}  answers: 1", "entry 'a', answers=1: Input should be a valid boolean"),
        (f"- {SMALL}  label_names: [no, 1]", "entry 'a', label_names.0=False: Input should be a valid string"),
        (f"- {SMALL}  notes: [see, 1]", "entry 'a', notes=.*: Input should be a valid string"),
        (f"- {SMALL}- {SMALL}", "two entries of the name 'a'"),
        ("a: b", "must be a list of entries"),
        ("- a", "must be a list of entries"),
        ("- [a", "is not valid YAML"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path, text, message):
    path = tmp_path / "registry.yaml"
    path.write_text(text)
    with pytest.raises(DatasetError, match=f"{re.escape(str(path))}.*{message}"):
        read_entries(path)


def test_fields_and_notes_of_the_file(tmp_path):
    path = tmp_path / "registry.yaml"
    path.write_text(
        f"- {SMALL}  notes: [One., Two.]\n  label_subset: {{9: 0}}\n  columns: {{text: [a, [b, c]], label: [d]}}"
    )
    assert read_entries(path) == {
        "a": DatasetEntry(
            "a", "b", notes="One. Two.", label_subset={9: 0}, columns={"text": ("a", ("b", "c")), "label": ("d",)}
        )
    }


def test_unknown_name_says_what_is_known():
    with pytest.raises(DatasetError, match="'imbd'; did you mean 'imdb'"):
        get_entry("imbd")
    with pytest.raises(DatasetError, match="'zzzzzz'; there are 20news_sports, "):
        get_entry("zzzzzz")


def test_entries_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        get_entry("sst").min_df = 3


def test_importing_the_data_layer_is_light():
    """The heavy libraries are imported on use, so that a reader of records never pays for them."""
    names = "registry, sources, stories, tokenization, collation, vectors, babi, planted_evidence, counting"
    code = (
        f"import sys; from attnfaith.data import {names}; "
        "print([m for m in ('torch', 'transformers', 'datasets', 'tokenizers') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
