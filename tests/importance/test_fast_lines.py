"""States along lines: the engine of each encoder against its forward pass at every point."""

import pytest
import torch

from attnfaith.importance._fast.lines import line_reader
from attnfaith.models.encoders import ENCODERS, BiLSTM
from tests.small_encoders import SIZE, build, build_subclass, close, texts


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("make", [build, build_subclass], ids=["itself", "subclass"])
@pytest.mark.parametrize("padding", [0.0, 1e3])
def test_points_of_a_line(name, make, padding):
    """States at each point, and a gradient in the start that is the sum over points, from embeddings on."""
    encoder, (embedded, mask) = make(name), texts(padding=padding)
    reader = line_reader(encoder)
    close(reader.proceed(reader.enter(embedded), mask), encoder(embedded, mask)[0])
    shares = torch.tensor([0.0, 0.3, 0.9, 1.0], dtype=torch.float64)
    target = embedded.flip(0).where(mask.unsqueeze(-1), embedded) * 2
    start = embedded.clone().requires_grad_()
    entered = reader.enter(start)
    states = reader.along(entered, (reader.enter(target) - entered).detach(), shares, mask)
    assert states.shape == (5, 4, 9, SIZE)
    weights = torch.randn(states.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    (slopes,) = torch.autograd.grad((states * weights).sum(), start)
    expected = torch.zeros_like(embedded)
    for place, share in enumerate(shares):
        point = (embedded + share * (target - embedded)).requires_grad_()
        alone = encoder(point, mask)[0]
        close(states[:, place], alone)
        expected += torch.autograd.grad((alone * weights[:, place]).sum(), point)[0]
    close(slopes[mask], expected[mask])
    if type(encoder) is BiLSTM:
        assert (slopes[~mask] == 0).all()
