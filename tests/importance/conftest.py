"""A model and a batch that suits it."""

import pytest


@pytest.fixture
def make_batch(tiny_model, tiny_rows, tiny_batch):
    """Factory of a model with these fields and a batch that suits it."""

    def make(texts=(7, 0, [9], 3, [12] * 5), **fields):
        rows = tiny_rows(texts, pair=fields.get("query") == "text", hierarchy=fields.get("hierarchy", "none"))
        return tiny_model(**fields), tiny_batch(rows)

    return make
