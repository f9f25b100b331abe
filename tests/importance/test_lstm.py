"""Shorter ways through an encoder against the definition: changed texts read again alone, one backward pass per state."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from attnfaith.importance import ablation, lstm, state_lengths
from attnfaith.models import AttentionClassifierConfig
from attnfaith.models.alignments import ALIGNMENTS
from attnfaith.models.encoders import ENCODERS
from attnfaith.models.projections import project
from tests.small_encoders import SIZE, build, build_subclass, close, texts


every_encoder = pytest.mark.parametrize("name", ENCODERS)
LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=5)


def scorer(alignment, query, seed=2):
    config = AttentionClassifierConfig(hidden_size=SIZE, alignment=alignment, query=query)
    torch.manual_seed(seed)
    module = ALIGNMENTS[alignment](config).double()
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module, config


def check_changes(encoder, lengths, edge=(0, 0), replaces=False, alignment="additive", query="learned", classes=3):
    """Sums under attention of every changed text against the text itself, read alone."""
    embedded, present = texts(lengths)
    mask = present.clone()
    for row, length in enumerate(lengths):
        mask[row, : edge[0]] = mask[row, length - edge[1] : length] = False
    module, config = scorer(alignment, query)
    generator = torch.Generator().manual_seed(3)
    queries = torch.randn(len(lengths), SIZE, dtype=torch.float64, generator=generator) if query == "text" else None
    values = None if classes is None else torch.randn(classes, SIZE, dtype=torch.float64, generator=generator)
    filling = embedded.flip(1) + 1 if replaces else None
    with torch.no_grad():
        states, _ = encoder(embedded, present)
        sums = ablation.sums_of_changes(
            encoder, module, config, embedded, states, present, mask, queries, values, filling=filling
        )
        assert (sums[~mask] == 0).all()
        for row, place in mask.nonzero().tolist():
            alone, left = embedded[row, : lengths[row]].clone(), mask[row, : lengths[row]]
            if replaces:
                alone[place] = filling[row, place]
            else:
                stays = torch.arange(lengths[row]) != place
                alone, left = alone[stays], left[stays]
            if not left.any():
                close(sums[row, place], torch.zeros_like(sums[row, place]))
                continue
            again, _ = encoder(alone[None], torch.ones(1, len(alone), dtype=torch.bool))
            weights = project(module(again, None if queries is None else queries[[row]]), left[None], config)[0]
            close(sums[row, place], weights @ (again[0] if values is None else again[0] @ values.t()), 1e-9)


@every_encoder
@pytest.mark.parametrize("replaces", [True, False])
@pytest.mark.parametrize("lengths", [(7, 1, 4, 9, 2, 7), (1,), (2, 2), (1, 2, 1)])
def test_changed_texts(name, replaces, lengths):
    check_changes(build(name), lengths, replaces=replaces)


@every_encoder
@pytest.mark.parametrize("replaces", [True, False])
def test_a_subclass_is_read_by_its_own_forward_pass(name, replaces):
    """Its parent's engine knows another encoder."""
    encoder = build_subclass(name)
    assert type(encoder) not in {**ablation.READERS, **state_lengths.ENGINES}
    check_changes(encoder, (5, 3, 5), replaces=replaces)
    embedded, _ = texts((7, 7))
    close(all_norms(encoder, embedded, 1, 6), one_pass_a_state(encoder, embedded, 1, 6))


@pytest.mark.parametrize("replaces", [True, False])
@settings(max_examples=30)
@given(
    lengths=LENGTHS,
    edge=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    alignment=st.sampled_from(list(ALIGNMENTS)),
    query=st.sampled_from(["learned", "text"]),
    classes=st.sampled_from([None, 2]),
)
def test_an_lstm_on_texts_of_many_lengths(replaces, lengths, edge, alignment, query, classes):
    """Markers at either end are read and not changed; values are of classes, or the states themselves."""
    lengths = [length + sum(edge) for length in lengths]
    check_changes(build("bilstm"), lengths, edge, replaces, alignment, query, classes)


@pytest.mark.parametrize("forgets", [True, False])
@pytest.mark.parametrize("replaces", [True, False])
def test_changes_that_an_lstm_forgets(replaces, forgets, monkeypatch):
    """What the forget gates let go is that of the whole text from there on, also when shorter texts have ended."""
    encoder = build("bilstm")
    for layer in encoder.directions:
        layer.weight_hh_l0.data *= 0.05
        layer.bias_ih_l0.data[SIZE // 2 : SIZE] = -4.0 if forgets else 40.0
    inner, queries = lstm.forgotten, []
    monkeypatch.setattr(lstm, "forgotten", lambda *rows: queries.append(inner(*rows)) or queries[-1])
    check_changes(encoder, (40, 25, 40), (1, 1), replaces)
    assert sum(queries) > 40 if forgets else queries and not any(queries)


def all_norms(encoder, embedded, start, stop, method=state_lengths.norm_gradients):
    """All parts (B,p,i) of the encoder's engine or of another; each place must come once."""
    lengths = torch.full((len(embedded), stop - start, stop - start), math.nan, dtype=embedded.dtype)
    for states, norms in method(encoder, embedded, start, stop):
        assert lengths[:, states].isnan().all() and not norms.requires_grad
        lengths[:, states] = norms
    return lengths


def one_pass_a_state(encoder, embedded, start, stop):
    """The same by torch.autograd, one backward pass for each state."""
    inputs = embedded.clone().requires_grad_()
    states, _ = encoder(inputs, torch.ones(embedded.shape[:2], dtype=torch.bool))
    lengths = states.norm(dim=-1).sum(0)
    slopes = [torch.autograd.grad(lengths[p], inputs, retain_graph=True)[0] for p in range(start, stop)]
    return torch.stack(slopes, 1)[:, :, start:stop].norm(dim=-1)


@every_encoder
@pytest.mark.parametrize(("start", "stop", "batch"), [(0, 7, 3), (1, 6, 1), (2, 3, 3), (6, 7, 1)])
def test_norm_gradients_are_those_of_one_pass_a_state(name, start, stop, batch):
    encoder, (embedded, _) = build(name), texts((7,) * batch)
    expected = one_pass_a_state(encoder, embedded, start, stop)
    assert (expected.diagonal(0, 1, 2) > 1e-4).all()
    close(all_norms(encoder, embedded, start, stop), expected)
    close(all_norms(encoder, embedded, start, stop, state_lengths.one_pass_a_state), expected)
