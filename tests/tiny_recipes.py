"""The recipe of a tiny run on generated texts, which takes about a second."""


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
