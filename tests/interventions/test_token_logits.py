"""The read-out in a record: with it alone every prediction under any attention can be computed again."""

import numpy as np
import pytest
import torch

from attnfaith.interventions import adversary
from attnfaith.interventions.targets import read_out, softmax
from attnfaith.models.decoders import BARRED
from attnfaith.subjects import subject_of
from tests.interventions.test_minimal_flip_set import asked
from tests.measuring import run


CELLS = (
    {"encoder": "bilstm", "projection": "softmax"},
    {"encoder": "cnn", "projection": "sparsemax", "num_labels": 3},
    {"encoder": "embedding", "projection": "uniform", "query": "text"},
    {"encoder": "bigru", "projection": "softmax", "hierarchy": "sentence"},
)
TEXTS = (7, 0, [9], 4, 12)


def said(columns, row, attention):
    """The prediction under an attention (T,), from the columns alone."""
    logits = attention @ columns["token_logits"][row].astype(np.float64) + columns["token_logits_bias"][row]
    return softmax(logits)


def test_by_hand():
    """Two tokens, two classes: values are what each token says alone, and the bias what is said of nothing."""
    model, batch = asked([([3, 1], [[1.0, 0.0], [0.0, 2.0]]), ([], [])], [0.5, -0.5])
    columns = run("token_logits", model, batch)
    assert columns["token_logits"][0].tolist() == [[1.0, 0.0], [0.0, 2.0]] and columns["token_logits"][1].shape == (0, 2)
    assert [values.tolist() for values in columns["token_logits_bias"]] == [[0.5, -0.5]] * 2
    np.testing.assert_allclose(said(columns, 0, np.array([0.75, 0.25])), softmax(np.array([1.25, 0.0])))


@pytest.mark.parametrize("fields", CELLS, ids=lambda fields: "-".join(map(str, fields.values())))
def test_any_attention_gives_what_the_model_says(fields, tiny_model, tiny_rows, tiny_batch):
    model = tiny_model(**fields)
    rows = tiny_rows(TEXTS, pair=fields.get("query") == "text", hierarchy=fields.get("hierarchy", "none"))
    subject, batch = subject_of(model), tiny_batch(rows)
    columns, generator = run("token_logits", model, batch), np.random.default_rng(0)
    mask = subject.attendable(batch).numpy()
    other = generator.dirichlet(np.ones(mask.shape[1]), len(mask)) * mask
    other /= np.maximum(other.sum(1, keepdims=True), 1e-30)
    logits = subject.intervene(batch, torch.from_numpy(other[:, None]).float())[:, 0].double().detach()
    for row, keep in enumerate(mask):
        np.testing.assert_allclose(said(columns, row, other[row][keep]), logits[row].softmax(-1).numpy(), atol=2e-6)


def test_experiments_follow_from_it(tiny_model, tiny_rows, tiny_batch):
    """What other producers say of the same batch, computed of the columns in the way their docstrings say."""
    model, batch = tiny_model(dtype=torch.float32), tiny_batch(tiny_rows((7, 5, 12)))  # as columns keep what they are of
    columns = run("token_logits", model, batch)
    attention = [row.attention for row in read_out(subject_of(model), batch)]
    furthest, smallest = run("adversary_exact", model, batch), run("minimal_flip_set", model, batch)
    for row, own in enumerate(attention):
        values, bias = columns["token_logits"][row].astype(np.float64), columns["token_logits_bias"][row].astype(np.float64)
        for place, epsilon in enumerate(adversary.EPSILONS):
            again = adversary.maximise(own, values[:, 1] - values[:, 0], bias[1] - bias[0], epsilon)
            probs = furthest["adversary_exact_probs"][row][place]
            np.testing.assert_allclose(said(columns, row, again.attention), probs, atol=1e-6)
            assert again.jsd == pytest.approx(furthest["adversary_exact_jsd"][row][place], abs=1e-12)
        if (chosen := smallest["minimal_flip_set"][row].astype(bool)).any() and not smallest["minimal_flip_empty"][row]:
            left = np.where(chosen, 0.0, own)
            assert said(columns, row, left / left.sum()).argmax() != said(columns, row, own).argmax()


def test_barred_classes_have_no_numbers():
    model, batch = asked([([1, 1], [[1.0, 0.0, 3.0]] * 2)], [0.0, 0.0, 0.0])
    batch["answer_mask"] = torch.tensor([[True, False, True]])
    model.bias = torch.tensor([0.0, BARRED, 0.0], dtype=torch.float64)
    columns = run("token_logits", model, batch)
    assert np.isnan(columns["token_logits_bias"][0]).tolist() == [False, True, False]
    np.testing.assert_array_equal(columns["token_logits"][0], [[1.0, np.nan, 3.0]] * 2)
