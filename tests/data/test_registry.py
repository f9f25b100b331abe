"""Entries obey the registry's own rules; packages add theirs."""

import re
import subprocess
import sys

import pytest

from attnfaith.data import registry
from attnfaith.data.registry import DATASETS, DatasetEntry, get_entry, read_entries
from attnfaith.data.tokenization import PREPROCESSING
from attnfaith.support.errors import DatasetError


@pytest.mark.parametrize("entry", DATASETS.values(), ids=list(DATASETS))
def test_entries_are_complete(entry: DatasetEntry):
    assert {"text", "label"} <= set(entry.columns) <= {"text", "text_pair", "label", "impermissible"}
    assert entry.preprocessing in PREPROCESSING and entry.citation and entry.notes and entry.min_df >= 1
    assert len(set(entry.label_names)) == len(entry.label_names)
    if entry.label_subset is not None:
        assert sorted(entry.label_subset.values()) == list(range(len(entry.label_names)))
        assert all(0 <= old < entry.published_labels for old in entry.label_subset)
    else:
        assert len(entry.label_names) == entry.published_labels
    assert (entry.folder is None) == entry.built_in
    if entry.hub_id is not None:
        fixed = {"movie_reviews": "refs/convert/parquet"}.get(entry.name, "[0-9a-f]{40}")
        assert entry.folder == entry.hub_id and re.fullmatch(fixed, entry.revision)
    assert not entry.pooled or None not in (entry.test_fraction, entry.validation_fraction)
    assert entry.pooled or not entry.distinct


def test_filters_of_the_papers():
    """Jain & Wallace's table: strict bounds in words and document frequency; the extreme of a split without a bound."""
    table = {"sst": (5, None, 1), "adr": (5, 100, 2), "imdb": (6, 400, 10), "20news_sports": (6, 500, 2)}
    table |= {"ag_news": (None, None, 5), "mimic_diabetes": (6, 4000, 5), "mimic_anemia": (None, 4000, 5)}
    for name, (shortest, longest, min_df) in table.items():
        entry = get_entry(name)
        assert (entry.min_length, entry.max_length, entry.min_df) == (shortest, longest, min_df)
        assert (entry.drop_shortest, entry.drop_longest) == (shortest is None, longest is None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- name: a\n  citation: b\n  mindf: 3", "mindf"),
        ("- name: a\n  citation: b\n  label_names: [no, 1]", "label_names.0"),
        ("- a", "must be a list of entries"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path, text, message):
    path = tmp_path / "registry.yaml"
    path.write_text(text)
    with pytest.raises(DatasetError, match=f"(?s){re.escape(str(path))}.*{message}"):
        read_entries(path)


def test_a_name_is_taken_once(monkeypatch):
    monkeypatch.setattr(registry, "DATASETS", dict(DATASETS))
    entry = registry.register(DatasetEntry("letters", "mine", ("a", "b"), folder="letters"))
    assert registry.register(entry) is get_entry("letters") and "letters" not in DATASETS
    with pytest.raises(DatasetError, match="data set 'letters' already"):
        registry.register(DatasetEntry("letters", "another"))


def test_importing_the_data_layer_is_light():
    """The heavy libraries are imported on use, so that a reader of records never pays for them."""
    names = "registry, tokenization, labels, vectors, planted_evidence"
    code = f"import sys; from attnfaith.data import {names}; print('torch' in sys.modules, 'transformers' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False False"
