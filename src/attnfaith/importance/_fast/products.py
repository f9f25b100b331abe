"""How far something that reads an encoder's states would change were a token's embedding left out, if it were linear.

Shapes: B instances, T tokens, E embedding, H hidden, D units of one direction.
"""

import torch

from attnfaith.importance._fast.entering import entered
from attnfaith.importance._fast.lstm_deletion import gate_scale
from attnfaith.models.encoders import BiLSTM
from attnfaith.subjects import Batch, Pooled


def products_of_inputs(subject: Pooled, batch: Batch, slopes: torch.Tensor) -> torch.Tensor:
    """`input_products` of a batch of a classifier of tokens. No other way leads from a token to the prediction."""
    model = subject.classifier.model
    present, _, _ = model.text_masks(batch["attention_mask"], batch.get("token_type_ids"))
    return input_products(model.encoder, entered(subject, batch), present, slopes)


def input_products(encoder, entered, mask, slopes) -> torch.Tensor:
    """x . df/dx (B,T) of embeddings x, by slopes df/dh (B,T,H) of states h; outside of mask it means nothing.

    entered: what `entering.enter` makes of the texts. mask (B,T): the tokens that are read.
    """
    return ENGINES.get(type(encoder), define_products)(encoder, entered, mask, slopes)


def define_products(encoder, embedded, mask, slopes) -> torch.Tensor:
    """The definition: encoded once more, and a backward pass."""
    # the pass back may come in eval mode, which cuDNN refuses
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        inputs = embedded.detach().requires_grad_()
        again, _ = encoder(inputs, mask)
        (back,) = torch.autograd.grad(again, inputs, slopes)
    return (inputs.detach() * back).sum(-1, dtype=torch.float64)


@torch.no_grad()
def _lstm_products(encoder, entered, mask, slopes) -> torch.Tensor:
    """Both LSTMs at once, and no gradient of an embedding: x . W' d is (W x) . d, and W x is what entered the gates.

    The gates of all places are there, so that step by step only the memory is made again. A text has its padding behind it
    for either LSTM, and no slope there.
    """
    slopes = entered.as_read((slopes * mask.unsqueeze(-1)).to(entered.recalled.dtype))  # (2,T,B,D)
    _, length, texts, size = slopes.shape
    # the gates come scaled for one sigmoid, and so do what enters them and the slopes of their scaled values
    recurrent = torch.stack([lstm.weight_hh_l0 * gate_scale(lstm).unsqueeze(1) for lstm in encoder.directions])  # (2,4D,D)
    recurrent = recurrent.to(slopes.dtype)
    gates = entered.brought + entered.recalled
    enter, keep, candidate, leave = gates.sigmoid_().split(size, -1)
    factors = torch.addcmul(gates, gates, gates, value=-1)  # s - s^2, half of the slope of g
    candidate.mul_(2).sub_(1)
    memory = torch.zeros_like(slopes[:, :1]).repeat(1, length + 1, 1, 1)
    torch.mul(enter, candidate, out=memory[:, 1:])
    for position in range(1, length):
        memory[:, position + 1].addcmul_(keep[:, position], memory[:, position])
    tanh = memory[:, 1:].mul(2).sigmoid_().mul_(2).sub_(1)
    into = torch.addcmul(leave, leave * tanh, tanh, value=-1)  # dh/dc
    of_enter, of_keep, of_candidate, of_leave = factors.split(size, -1)
    of_enter.mul_(candidate)
    of_keep.mul_(memory[:, :-1])
    of_candidate.mul_(enter).mul_(2)
    of_leave.mul_(tanh)
    by_gate, of_memory = factors.unflatten(-1, (4, size)), torch.zeros_like(slopes[:, 0])
    for position in range(length - 1, -1, -1):
        of_state, back = slopes[:, position], by_gate[:, position]
        if position < length - 1:
            of_state.baddbmm_(factors[:, position + 1], recurrent)
        of_memory.addcmul_(of_state, into[:, position])
        back[..., :3, :].mul_(of_memory.unsqueeze(2))
        back[..., 3, :].mul_(of_state)
        of_memory.mul_(keep[:, position])
    products = slopes.new_zeros(mask.shape)
    for place, read in zip(entered.places, factors.mul_(entered.brought).sum(-1), strict=True):
        products[entered.texts, place] += read
    return products


ENGINES = {BiLSTM: _lstm_products}
