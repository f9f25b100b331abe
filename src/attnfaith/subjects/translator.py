"""A model from sequences to sequences, whose decoder attends to its encoder, as a subject.

It is read teacher-forced: the target is given, and the model predicts each of its tokens from those before. Models of
transformers are read, and edited, by one hook; recurrent ones of this package where the decoder makes attention, step by
step (Bahdanau) or of all steps at once (Luong), so that what follows an edited step is computed anew. Target position i
reads what stands before the i-th of the target's tokens and predicts that token; so token i is read at position i + 1.

Shapes: B pairs, S source positions, N target positions, T source words, G target words, V vocabulary, L layers of the
decoder, A heads, D the size of a head's values, E that of a state, H hidden, n copies of pairs.
"""

import inspect
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property

import numpy as np
import torch

from attnfaith.data.collation import pad_batch
from attnfaith.data.in_memory import texts_in_memory
from attnfaith.data.pair_encoding import MARKER, UNCOUNTED, encode_for_model
from attnfaith.subjects import base
from attnfaith.subjects.attention import Edit, Embedded, Hook, Map, Read, widened
from attnfaith.subjects.checks import Hooked, Pairs, checked
from attnfaith.subjects.layers import LayerParts, Recorded, decoder_parts, fed, instances, projected, replaced
from attnfaith.subjects.protocol import PAIR_CAPABILITIES, TOKENS_AT_ONCE, Batch, SubjectError


NUMBERS_AT_ONCE = 2**24
"""The most logits of copies that are read together."""


class PairBatch(Batch):
    """input_ids, attention_mask, source_words (B,S); labels, target_words, decoder_input_ids (B,N); the list instance_id.

    source_words and target_words: the number of the word that a position, or a label, belongs to; -1 for markers and
    padding. Labels of padding are -100.
    """

    axes = {
        **dict.fromkeys(("input_ids", "attention_mask", "source_words"), "S"),
        **dict.fromkeys(("labels", "target_words", "decoder_input_ids"), "N"),
    }
    lists = ("instance_id",)

    def alone(self, row: int) -> "PairBatch":
        """One pair, without padding."""
        sources, targets = self.lengths
        return self.take(torch.tensor([row], device=self["labels"].device), int(sources[row]), int(targets[row]))

    @property
    def lengths(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Source and target positions of each pair, (B,) each."""
        return self["attention_mask"].sum(1), (self["labels"] != UNCOUNTED).sum(1)

    @property
    def words(self) -> tuple[list[int], list[int]]:
        """Source and target words of each pair."""
        return tuple((self[name].amax(1) + 1).tolist() for name in ("source_words", "target_words"))

    def __len__(self) -> int:
        return len(self["instance_id"])


class SequenceSubject(base.Subject):
    """A model from sequences to sequences, as measures see it.

    Subclasses define logits(batch, edit, embedded, encoded), (B,N,V), and maps(batch): for each layer the weights (B,A,N,S)
    of cross-attention as the model uses them, 0 on padding, and the values (B,A,S,D) that they weigh.
    """

    can = frozenset(PAIR_CAPABILITIES)
    level = "word"
    class_names = ()
    numbers: Sequence[int]
    """The numbers of the maps of its layers, for edits."""
    head: torch.nn.Module | None = None
    """The module that makes the logits of a place from the decoder's state there alone; None without such a module."""
    vocabulary_size: int
    """The number of words that the decoder chooses from."""

    def identity(self) -> dict[str, object]:
        return {"model": "sequence_to_sequence", "tokenizer_digest": self.tokenizer_digest()}

    def rows(self, pairs):
        """Encoded pairs from a data set with instance_id, source, target and perhaps links, see `encode_for_model`."""
        limit = base.position_limit(self)
        rows = encode_for_model(pairs, self.own_tokenizer(), max_source=limit, max_target=limit, end=self.end_token_id)
        self.check(rows)
        return rows

    def check(self, rows) -> None:
        """Raise SubjectError for tokens that the model does not know."""
        base.check_ids(rows["input_ids"], min(len(self.vocabulary()), base.vocabulary_size(self.model)))
        base.check_ids(rows["labels"], self.vocabulary_size)

    def encode(self, pairs: Sequence[tuple[str, str]]) -> PairBatch:
        """A batch from (source, target)."""
        return self.collate(self.rows(texts_in_memory(pairs, ("source", "target"))).to_list())

    def collate(self, rows: Sequence[Mapping]) -> PairBatch:
        padding = {"source_words": MARKER, "labels": UNCOUNTED, "target_words": MARKER}
        padded = pad_batch(rows, self.pad_token_id or 0, padding=padding)
        batch = PairBatch({name: values.to(self.device) for name, values in padded.items()})
        batch["instance_id"] = [row["instance_id"] for row in rows]
        inputs = getattr(self.model, "prepare_decoder_input_ids_from_labels", self._shifted)(labels=batch["labels"])
        batch["decoder_input_ids"] = inputs.masked_fill(inputs == UNCOUNTED, self.pad_token_id or 0)
        return batch

    def _shifted(self, labels: torch.Tensor) -> torch.Tensor:
        """A start token, and the labels (B,N) one place later. Raises SubjectError where no start token is known."""
        starts = [self.setting(name) for name in ("decoder_start_token_id", "bos_token_id")]
        start = next((number for number in starts if number is not None), None)
        if start is None:
            raise SubjectError(f"{type(self.model).__name__} has no decoder_start_token_id: set the configuration's")
        return torch.cat([torch.full_like(labels[:, :1], start), labels[:, :-1]], 1)

    def model_inputs(self, batch: PairBatch) -> dict[str, torch.Tensor]:
        """The arguments of the model: the ids also where the encoder is done, since FSMT's decoder looks ahead."""
        return {name: batch[name] for name in ("input_ids", "attention_mask", "decoder_input_ids")}

    def encoded(self, batch: PairBatch, embedded: torch.Tensor | None = None):
        """The output of the encoder."""
        instead = nullcontext() if embedded is None else Embedded(self.vocabulary(), batch["input_ids"], embedded)
        with base.configured(self.configurations, **base.EAGER), instead:
            return self.model.get_encoder()(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])

    def log_probs(self, batch: PairBatch, embedded: torch.Tensor | None = None) -> torch.Tensor:
        """(B,N) in float64: the log probability of each target token; 0 on padding. Gradients reach embedded (B,S,E)."""
        return self._label_log_probs(batch, embedded, batch["labels"])

    def log_probs_of(self, batch: PairBatch, words: torch.Tensor, embedded: torch.Tensor) -> torch.Tensor:
        """(B,) in float64: the log probability of the target word `words` (B,) of each pair. Gradients reach embedded."""
        owned = batch["target_words"] == words.unsqueeze(1)
        labels, places = torch.where(owned, batch["labels"], UNCOUNTED), None
        if self.head is not None:  # it makes the logits of these words' places alone
            places = owned.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, : int(owned.sum(1).max())]
            labels = labels.gather(1, places)
        return self._label_log_probs(batch, embedded, labels, places).sum(1)

    def _label_log_probs(self, batch: PairBatch, embedded, labels: torch.Tensor, places=None) -> torch.Tensor:
        parts = []
        for some in self._at_once(torch.arange(len(batch), device=self.device), labels):
            with nullcontext() if places is None else at_places(self.head, places[some]):
                logits = self.logits(batch.take(some), embedded=None if embedded is None else embedded[some])
            parts.append(label_log_probs(logits, labels[some]))
        return torch.cat(parts)

    def _at_once(self, copies: torch.Tensor, labels: torch.Tensor) -> Sequence[torch.Tensor]:
        """Numbers (n,) of copies, in as many as are read together with the logits of labels (B,N)."""
        return copies.split(max(1, NUMBERS_AT_ONCE // (labels.shape[1] * self.vocabulary_size))) if len(copies) else ()

    @torch.no_grad()
    def attention(self, batch: PairBatch) -> torch.Tensor:
        """(B,L,A,N,S): the weights of cross-attention; kept in the batch."""
        return batch.once("attention", self, lambda: torch.stack([weights for weights, _ in self.maps(batch)], 1))

    def head_values(self, pair: PairBatch) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """For each layer, of one pair: weights (A,N,S) and the values (A,S,D) that they weigh."""
        return [(weights[0], values[0]) for weights, values in self.maps(pair)]

    @torch.no_grad()
    def edited(self, batch: PairBatch, owner: torch.Tensor, edit: Edit) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """For copies `owner` (n,) of pairs, some at a time: their numbers (m,), and their logits (m,N,V) under an edit."""
        for some in self._at_once(torch.arange(len(owner), device=self.device), batch["labels"]):
            encoded = batch.once("encoded", self, lambda: self.encoded(batch))
            copied = instances(encoded, owner[some], len(batch))
            yield some, self.logits(batch.take(owner[some]), edit.take(some), encoded=copied)

    def without(self, batch: PairBatch, owner: torch.Tensor, gone: torch.Tensor) -> PairBatch:
        """Copies `owner` (n,) of pairs without the source positions `gone` (n,S) bool: what follows them moves up."""
        copies = batch.take(owner)
        stays = (copies["attention_mask"] == 1) & ~gone
        order = (~stays).long().argsort(dim=1, stable=True)
        for name, filling in (("input_ids", self.pad_token_id or 0), ("source_words", -1), ("attention_mask", 0)):
            copies[name] = torch.where(stays.gather(1, order), copies[name].gather(1, order), filling)
        return copies


class CrossAttention(Hooked, SequenceSubject):
    """A `…ForConditionalGeneration` of transformers, or what else has an encoder and a decoder that attends to it.

    model: whenever it is read its attention is "eager", step by step, and after it as before. tokenizer: of the model, for
    `encode` and `rows`; of several languages, set to these.

    Raises SubjectError for a model without such attention, and where it cannot be trusted: the message names the check that
    failed (`attnfaith.subjects.checks`).
    """

    kind = "models of transformers from sequences to sequences"

    def __init__(self, model, tokenizer=None):
        super().__init__(model, tokenizer)
        names = inspect.signature(model.forward).parameters
        self.uncached = {"use_cache": False} if "use_cache" in names else {}
        self.sites = checked(Pairs(self))
        self.numbers, self.lacks, self.vocabulary_size = self.sites.layers, self.sites.lacks, self.sites.vocabulary

    def identity(self) -> dict[str, object]:
        name = getattr(getattr(self.config, "encoder", None), "model_type", None)
        encoder = f"{self.config.model_type}({name})" if name else self.config.model_type
        return super().identity() | {"encoder": encoder, "alignment": "dot", "projection": "softmax", "readout": "network"}

    def vocabulary(self) -> torch.Tensor:
        try:
            return self.model.get_encoder().get_input_embeddings().weight
        except (NotImplementedError, AttributeError):
            return self.model.get_input_embeddings().weight

    def model_inputs(self, batch):
        return super().model_inputs(batch) | self.uncached

    def run(self, batch, edit: Edit | None = None, keep: Collection[int] | None = None, encoded=None) -> Read:
        """What the hook read of the decoder alone."""
        encoded = self.encoded(batch) if encoded is None else encoded
        return self.hooked({"encoder_outputs": encoded, **self.model_inputs(batch)}, edit, keep)

    def logits(self, batch, edit=None, embedded=None, encoded=None) -> torch.Tensor:
        encoded = self.encoded(batch, embedded) if encoded is None else encoded
        return self.run(batch, edit, (), encoded).logits

    def maps(self, batch) -> list[tuple[torch.Tensor, torch.Tensor]]:
        maps = self.run(batch, keep=self.numbers).maps
        return [(widened(attention_map.weights), widened(attention_map.values)) for attention_map in maps]

    @cached_property
    def head(self):
        head, pair = self.model.get_output_embeddings(), Pairs(self).inputs[0]
        if head is None:
            return None
        places = torch.tensor([[1, 0]], device=self.device)
        try:
            with torch.no_grad():
                logits = self.logits(pair)
                with at_places(head, places):
                    some = self.logits(pair)
        except (RuntimeError, ValueError, IndexError):  # what follows the head wants all places
            return None
        same = some.shape[:2] == places.shape and torch.allclose(some, logits[:, [1, 0]], rtol=1e-4, atol=1e-5)
        return head if same else None

    def vectors(self, pair: PairBatch) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """For each layer, of one pair: weights (A,N,S), and the values of each head after the output projection (A,S,E),
        without its bias; weighed and summed over heads they are the source's part in the decoder's states.
        """
        layers = self.recorded(pair, self.sites.blocks)
        return [(widened(layers[number].weights[0]), projected(layers[number])) for number in self.numbers]

    def stacked_parts(self, pair: PairBatch) -> tuple[list[LayerParts], list[tuple[LayerParts, LayerParts]]]:
        """The states of the encoder's layers, and of the decoder's two blocks, as sums; of one pair."""
        encoder = [LayerParts(layer) for layer in self.recorded_encoder(pair, self.sites.encoder_blocks)]
        return encoder, decoder_parts(self.recorded(pair, self.sites.blocks))

    def recorded_encoder(self, pair: PairBatch, blocks: Sequence[str]) -> list[Map]:
        """The maps of the encoder as `recorded` has those of the decoder."""
        with Recorded(self.model.get_encoder(), blocks) as recorded, Hook(1, recorded, ()):
            self.encoded(pair)
        return recorded.layers

    def results_without(self, pair: PairBatch, gone: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """For each layer, of one pair: its result (N,E), and its results (K,N,E) where the values of the source positions
        gone (K,S) bool are zeros in all heads; the inputs of the layer are as they were.
        """
        layers, encoded = self.recorded(pair, self.sites.blocks), self.encoded(pair)
        crossed = [layers[number] for number in self.numbers]
        with fed(self.model, self.sites.blocks, [layer.state[0] for layer in crossed]) as by_layer:
            for some in gone.split(max(1, TOKENS_AT_ONCE // pair["labels"].shape[1])):
                copies = torch.zeros(len(some), dtype=torch.long, device=self.device)

                def zeroed(number, values, mask=some[:, None, :, None]):
                    return values.masked_fill(mask, 0.0) if number in self.numbers else values

                self.run(pair.take(copies), Edit(values=zeroed), (), instances(encoded, copies, 1))
        return [(layer.result[0], results) for layer, results in zip(crossed, by_layer, strict=True)]


def at_places(module: torch.nn.Module, places: torch.Tensor):
    """Within, a module reads the states (B,N,E) at `places` (B,k) alone."""
    return module.register_forward_pre_hook(
        lambda module, inputs: (inputs[0].gather(1, places.unsqueeze(2).expand(-1, -1, inputs[0].shape[2])),)
    )


def label_log_probs(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """(B,N) in float64: the log probabilities of labels, 0 without a label."""
    chosen = logits.gather(2, labels.clamp(min=0).unsqueeze(2)).squeeze(2).double()
    return torch.where(labels == UNCOUNTED, 0.0, chosen - logits.logsumexp(2).double())


@contextmanager
def attended(decoder, edit: Edit | None = None) -> Iterator[list[torch.Tensor]]:
    """Within one forward pass, the decoder's attention is read, and edited; the list holds its weights, some rows each."""
    edit, weights = edit or Edit(), []

    def edited(attend, keys, query, hidden, mask):
        own = attend(keys, query, hidden, mask)
        rows = own.unsqueeze(1) if own.dim() == 2 else own  # of one step, or of all
        start = sum(row.shape[2] for row in weights)
        weights.append(edit.weights(0, rows.unsqueeze(1), slice(start, start + rows.shape[1])))
        return weights[-1][:, 0, 0] if own.dim() == 2 else weights[-1][:, 0]

    with replaced([decoder], "attend", edited):
        yield weights


class RecurrentAttention(SequenceSubject):
    """An `AttentionSeq2SeqForConditionalGeneration`; one without attention has its predictions and their gradients alone."""

    kind = "recurrent translators of this package"
    numbers = (0,)

    def __init__(self, model, tokenizer=None):
        super().__init__(model, tokenizer)
        self.configurations, self.vocabulary_size = base.configurations(model), model.config.vocab_size
        self.lacks = {"stacked parts": "it is recurrent: its states are no sums over positions"}
        if not self.config.attends:
            why = "a model with projection='none' has no attention: its decoder knows the source by one state"
            self.lacks = dict.fromkeys(self.can - {"source embeddings"}, why)

    def identity(self) -> dict[str, object]:
        names = ("encoder", "alignment", "projection", "projection_parameter")
        parts = {name: getattr(self.config, name) for name in names}
        return super().identity() | parts | {"readout": self.config.recurrence}

    def logits(self, batch, edit=None, embedded=None, encoded=None) -> torch.Tensor:
        encoded, inputs = self.encoded(batch, embedded) if encoded is None else encoded, self.model_inputs(batch)
        del inputs["input_ids"]
        with nullcontext() if edit is None else attended(self.model.decoder, edit):
            return self.model(encoder_outputs=encoded, **inputs).logits

    def maps(self, batch) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The values are the encoder's states."""
        encoded = self.encoded(batch)
        with attended(self.model.decoder) as weights:
            self.logits(batch, encoded=encoded)
        return [(torch.cat(weights, 2), encoded.last_hidden_state.unsqueeze(1))]

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
        before = torch.cat([model.decoder.start(self.encoded(pair).pooler_output), states[:-1]])
        stays = torch.cat([torch.zeros_like(gone[:1]), gone]).logical_not().to(hidden.dtype)

        def read(context: torch.Tensor) -> torch.Tensor:
            after = states
            if self.config.recurrence == "bahdanau":  # the context enters the step, too
                after = model.decoder.cell(torch.cat([words, context], 1), before)
            layer = model.read_out
            return (layer.state(after) + layer.word(words) + layer.context(context)).tanh()

        own, *less = [read((weights[0] * staying) @ hidden[0]) for staying in stays]
        return [(own, torch.stack(less))]


def of_sources(batch: PairBatch, row: int) -> torch.Tensor:
    """(S,T) in float64: 1 where a source position belongs to a word."""
    return _one_hot(batch["source_words"][row], batch.words[0][row])


def of_targets(batch: PairBatch, row: int) -> torch.Tensor:
    """(2,G,N) in float64: the share of a row in the mean over a target word's tokens; first rows that predict the tokens,
    then rows that read them.
    """
    owned = _one_hot(batch["target_words"][row], batch.words[1][row]).T
    predicting = owned / owned.sum(1, keepdim=True)
    return torch.stack([predicting, torch.nn.functional.pad(predicting[:, :-1], (1, 0))])


def _one_hot(words: torch.Tensor, count: int) -> torch.Tensor:
    return (words.unsqueeze(1) == torch.arange(count, device=words.device)).double()


def by_words(batch: PairBatch, values: torch.Tensor | Sequence[torch.Tensor]) -> list[np.ndarray]:
    """Values (B,...,N,S), or one (...,N,S) a pair, as one array (...,2,G,T) a pair: sums over the tokens of a source word,
    means over those of a target word, in float32.
    """
    arrays = []
    for row, numbers in enumerate(values):
        rows, columns = of_targets(batch, row), of_sources(batch, row)
        arrays.append(numpy_of(torch.einsum("rgn,...ns,st->...rgt", rows, numbers.double(), columns)))
    return arrays


def by_target_words(batch: PairBatch, values: torch.Tensor) -> list[np.ndarray]:
    """Values (B,...,N) of the rows that predict tokens as one array (...,G) a pair: means over a target word's tokens."""
    return [numpy_of(numbers.double() @ of_targets(batch, row)[0].T) for row, numbers in enumerate(values)]


def numpy_of(values: torch.Tensor) -> np.ndarray:
    """Values as an array of float32."""
    return values.float().cpu().numpy()


def word_sums(batch: PairBatch, log_probs: torch.Tensor) -> torch.Tensor:
    """(B,G) in float64: the log probabilities (B,N) of a target word's tokens, summed; 0 behind the last word. Or (n,G) of n
    copies (n,N) of a batch of one pair.
    """
    count = max(batch.words[1])
    owned = batch["target_words"].unsqueeze(1) == torch.arange(count, device=log_probs.device).unsqueeze(1)
    return torch.where(owned, log_probs.double().unsqueeze(1), 0.0).sum(2)
