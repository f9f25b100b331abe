"""A spy of trainings."""

import pytest

from attnfaith import runs


@pytest.fixture
def starts(monkeypatch):
    """{objective: [the weights that its training starts from, the texts of its first batch, of its second, …]}"""
    starts, make_trainer = {}, runs.train.make_trainer

    def spy(recipe, model, *args):
        trainer = make_trainer(recipe, model, *args)
        collator, own = trainer.data_collator, starts.setdefault(recipe.objective.kind, [])
        own.append({name: value.clone() for name, value in model.state_dict().items()})
        trainer.data_collator = lambda rows: own.append([row["input_ids"] for row in rows]) or collator(rows)
        return trainer

    monkeypatch.setattr(runs.train, "make_trainer", spy)
    return starts
