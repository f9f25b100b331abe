"""What pages say of a study's making is read from the file beside its tables."""

import json

import evidence
import pytest


def made_json(tmp_path, monkeypatch, *makers):
    folder = tmp_path / "recipes" / "paper" / "results"
    folder.mkdir(parents=True)
    told = {"cells": {"planned": 5, "complete": 4}, "seconds": 5400.0, "made_by": list(makers)}
    (folder / "made.json").write_text(json.dumps(told))
    monkeypatch.setattr(evidence, "ROOT", tmp_path)


def test_one_clean_commit_is_named(tmp_path, monkeypatch):
    one = {"commit": "0123456789abcdef" * 2, "dirty": False}
    made_json(tmp_path, monkeypatch, {**one, "device": "cpu"}, {**one, "device": "cuda"})
    assert evidence.made("paper/results") == "Made at commit `0123456789ab`: 4 of 5 cells, 1.5 hours of one thread."


@pytest.mark.parametrize(
    "makers",
    [
        [{"commit": "a" * 40, "dirty": False}, {"commit": "b" * 40, "dirty": False}],
        [{"commit": "a" * 40, "dirty": True}],
        [{"commit": None, "dirty": None}],
        [],
    ],
)
def test_anything_else_is_refused(tmp_path, monkeypatch, makers):
    made_json(tmp_path, monkeypatch, *makers)
    with pytest.raises(evidence.EvidenceError, match="one clean commit"):
        evidence.made("paper/results")
