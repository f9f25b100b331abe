"""A model from sequences to sequences, whose decoder attends to its encoder, as a subject.

It is read teacher-forced: the target is given, and the model predicts each of its tokens from those before. Models of
transformers are read, and edited, by one hook; recurrent ones of this package where the decoder makes attention, step by
step (Bahdanau) or of all steps at once (Luong), so that what follows an edited step is computed anew.

Shapes: B pairs, S source positions, N target positions, V vocabulary, L layers of the decoder, A heads, D the size of a
head's values, E that of a state, H hidden, n copies of pairs.
"""

import inspect
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property

import torch

from attnfaith.data.pair_encoding import MARKER, encode_for_model
from attnfaith.data.tokenization import texts_in_memory
from attnfaith.subjects import base
from attnfaith.subjects.attention import Edit, Embedded, Hook, Map, widened
from attnfaith.subjects.checks import Pairs, Sites, checked
from attnfaith.subjects.layers import Fed, LayerParts, Recorded, decoder_parts, instances, projected
from attnfaith.subjects.pairs import UNCOUNTED, PairBatch
from attnfaith.subjects.protocol import PAIR_CAPABILITIES, SubjectError
from attnfaith.subjects.text_parts import TOKENS_AT_ONCE


NUMBERS_AT_ONCE = 2**24
"""The most logits of copies that are read together."""


class SequenceSubject(base.ModelSubject):
    """A model from sequences to sequences, as measures see it.

    Subclasses define logits(batch, edit, embedded, encoded), (B,N,V), and _weights(batch), (B,L,A,N,S).
    """

    can = frozenset(PAIR_CAPABILITIES)
    level = "word"
    class_names = ()
    head: torch.nn.Module | None = None
    """The module that makes the logits of a place from the decoder's state there alone; None without such a module."""
    vocabulary_size: int
    """The number of words that the decoder chooses from."""

    def __init__(self, model, tokenizer=None):
        super().__init__(model, tokenizer)
        self.configurations = base.configurations(model)

    def identity(self) -> dict[str, object]:
        """The fields of an identity that the model decides; subclasses add those of its parts."""
        return {"model": "sequence_to_sequence", "tokenizer_digest": self.tokenizer_digest()}

    # ---------------------------------------------------------------------------------------- pairs

    def rows(self, pairs):
        """Encoded pairs from a data set with instance_id, source, target and perhaps links, see `encode_for_model`.

        Raises SubjectError without a tokenizer, and for tokens that the model does not know; DatasetError for pairs that
        cannot be encoded.
        """
        if self.tokenizer is None:
            raise self.without_tokenizer()
        limit = base.position_limit(self)
        rows = encode_for_model(pairs, self.tokenizer, max_source=limit, max_target=limit, end=self.end_token_id)
        self.check(rows)
        return rows

    def check(self, rows) -> None:
        """Raise SubjectError for tokens that the model does not know."""
        base.check_ids(rows["input_ids"], min(len(self.vocabulary()), base.vocabulary_size(self.model)))
        base.check_ids(rows["labels"], self.vocabulary_size)

    def encode(self, pairs: Sequence[tuple[str, str]]) -> PairBatch:
        """A batch from (source, target)."""
        texts = texts_in_memory(pairs).rename_columns({"text": "source", "text_pair": "target"})
        return self.collate(list(self.rows(texts)))

    def collate(self, rows: Sequence[Mapping]) -> PairBatch:
        """A batch from rows of `rows`, on the model's device."""
        fillings = {"input_ids": self.pad_token_id or 0, "source_words": MARKER, "labels": UNCOUNTED, "target_words": MARKER}
        batch = PairBatch(instance_id=[row["instance_id"] for row in rows])
        for name, filling in fillings.items():
            values = [torch.tensor(row[name], dtype=torch.long, device=self.device) for row in rows]
            batch[name] = torch.nn.utils.rnn.pad_sequence(values, batch_first=True, padding_value=filling)
        lengths = torch.tensor([len(row["input_ids"]) for row in rows], device=self.device).unsqueeze(1)
        batch["attention_mask"] = (torch.arange(batch["input_ids"].shape[1], device=self.device) < lengths).long()
        batch["decoder_input_ids"] = self.shifted(batch["labels"])
        return batch

    def shifted(self, labels: torch.Tensor) -> torch.Tensor:
        """The ids that the decoder reads (B,N): a start token, and the labels (B,N) one place later.

        Raises SubjectError for a model whose start token is not known.
        """
        shift = getattr(self.model, "prepare_decoder_input_ids_from_labels", None)
        if shift is not None:
            inputs = shift(labels=labels)
        else:
            start = self.setting("decoder_start_token_id")
            start = self.setting("bos_token_id") if start is None else start
            if start is None:
                raise SubjectError(f"{type(self.model).__name__} has no decoder_start_token_id: set the configuration's")
            inputs = torch.cat([torch.full_like(labels[:, :1], start), labels[:, :-1]], 1)
        return inputs.masked_fill(inputs == UNCOUNTED, self.pad_token_id or 0)

    # ---------------------------------------------------------------------------------------- reading

    def model_inputs(self, batch: PairBatch) -> dict[str, torch.Tensor]:
        """The arguments of the model: the ids also where the encoder is done, since FSMT's decoder looks ahead."""
        return {name: batch[name] for name in ("input_ids", "attention_mask", "decoder_input_ids")}

    def _encoded(self, batch: PairBatch, embedded: torch.Tensor | None = None):
        """The output of the encoder."""
        instead = nullcontext() if embedded is None else Embedded(self.vocabulary(), batch["input_ids"], embedded)
        with base.configured(self.configurations, **base.EAGER), instead:
            return self.model.get_encoder()(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])

    def log_probs(self, batch: PairBatch, embedded: torch.Tensor | None = None) -> torch.Tensor:
        """(B,N) in float64: the log probability of each target token; 0 on padding. Gradients reach embedded (B,S,E)."""
        parts = []
        for some in self._at_once(torch.arange(len(batch), device=self.device), batch["labels"]):
            logits = self.logits(batch.take(some), embedded=None if embedded is None else embedded[some])
            parts.append(label_log_probs(logits, batch["labels"][some]))
        return torch.cat(parts)

    def log_probs_of(self, batch: PairBatch, words: torch.Tensor, embedded: torch.Tensor) -> torch.Tensor:
        """(B,) in float64: the log probability of the target word `words` (B,) of each pair. Gradients reach embedded."""
        owned, head, parts = batch["target_words"] == words.unsqueeze(1), self.head, []
        labels = torch.where(owned, batch["labels"], UNCOUNTED)
        if head is not None:  # it makes the logits of these words' places alone
            places = owned.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, : int(owned.sum(1).max())]
            labels = labels.gather(1, places)
        for some in self._at_once(torch.arange(len(batch), device=self.device), labels):
            with nullcontext() if head is None else at_places(head, places[some]):
                logits = self.logits(batch.take(some), embedded=embedded[some])
            parts.append(label_log_probs(logits, labels[some]).sum(1))
        return torch.cat(parts)

    def _at_once(self, copies: torch.Tensor, labels: torch.Tensor) -> Sequence[torch.Tensor]:
        """Numbers (n,) of copies, in as many as are read together with the logits of labels (B,N)."""
        return copies.split(max(1, NUMBERS_AT_ONCE // (labels.shape[1] * self.vocabulary_size))) if len(copies) else ()

    @torch.no_grad()
    def attention(self, batch: PairBatch) -> torch.Tensor:
        """(B,L,A,N,S): the weights of cross-attention as the model uses them, 0 on padding; kept in the batch."""
        return batch.once("attention", self, lambda: self._weights(batch))

    @torch.no_grad()
    def edited(self, batch: PairBatch, owner: torch.Tensor, edit: Edit) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """For copies `owner` (n,) of pairs, some at a time: their numbers (m,), and their logits (m,N,V) under an edit."""
        for some in self._at_once(torch.arange(len(owner), device=self.device), batch["labels"]):
            encoded = batch.once("encoded", self, lambda: self._encoded(batch))
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


class CrossAttention(SequenceSubject):
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
        self.sites: Sites = checked(Pairs(self))
        self.layer_of = {number: layer for layer, number in enumerate(self.sites.layers)}

    @property
    def lacks(self) -> dict[str, str]:
        return self.sites.lacks

    @property
    def vocabulary_size(self) -> int:
        return self.sites.vocabulary

    def identity(self) -> dict[str, object]:
        name = getattr(getattr(self.config, "encoder", None), "model_type", None)
        encoder = f"{self.config.model_type}({name})" if name else self.config.model_type
        return super().identity() | {"encoder": encoder, "alignment": "dot", "projection": "softmax", "readout": "network"}

    def vocabulary(self) -> torch.Tensor:
        try:
            return self.model.get_encoder().get_input_embeddings().weight
        except (NotImplementedError, AttributeError):
            return self.model.get_input_embeddings().weight

    # ---------------------------------------------------------------------------------------- reading

    def _decoded(self, batch: PairBatch, encoded, edit: Edit | None = None, keep: Collection[int] = ()) -> tuple:
        """Logits, and the hook that read the decoder."""
        with base.configured(self.configurations, **base.EAGER), Hook(len(batch), edit, keep) as hook:
            logits = widened(self.model(encoder_outputs=encoded, **self.model_inputs(batch), **self.uncached).logits)
        if hook.number != self.sites.maps:
            raise SubjectError(
                f"a target of {batch['labels'].shape[1]} positions is read by {hook.number} attentions, shorter ones by "
                f"{self.sites.maps}: this model reads long targets in pieces, and only short ones can be measured"
            )
        return logits, hook

    def logits(self, batch, edit=None, embedded=None, encoded=None) -> torch.Tensor:
        encoded = self._encoded(batch, embedded) if encoded is None else encoded
        return self._decoded(batch, encoded, None if edit is None else self._of_layers(edit))[0]

    def _of_layers(self, edit: Edit) -> Edit:
        """An edit of cross-attention, by layers, as one of the decoder's maps."""
        layers = self.layer_of
        return Edit(
            weights=lambda number, weights: edit.weights(layers[number], weights) if number in layers else weights,
            values=lambda number, values: edit.values(layers[number], values) if number in layers else values,
        )

    def _maps(self, batch: PairBatch) -> list[Map]:
        """The maps of cross-attention, first layer first."""
        return self._decoded(batch, self._encoded(batch), None, self.sites.layers)[1].maps

    def _weights(self, batch) -> torch.Tensor:
        return torch.stack([widened(attention_map.weights) for attention_map in self._maps(batch)], 1)

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

    # ---------------------------------------------------------------------------------------- one pair

    def head_values(self, pair: PairBatch) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """For each layer, of one pair: weights (A,N,S) and the values (A,S,D) that they weigh."""
        return [(widened(attention_map.weights[0]), widened(attention_map.values[0])) for attention_map in self._maps(pair)]

    def decoder_layers(self, pair: PairBatch) -> list[Map]:
        """The maps of the decoder with what follows them, two for each layer."""
        numbers = range(self.sites.maps)
        with Recorded(self.model, numbers, self.sites.blocks) as recorded:
            self._decoded(pair, self._encoded(pair), recorded)
        return recorded.layers

    def vectors(self, pair: PairBatch) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """For each layer, of one pair: weights (A,N,S), and the values of each head after the output projection (A,S,E),
        without its bias; weighed and summed over heads they are the source's part in the decoder's states.
        """
        layers = self.decoder_layers(pair)
        return [(widened(layers[number].weights[0]), projected(layers[number])) for number in self.sites.layers]

    def stacked_parts(self, pair: PairBatch) -> tuple[list[LayerParts], list[tuple[LayerParts, LayerParts]]]:
        """The states of the encoder's layers, and of the decoder's two blocks, as sums; of one pair."""
        blocks = self.sites.encoder_blocks
        with Recorded(self.model.get_encoder(), range(len(blocks)), blocks) as recorded, Hook(1, recorded, ()):
            self._encoded(pair)
        return [LayerParts(layer) for layer in recorded.layers], decoder_parts(self.decoder_layers(pair))

    def results_without(self, pair: PairBatch, gone: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """For each layer, of one pair: its result (N,E), and its results (K,N,E) where the values of the source positions
        gone (K,S) bool are zeros in all heads; the inputs of the layer are as they were.
        """
        layers = self.decoder_layers(pair)
        crossed = [layers[number] for number in self.sites.layers]
        states, encoded = [layer.state[0] for layer in crossed], self._encoded(pair)
        with Fed(self.model, self.sites.blocks, states) as fed:
            for some in gone.split(max(1, TOKENS_AT_ONCE // pair["labels"].shape[1])):
                copies = torch.zeros(len(some), dtype=torch.long, device=self.device)
                edit = Edit(values=lambda layer, values, some=some: values.masked_fill(some[:, None, :, None], 0.0))
                self._decoded(pair.take(copies), instances(encoded, copies, 1), self._of_layers(edit))
        return [(layer.result[0], results) for layer, results in zip(crossed, fed.by_layer(), strict=True)]


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


def is_sequence_model(model) -> bool:
    """Whether a model is from sequences to sequences, and no classifier on top of one."""
    config = getattr(model, "config", None)
    name = type(model).__name__
    classifies = name.endswith(("Classification", "QuestionAnswering"))
    return bool(getattr(config, "is_encoder_decoder", False)) and not classifies and hasattr(model, "get_encoder")


def sequence_subject(model, tokenizer=None) -> SequenceSubject:
    """A subject as it is, and a model from sequences to sequences as one.

    Raises SubjectError for any other model, and as the subjects do for one whose attention cannot be trusted.
    """
    if isinstance(model, SequenceSubject):
        return model
    model = base.unwrapped(model)
    if not is_sequence_model(model):
        raise SubjectError(
            f"{type(model).__name__} has no cross-attention: pairs of sentences are read by models from sequences "
            "to sequences (…ForConditionalGeneration, …MTModel), whose decoder attends to an encoder"
        )
    own = getattr(model.config, "model_type", "") == "attention_seq2seq"
    return (RecurrentAttention if own else CrossAttention)(model, tokenizer)
