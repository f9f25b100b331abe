"""States along a line of embeddings, at many points of it, with the gradient at the start that all points add up to."""

import torch

from attnfaith.importance._fast.lstm_lines import LSTMLine
from attnfaith.models.encoders import Average, BiLSTM, Transformer
from attnfaith.subjects import Batch, Pooled


class LineReader:
    """How an encoder reads texts along lines: the definition, each point read as a text of its own."""

    def __init__(self, encoder):
        self.encoder = encoder

    def enter(self, embedded: torch.Tensor) -> torch.Tensor:
        """(B,T,E) to (B,T,D): how tokens are taken in, each by itself and affine in its embedding. Here as they are.

        A line of embeddings is one of what is entered.
        """
        return embedded

    def proceed(self, entered: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """States (B,T,H) from what `enter` gives: those of the encoder."""
        return self.encoder(entered, mask)[0]

    def along(self, start: torch.Tensor, change: torch.Tensor, shares: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """States (B,P,T,H) at P points start + share * change of a line of what `enter` gives, for each text.

        start and change (B,T,D), shares (P,), mask (B,T). Gradients go to start, where they are those of all points added
        up; not to change and shares.
        """
        points = start.unsqueeze(1) + shares[:, None, None] * change.unsqueeze(1)
        states = self.proceed(points.flatten(0, 1), mask.repeat_interleave(len(shares), 0))
        return states.unflatten(0, points.shape[:2])


class _EnteredOnce(LineReader):
    """An encoder whose forward pass is `proceed(enter(...))`: both ends are entered once, not each point."""

    def enter(self, embedded):
        """As defined in the base class."""
        return self.encoder.enter(embedded)

    def proceed(self, entered, mask):
        """As defined in the base class."""
        return self.encoder.proceed(entered, mask)


class _LSTMLine(LineReader):
    """Both LSTMs of a bidirectional encoder at once, without making the points."""

    def enter(self, embedded):
        """As defined in the base class: the part of the gates, of one direction and of the other, that a token has."""
        weights = torch.cat([lstm.weight_ih_l0 for lstm in self.encoder.directions])
        biases = torch.cat([lstm.bias_ih_l0 + lstm.bias_hh_l0 for lstm in self.encoder.directions])
        return torch.nn.functional.linear(embedded, weights, biases)

    def proceed(self, entered, mask):
        """As defined in the base class: one point of a line."""
        return self.along(entered, torch.zeros_like(entered), entered.new_zeros(1), mask)[:, 0]

    def along(self, start, change, shares, mask):
        """As defined in the base class: what enters the gates is added as points are reached."""
        return LSTMLine.apply(start, change, shares, mask, *(lstm.weight_hh_l0 for lstm in self.encoder.directions))


READERS = {BiLSTM: _LSTMLine, Transformer: _EnteredOnce, Average: _EnteredOnce}


def line_reader(encoder) -> LineReader:
    """How this encoder is followed along lines."""
    return READERS.get(type(encoder), LineReader)(encoder)


class EnteredLine:
    """Lines of the embeddings of a batch, for a classifier of tokens: `enter` takes in ends, `states` reads points."""

    def __init__(self, subject: Pooled, batch: Batch):
        model = subject.classifier.model
        self.reader = line_reader(model.encoder)
        self.enter = self.reader.enter
        self.present, _, _ = model.text_masks(batch["attention_mask"], batch.get("token_type_ids"))

    def states(self, start, change, shares, rows) -> torch.Tensor:
        """States (n,P,l,H) of the instances `rows` (n,) at start + share * change: (n,l,D), of what `enter` gives."""
        return self.reader.along(start, change, shares, self.present[rows, : start.shape[1]])
