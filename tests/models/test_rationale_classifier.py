"""The classifier that reads a selection: what is not selected has no part in its answer."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification

from attnfaith import RationaleClassifierForSequenceClassification
from attnfaith.models.rationale_samplers import budget_tokens
from tests import small_rationales


KINDS = {**small_rationales.KINDS, "pretrained": {"sampler": "budget", "budget": 0.4}}


def build(kind="bernoulli", **fields):
    fields = {**KINDS[kind], **fields}
    if kind == "pretrained":
        fields["text_config"] = AutoConfig.for_model(
            "bert", vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
        )
    return small_rationales.rationale_model(vocab_size=30, **fields)


def texts(*lengths, seed=1):
    """Ids of texts of so many tokens between markers."""
    torch.manual_seed(seed)
    ids = torch.zeros(len(lengths), max(lengths) + 2, dtype=torch.long)
    for row, length in enumerate(lengths):
        ids[row, : length + 2] = torch.tensor([2, *torch.randint(4, 30, (length,)).tolist(), 3])
    return ids


LENGTHS = (9, 4, 1, 0, 7)
IDS = texts(*LENGTHS)
INSIDE = torch.arange(11) < torch.tensor(LENGTHS)[:, None] + 1
INSIDE[:, 0] = False


@pytest.mark.parametrize("kind", KINDS)
def test_a_selection_is_hard_and_nothing_else_counts(kind, tmp_path):
    """A text does not depend on its company; saved and loaded, and with embeddings for ids, the model is the same."""
    model = build(kind)
    outputs = model(IDS)
    gates = outputs.gates
    assert set(gates.unique().tolist()) <= {0.0, 1.0} and not gates[~INSIDE].any()
    assert 0 < int(gates.sum()) < int(INSIDE.sum())
    embedded = model.embed(IDS)
    rest = torch.where(INSIDE & (gates == 0), 1.0, 0.0).unsqueeze(-1)
    changed = embedded._replace(vectors=embedded.vectors + rest * torch.randn_like(embedded.vectors))
    torch.testing.assert_close(model.read(changed, gates), outputs.logits, atol=0, rtol=0)
    chosen = embedded._replace(vectors=embedded.vectors + gates.unsqueeze(-1) * torch.randn_like(embedded.vectors))
    assert (model.read(chosen, gates) - outputs.logits)[gates.sum(1) > 0].abs().amax(1).min() > 1e-6
    for row, length in enumerate(LENGTHS):
        alone = model(IDS[row : row + 1, : length + 2])
        torch.testing.assert_close(alone.logits[0], outputs.logits[row], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(alone.selection[0], outputs.selection[row, : length + 2], atol=1e-6, rtol=1e-5)
        assert torch.equal(alone.gates[0], gates[row, : length + 2])
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    assert type(loaded) is RationaleClassifierForSequenceClassification
    assert torch.equal(loaded(IDS).logits, outputs.logits)
    assert torch.equal(loaded(inputs_embeds=model.embeddings(IDS), attention_mask=IDS != 0).logits, outputs.logits)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_reach_the_selector(kind):
    """Through gates that are relaxed, and not through those that are drawn as 0 or 1."""
    torch.manual_seed(3)
    model = build(kind).train()
    outputs = model(IDS, labels=torch.tensor([0, 1, 0, 1, 0]))
    outputs.loss.backward()
    reached = model.selector.score.weight.grad
    if KINDS[kind]["sampler"] == "bernoulli":
        assert reached is None and set(outputs.gates.unique().tolist()) == {0.0, 1.0}
    else:
        assert reached.abs().max() > 0 and bool(((outputs.gates > 0) & (outputs.gates < 1)).any())
    assert all(values.grad.isfinite().all() for values in model.parameters() if values.grad is not None)
    assert outputs.gates.min() >= 0 and outputs.gates.max() <= 1 and not outputs.gates[~INSIDE].any()


def test_which_tokens_are_selected():
    """The rule, on gate values by hand."""
    values = torch.tensor([[0.0, 0.6, 0.2, 0.9, 0.55, 0.51, 0.0]])
    inside = torch.tensor([[False] + [True] * 5 + [False]])

    def chosen(**fields):
        return build(**fields).harden(values, inside)[0].nonzero().flatten().tolist()

    assert chosen() == [1, 3, 4, 5]
    assert chosen(threshold=0.6) == [3]
    assert chosen(kind="hardkuma") == [1, 2, 3, 4, 5]
    assert chosen(budget=0.4) == [1, 3]
    assert chosen(budget=1.0) == [1, 3, 4, 5]
    assert chosen(threshold=0.95) == chosen(threshold=0.95, budget=0.4) == []


@pytest.mark.parametrize("kind", ["budget", "bounded", "pretrained"])
def test_a_selection_stays_within_its_budget(kind):
    """In training by the sum of gates, at test time by the number of tokens; of hardkuma only then."""
    model, ids = build(kind), texts(20, 11, 3, 1, seed=4)
    most = budget_tokens(model.attendable(ids), model.config.budget)
    selected = model(ids).gates.bool()
    assert (selected.sum(1) <= most).all()
    if kind != "bounded":
        assert (model.train()(ids).gates.sum(1) <= most + 1e-5).all()
