"""Any model of transformers from sequences to sequences as a subject: its cross-attention by layer and head, by one hook.

Shapes: B pairs, S source positions, N target positions, V vocabulary, L layers of the decoder, A heads, D the size of a
head's values, E that of a state.
"""

import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

from attnfaith.subjects.attention_hook import Edit, Embedded, Hook, Map
from attnfaith.subjects.classifier_facts import vocabulary_size
from attnfaith.subjects.cross_checks import CrossSites, checked
from attnfaith.subjects.cross_parts import CrossParts, TargetParts, decoder_parts
from attnfaith.subjects.layer_parts import LayerParts, projected
from attnfaith.subjects.layers import Fed, Layer, Recorded
from attnfaith.subjects.parts import TOKENS_AT_ONCE
from attnfaith.subjects.protocol import SubjectError
from attnfaith.subjects.self_checks import eager
from attnfaith.subjects.sentence_batch import PairBatch
from attnfaith.subjects.sequences import OfCopies, PairEdit, SequenceSubject, taken


class _OfLayers(Edit):
    """An edit of cross-attention as one of a decoder's maps; layers: the number of a map -> that of its layer."""

    def __init__(self, layers: dict[int, int], edit: PairEdit):
        self.layers, self.edit = layers, edit

    def weights(self, number, weights):
        layer = self.layers.get(number)
        return weights if layer is None else self.edit.weights(layer, weights, slice(None))

    def values(self, number, values):
        layer = self.layers.get(number)
        return values if layer is None else self.edit.values(layer, values)


class ValuesGone(OfCopies):
    """Of each copy the values of some source positions, gone (n,S) bool, are zeros."""

    per_copy = {"gone": "S"}

    def __init__(self, gone: torch.Tensor):
        self.gone = gone

    def values(self, layer, values):
        return values.masked_fill(self.gone[:, None, :, None], 0.0)


class CrossAttention(SequenceSubject):
    """A `…ForConditionalGeneration` of transformers, or what else has an encoder and a decoder that attends to it.

    model: whenever it is read its attention is "eager", step by step, and after it as before. tokenizer: of the model, for
    `encode` and `rows`; of several languages, set to these.

    Raises SubjectError for a model without such attention, and where it cannot be trusted: the message names the check that
    failed (`attnfaith.subjects.cross_checks`).
    """

    sequence_kind = "models of transformers from sequences to sequences"

    def __init__(self, model, tokenizer=None):
        super().__init__(model, tokenizer)
        names = inspect.signature(model.forward).parameters
        self.uncached = {"use_cache": False} if "use_cache" in names else {}
        self.sites: CrossSites = checked(self)
        self.layer_of = {number: layer for layer, number in enumerate(self.sites.cross)}

    @property
    def lacks(self) -> dict[str, str]:
        """The capabilities that it has not, and why."""
        return self.sites.lacks

    @property
    def together(self) -> str:
        return self.sites.together

    @property
    def vocabulary_size(self) -> int:
        return self.sites.vocabulary

    def _factors(self) -> dict[str, object]:
        part = getattr(self.config, "encoder", None)
        named = getattr(part, "model_type", None)
        encoder = f"{self.config.model_type}({named})" if named else self.config.model_type
        return {"encoder": encoder, "alignment": "dot", "projection": "softmax", "readout": "network"}

    def vocabulary(self) -> torch.Tensor:
        """As `SequenceSubject` says."""
        try:
            return self.model.get_encoder().get_input_embeddings().weight
        except (NotImplementedError, AttributeError):
            return self.model.get_input_embeddings().weight

    def check(self, rows) -> None:
        largest, known = max(max(ids) for ids in rows["input_ids"]), vocabulary_size(self.model)
        if largest >= known:
            raise SubjectError(
                f"the tokenizer is not the model's: it gives token {largest}, and the model knows {known} tokens, from 0 on"
            )
        super().check(rows)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        with super().evaluating(), eager(self.model):
            yield

    # ---------------------------------------------------------------------------------------- reading

    def _encoded(self, batch: PairBatch, embedded=None):
        given = {name: batch[name] for name in ("input_ids", "attention_mask")}
        with ExitStack() as stack:
            stack.enter_context(eager(self.model))
            if embedded is not None:
                stack.enter_context(Embedded(self.vocabulary(), batch["input_ids"], embedded))
            return self.model.get_encoder()(**given)

    def _decoded(self, batch: PairBatch, encoded, edit: Edit | None = None, keep=lambda number: False) -> tuple:
        """Logits, and the hook that read the decoder."""
        with eager(self.model), Hook(len(batch), edit, keep) as hook:
            logits = self.model(
                encoder_outputs=encoded,
                attention_mask=batch["attention_mask"],
                decoder_input_ids=batch["decoder_input_ids"],
                **self.uncached,
            ).logits
        if hook.number != self.sites.maps:
            raise SubjectError(
                f"a target of {batch['labels'].shape[1]} positions is read by {hook.number} attentions, shorter ones by "
                f"{self.sites.maps}: this model reads long targets in pieces, and only short ones can be measured"
            )
        return logits, hook

    def _read(self, batch, edit=None, embedded=None, encoded=None) -> torch.Tensor:
        encoded = self._encoded(batch, embedded) if encoded is None else encoded
        return self._decoded(batch, encoded, None if edit is None else _OfLayers(self.layer_of, edit))[0]

    def _maps(self, batch: PairBatch) -> list[Map]:
        """The maps of cross-attention, first layer first."""
        return self._decoded(batch, self._encoded(batch), None, self.layer_of.__contains__)[1].maps

    def _weights(self, batch, edit=None, embedded=None) -> torch.Tensor:
        return torch.stack([one.weights for one in self._maps(batch)], 1)

    # ---------------------------------------------------------------------------------------- one pair

    def head_values(self, pair: PairBatch) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Of each layer, of one pair: weights (A,N,S) and the values (A,S,D) that they weigh."""
        return [(one.weights[0], one.values[0]) for one in self._maps(pair)]

    def decoder_layers(self, pair: PairBatch) -> list[Layer]:
        """The maps of the decoder with what follows them, two for each layer."""
        numbers = range(self.sites.maps)
        with Recorded(self.model, numbers, self.sites.blocks) as recorded:
            self._decoded(pair, self._encoded(pair), recorded)
        return recorded.layers

    def vectors(self, pair: PairBatch) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Of each layer, of one pair: weights (A,N,S), and what the output's projection makes of each head's values
        (A,S,E), without its bias; weighed and summed over heads they are what the source adds to the decoder's states.
        """
        crossed = [self.decoder_layers(pair)[number] for number in self.sites.cross]
        return [(one.weights[0], projected(one)) for one in crossed]

    def cross_parts(self, pair: PairBatch) -> list[CrossParts]:
        """Of each layer, of one pair: what a state after attention to the source adds up."""
        return [cross for _, cross in decoder_parts(self.decoder_layers(pair))]

    def stacked_parts(self, pair: PairBatch) -> tuple[list[LayerParts], list[tuple[TargetParts, CrossParts]]]:
        """Of one pair: what the states of the encoder's layers, and of the decoder's two blocks, add up."""
        encoder, numbers = self.model.get_encoder(), range(len(self.sites.encoder_blocks))
        with (
            eager(self.model),
            Recorded(encoder, numbers, self.sites.encoder_blocks) as recorded,
            Hook(1, recorded, lambda number: False),
        ):
            encoder(input_ids=pair["input_ids"], attention_mask=pair["attention_mask"])
        return [LayerParts(one) for one in recorded.layers], decoder_parts(self.decoder_layers(pair))

    def results_without(self, pair: PairBatch, gone: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Of each layer, of one pair: what it gives (N,E), and what it gives (K,N,E) where the values of source positions
        gone (K,S) bool are zeros in all heads and everything that the layer is given is as it was.
        """
        crossed = [self.decoder_layers(pair)[number] for number in self.sites.cross]
        states, encoded = [one.state[0] for one in crossed], self._encoded(pair)
        others: list[list[torch.Tensor]] = [[] for _ in crossed]
        for some in gone.split(max(1, TOKENS_AT_ONCE // pair["labels"].shape[1])):
            copies = torch.zeros(len(some), dtype=torch.long, device=self.device)
            with Fed(self.model, self.sites.blocks, states) as fed:
                self._decoded(pair.take(copies), taken(encoded, copies, 1), _OfLayers(self.layer_of, ValuesGone(some)))
            for layer, made in zip(others, fed.results, strict=True):
                layer.append(made)
        return [(one.result[0], torch.cat(made)) for one, made in zip(crossed, others, strict=True)]
