"""Random and uniform scores."""

import numpy as np
from scipy.stats import kstest

from attnfaith.importance.attention_based import RandomScores, UniformScores
from tests.measuring import run


def test_random_scores_are_uniform_and_of_each_instance(tiny_model, tiny_rows, tiny_batch):
    model, batch = tiny_model(), tiny_batch(tiny_rows([150, 0, 200, 200]))
    found = run(RandomScores, model, batch, seed=3)["importance_random"]
    assert [len(values) for values in found] == [150, 0, 200, 200]
    assert kstest(np.concatenate(found), "uniform").pvalue > 0.01
    assert not np.isin(found[2], found[3]).any()
    again, other = (run(RandomScores, model, batch, seed=seed)["importance_random"] for seed in (3, 4))
    assert all((one == two).all() for one, two in zip(found, again, strict=True))
    assert not np.isin(found[0], other[0]).any()


def test_uniform_scores(tiny_model, tiny_rows, tiny_batch):
    model = tiny_model(hierarchy="sentence")
    found = run(UniformScores, model, tiny_batch(tiny_rows([8, 1, 0], hierarchy="sentence")))["importance_uniform"]
    assert [values.tolist() for values in found] == [[np.float32(1 / 3)] * 3, [1.0], []]
