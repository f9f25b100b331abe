"""A tiny run on generated texts, which takes about a second: its recipe, and the whole run."""

import sys

import pytest


CANARY = "c4n4ry"
SECRETS = {"HF_TOKEN": f"hf_{CANARY}AbCdEf", "DB_PASSWORD": CANARY, "https_proxy": f"http://me:{CANARY}@host:9"}


def tiny_tree(folder, *, epochs: int = 2, **keys) -> dict:
    """Return the recipe as its YAML file would hold it. keys: of the top level, in place of or beside these."""
    return {
        "name": "tiny",
        "output_dir": str(folder),
        "seed": 3,
        "data": {
            "name": "planted_evidence",
            "arguments": {
                "length": [4, 8],
                "vocabulary_size": 40,
                "sizes": {"train": 64, "validation": 24, "test": 24},
            },
        },
        "model": {"embedding_size": 8, "hidden_size": 8},
        "training": {"num_train_epochs": epochs, "learning_rate": 0.01, "arguments": {"disable_tqdm": True}},
        "report": {"examples": 1},
        **keys,
    }


def finished_run(folder, **keys):
    """Carry out the recipe by code that a commit holds, beside secrets; return the folder. keys: as of `tiny_tree`."""
    from attnfaith import recipes, runs
    from attnfaith.support import provenance
    from tests.figures import SAVE, without_pixels

    measure = {"producers": ["gradient", "gradient_norm", "leave_one_out", "permutation"]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SAVE, without_pixels)
        patch.setattr(provenance, "checkout", lambda: ("0" * 40, False))
        patch.setattr(sys, "argv", ["attnfaith", "train", f"--token={CANARY}", "--password", CANARY])
        for name, value in SECRETS.items():
            patch.setenv(name, value)
        page = runs.run(recipes.build(tiny_tree(folder, measure=measure, **keys)))
    assert page == folder / "report" / "index.html"
    return folder
