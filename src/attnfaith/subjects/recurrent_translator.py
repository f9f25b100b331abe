"""This package's recurrent translators as subjects: one layer, one head, whatever projection makes the weights.

Attention is read and edited where the decoder makes it, step by step (Bahdanau) or of all steps at once (Luong), so that
what follows an edited step is computed anew.

Shapes: B pairs, S source positions, N target positions, H hidden.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch

from attnfaith.subjects.attention import Edit, Embedded
from attnfaith.subjects.pairs import PairBatch
from attnfaith.subjects.protocol import SubjectError
from attnfaith.subjects.translator import SequenceSubject


@contextmanager
def attended(decoder, edit: Edit | None = None) -> Iterator[list[torch.Tensor]]:
    """Within one forward pass, the decoder's attention is read, and edited; the list holds its weights, some rows each."""
    edit, attend, weights = edit or Edit(), decoder.attend, []

    def edited(keys, query, hidden, mask):
        own = attend(keys, query, hidden, mask)
        rows = own.unsqueeze(1) if own.dim() == 2 else own  # of one step, or of all
        start = sum(row.shape[2] for row in weights)
        weights.append(edit.weights(0, rows.unsqueeze(1), slice(start, start + rows.shape[1])))
        return weights[-1][:, 0, 0] if own.dim() == 2 else weights[-1][:, 0]

    decoder.attend = edited
    try:
        yield weights
    finally:
        del decoder.attend


class RecurrentAttention(SequenceSubject):
    """An `AttentionSeq2SeqForConditionalGeneration`.

    Raises SubjectError for one without attention.
    """

    kind = "recurrent translators of this package"

    def __init__(self, model, tokenizer=None):
        super().__init__(model, tokenizer)
        if not self.config.attends:
            raise SubjectError("a model with projection='none' has no attention: its decoder knows the source by one state")
        self.lacks = {"stacked parts": "it is recurrent: its states are no sums over positions"}

    @property
    def vocabulary_size(self) -> int:
        return self.config.vocab_size

    def identity(self) -> dict[str, object]:
        names = ("encoder", "alignment", "score_scale", "projection", "projection_parameter")
        parts = {name: getattr(self.config, name) for name in names}
        return super().identity() | parts | {"readout": self.config.recurrence}

    # ---------------------------------------------------------------------------------------- reading

    def _encoded(self, batch: PairBatch, embedded=None):
        ids = batch["input_ids"]
        with nullcontext() if embedded is None else Embedded(self.vocabulary(), ids, embedded):
            return self.model.get_encoder()(ids, batch["attention_mask"])

    def logits(self, batch, edit=None, embedded=None, encoded=None) -> torch.Tensor:
        encoded, inputs = self._encoded(batch, embedded) if encoded is None else encoded, self.model_inputs(batch)
        del inputs["input_ids"]
        with nullcontext() if edit is None else attended(self.model.decoder, edit):
            return self.model(encoder_outputs=encoded, **inputs).logits

    def _weights(self, batch) -> torch.Tensor:
        with attended(self.model.decoder) as weights:
            self.logits(batch)
        return torch.cat(weights, 2).unsqueeze(1)

    # ---------------------------------------------------------------------------------------- one pair

    def head_values(self, pair: PairBatch) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The values are the encoder's states."""
        return [(self.attention(pair)[0, 0], self._encoded(pair).last_hidden_state)]

    def vectors(self, pair: PairBatch) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The vectors are the encoder's states, projected by the output layer."""
        ((weights, hidden),) = self.head_values(pair)
        return [(weights, hidden @ self.model.read_out.context.weight.T)]

    def results_without(self, pair: PairBatch, gone: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The output layer's states at each step (N,H), and those (K,N,H) where the encoder's states at the source positions
        gone (K,S) bool are zeros in the sum; the weights and the steps before are as they were. Of one pair.
        """
        model, ((weights, hidden),) = self.model, self.head_values(pair)
        outputs = model(**self.model_inputs(pair), output_hidden_states=True)
        words, states = (layer[0] for layer in outputs.decoder_hidden_states)
        before = torch.cat([model.decoder.start(self._encoded(pair).pooler_output), states[:-1]])
        stays = torch.cat([torch.zeros_like(gone[:1]), gone]).logical_not().to(hidden.dtype)

        def read(context: torch.Tensor) -> torch.Tensor:
            after = states
            if self.config.recurrence == "bahdanau":  # the context enters the step, too
                after = model.decoder.cell(torch.cat([words, context], 1), before)
            layer = model.read_out
            return (layer.state(after) + layer.word(words) + layer.context(context)).tanh()

        own, *less = [read((weights[0] * staying) @ hidden[0]) for staying in stays]
        return [(own, torch.stack(less))]


class WithoutAttention(RecurrentAttention):
    """An `AttentionSeq2SeqForConditionalGeneration` with projection='none', the baseline of others.

    `attnfaith.measure` refuses such a model, for it asks whether attention aligns; a run of a recipe measures it so that its
    predictions stand beside those of models with attention.
    """

    kind = "recurrent translators of this package without attention"
    can = frozenset({"source embeddings"})

    def __init__(self, model, tokenizer=None):
        SequenceSubject.__init__(self, model, tokenizer)
