"""Texts without a token, or with another: the engine of each encoder against texts that are read again."""

import pytest
import torch

from attnfaith.importance._fast import lstm_deletion
from attnfaith.importance._fast.deletion import (
    REPLACED,
    WITHOUT,
    blocks_replaced,
    blocks_without,
    define_replaced,
    define_without,
    in_one,
    remaining_positions,
    states_without,
)
from attnfaith.importance._fast.shared import View
from attnfaith.models.encoders import ENCODERS
from tests.small_encoders import SIZE, build, build_subclass, close, texts


every_encoder = pytest.mark.parametrize("name", ENCODERS)


@every_encoder
@pytest.mark.parametrize(("start", "stop"), [(0, 7), (1, 6), (2, 3), (0, 1), (6, 7)])
@pytest.mark.parametrize("batch", [1, 3])
def test_without_is_deletion(name, start, stop, batch):
    encoder, (embedded, mask) = build(name), texts((7,) * batch)
    states = states_without(encoder, embedded, start, stop)
    assert states.shape == (stop - start, batch, 6, SIZE)
    assert not states.isnan().any()
    for variant, position in enumerate(range(start, stop)):
        kept = [t for t in range(7) if t != position]
        close(states[variant], encoder(embedded[:, kept], mask[:, kept])[0])


@every_encoder
def test_parts_without_cover_each_place_once(name):
    encoder, (embedded, _) = build(name), texts((7, 7))
    with torch.no_grad():
        [(rows, positions, definition)] = define_without(encoder, embedded, 1, 5)
        assert (rows, positions, definition.shape) == (slice(0, 4), slice(0, 6), (4, 2, 6, SIZE))
        covered = torch.zeros(4, 6)
        for rows, positions, block in blocks_without(encoder, embedded, 1, 5):
            covered[rows, positions] += 1
            close(block, definition[rows, :, positions])
    assert (covered == 1).all()


@pytest.mark.parametrize("forgets", [True, False])
@pytest.mark.parametrize("replaces", [True, False])
def test_changes_that_an_lstm_forgets(replaces, forgets, monkeypatch):
    """What the forget gates let go is not run on; the states are those of texts that are read again."""
    encoder, (embedded, _) = build("bilstm"), texts((60, 60, 60))
    for lstm in encoder.directions:
        lstm.weight_hh_l0.data *= 0.05
        lstm.bias_ih_l0.data[SIZE // 2 : SIZE] = -4.0 if forgets else 40.0
    changes, shape = ((embedded.flip(1),), (50, 3, 60)) if replaces else ((), (50, 3, 59))
    ours, definition = (blocks_replaced, define_replaced) if replaces else (blocks_without, define_without)
    inner, asked = lstm_deletion.forgotten, []
    monkeypatch.setattr(lstm_deletion, "forgotten", lambda *given: asked.append(inner(*given)) or asked[-1])
    with torch.no_grad():
        expected = in_one(definition(encoder, embedded, *changes, 3, 53), shape)
        close(in_one(ours(encoder, embedded, *changes, 3, 53), shape), expected)
        covered = torch.zeros(50, shape[2])
        for rows, positions, _ in ours(encoder, embedded, *changes, 3, 53):
            covered[rows, positions] += 1
    assert (covered == 1).all()
    assert sum(asked) > 60 if forgets else asked and not any(asked)


@every_encoder
def test_without_in_float32_and_for_two_tokens(name):
    encoder, (embedded, mask) = build(name).float(), texts((2, 2))
    states = states_without(encoder, embedded.float(), 0, 2)
    close(states[0], encoder(embedded[:, 1:].float(), mask[:, 1:])[0], 1e-5)
    close(states[1], encoder(embedded[:, :1].float(), mask[:, :1])[0], 1e-5)


@every_encoder
@pytest.mark.parametrize(("start", "stop"), [(0, 7), (1, 6), (2, 3), (0, 1), (6, 7)])
def test_replaced_tokens(name, start, stop):
    encoder, (embedded, mask) = build(name), texts((7, 7))
    filling = embedded.flip(0, 1) + 1
    with torch.no_grad():
        [(_, _, definition)] = define_replaced(encoder, embedded, filling, start, stop)
        covered = torch.zeros(stop - start, 7)
        for rows, positions, block in blocks_replaced(encoder, embedded, filling, start, stop):
            covered[rows, positions] += 1
            close(block, definition[rows, :, positions])
    assert (covered == 1).all()
    for variant, position in enumerate(range(start, stop)):
        changed = embedded.clone()
        changed[:, position] = filling[:, position]
        close(definition[variant], encoder(changed, mask)[0].detach())


@every_encoder
def test_one_filling_for_all_and_states_that_are_known(name):
    encoder, (embedded, mask) = build(name), texts((7, 7))
    filling = embedded[0, 0] + 1
    with torch.no_grad():
        known, _ = encoder(embedded, mask)
        for whole in (None, known):
            same = (
                (
                    blocks_replaced(encoder, embedded, filling, 1, 6, whole),
                    define_replaced(encoder, embedded, filling.expand_as(embedded), 1, 6),
                    (5, 2, 7),
                ),
                (blocks_without(encoder, embedded, 1, 6, whole), define_without(encoder, embedded, 1, 6), (5, 2, 6)),
            )
            for ours, definition, shape in same:
                close(in_one(ours, shape), in_one(definition, shape))


@every_encoder
@pytest.mark.parametrize("biases", [(), (2,)], ids=["one", "of_each_text"])
@pytest.mark.parametrize("replaces", [True, False])
def test_what_a_view_reads_of_states(name, replaces, biases):
    """Also of deletions that are forgotten, and of the place that is replaced."""
    encoder, (embedded, _) = build(name), texts((40, 40))
    generator = torch.Generator().manual_seed(3)
    weight, bias = torch.randn(3, SIZE, generator=generator).double(), torch.randn(*biases, 3, generator=generator).double()
    changes, shape = ((embedded.flip(1),), (38, 2, 40)) if replaces else ((), (38, 2, 39))
    ours, definition = (blocks_replaced, define_replaced) if replaces else (blocks_without, define_without)
    if name == "bilstm":
        for lstm in encoder.directions:
            lstm.weight_hh_l0.data *= 0.05
            lstm.bias_ih_l0.data[SIZE // 2 : SIZE] = -4.0
    with torch.no_grad():
        expected = in_one(definition(encoder, embedded, *changes, 1, 39), shape) @ weight.t()
        expected += bias if bias.dim() == 1 else bias[:, None]
        for method in (ours, definition):
            close(in_one(method(encoder, embedded, *changes, 1, 39, view=View(weight, bias)), shape), expected)


@every_encoder
@pytest.mark.parametrize("replaces", [True, False])
@pytest.mark.parametrize("viewed", [True, False])
def test_only_what_is_wanted_needs_to_come(name, replaces, viewed):
    """Tokens 2..7 of 9 are wanted, 3..5 are changed; an LSTM reads on to the last wanted one and no further."""
    encoder, (embedded, _) = build(name), texts((9, 9))
    changes, length = ((embedded.flip(1),), 9) if replaces else ((), 8)
    ours, definition = (blocks_replaced, define_replaced) if replaces else (blocks_without, define_without)
    view = View(torch.eye(SIZE).double()[:2], torch.ones(2).double()) if viewed else None
    shape, inside = (3, 2, length), slice(2, 8 if replaces else 7)
    with torch.no_grad():
        expected = in_one(definition(encoder, embedded, *changes, 3, 6, view=view), shape)
        covered = torch.zeros(3, length)
        for rows, positions, _ in ours(encoder, embedded, *changes, 3, 6, view=view, wanted=(2, 8)):
            covered[rows, positions] += 1
        states = in_one(ours(encoder, embedded, *changes, 3, 6, view=view, wanted=(2, 8)), shape)
    close(states[:, :, inside], expected[:, :, inside])
    assert (covered[:, inside] == 1).all() and (covered <= 1).all()
    if name == "bilstm":
        assert (covered[:, inside.stop :] == 0).all() and (covered[:, : inside.start] == 0).all()


@every_encoder
def test_a_subclass_is_read_by_its_own_forward_pass(name):
    """Its parent's engine knows another encoder."""
    encoder, (embedded, mask) = build_subclass(name), texts((7, 7))
    assert type(encoder) not in {**WITHOUT, **REPLACED}
    filling = embedded.flip(0, 1) + 1
    with torch.no_grad():
        without = states_without(encoder, embedded, 1, 6)
        replaced = in_one(blocks_replaced(encoder, embedded, filling, 1, 6), (5, 2, 7))
        for variant, position in enumerate(range(1, 6)):
            kept = [t for t in range(7) if t != position]
            close(without[variant], encoder(embedded[:, kept], mask[:, kept])[0])
            changed = embedded.clone()
            changed[:, position] = filling[:, position]
            close(replaced[variant], encoder(changed, mask)[0])


def test_remaining_positions_by_hand():
    assert remaining_positions(4, 1, 4).tolist() == [[0, 2, 3], [0, 1, 3], [0, 1, 2]]
    assert remaining_positions(3, 0, 1).tolist() == [[1, 2]]
    assert remaining_positions(1, 0, 1).shape == (1, 0)
