"""What a measure may ask of a model from sequences to sequences, whose decoder attends to its encoder.

It is read teacher-forced: the target is given, and at each of its tokens the model says how probable that token is.

Shapes: B pairs, S source positions, N target positions, V vocabulary, L layers of the decoder, A heads, D the size of a
head's values, E that of a state, n copies of pairs.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch

from attnfaith.data.in_memory import in_memory
from attnfaith.data.pairs.reading import encode_for_model
from attnfaith.errors import excerpt
from attnfaith.subjects.classifier_facts import check_numbers, hash_of_model, position_limit
from attnfaith.subjects.plain import in_eval_mode, unwrapped
from attnfaith.subjects.protocol import SubjectError
from attnfaith.subjects.self_checks import configured
from attnfaith.subjects.sentence_batch import UNCOUNTED, PairBatch


CAPABILITIES = {
    "cross-attention": "its decoder attends to its encoder, in weights that can be read and edited: attention, edited",
    "source embeddings": "it can be given embeddings of the source, and gradients reach them: embed, log_probs(embedded)",
    "cross vectors": "what its cross-attention weighs is known, projected to states: vectors",
    "cross parts": "a state after cross-attention is a sum of one vector a source position and of the rest: cross_parts",
    "stacked parts": "so are all states of its encoder and decoder, layer by layer: stacked_parts",
    "layer results": "it says what a layer would give without some of the values that its cross-attention weighs: "
    "results_without",
    "head values": "the values that its heads weigh are known, and that nothing else is made of the weights: head_values",
}
"""What a model from sequences to sequences may be able to do, and the methods that do it."""
NUMBERS_AT_ONCE = 2**24
"""Of the logits of copies that are read together."""


class PairEdit:
    """What is changed of cross-attention; a subclass overrides what it changes. Layers are numbered from 0."""

    def weights(self, layer: int, weights: torch.Tensor, rows: slice) -> torch.Tensor:
        """Other weights (n,A,R,S) of the target positions `rows`."""
        return weights

    def values(self, layer: int, values: torch.Tensor) -> torch.Tensor:
        """Other values (n,A,S,D)."""
        return values

    def take(self, chosen: torch.Tensor, sources: int | None = None, targets: int | None = None) -> "PairEdit":
        """The edit of the copies `chosen`, cut to so many positions; itself, where it is of none in particular."""
        return self


class OfCopies(PairEdit):
    """An edit of tensors that have one entry for each copy; per_copy: their names, with the axes of positions behind the
    first, such as "NS".
    """

    per_copy: Mapping[str, str] = {}

    def take(self, chosen, sources=None, targets=None):
        other = copy.copy(self)
        for name, axes in self.per_copy.items():
            cuts = tuple(slice(None) if axis not in "NS" else slice({"S": sources, "N": targets}[axis]) for axis in axes)
            setattr(other, name, getattr(self, name)[(chosen, *cuts)])
        return other


class SequenceSubject:
    """A model from sequences to sequences, as measures see it. Subclasses say how it is read, by `_read` and `checked`."""

    sequence_kind: str
    can: frozenset[str] = frozenset(CAPABILITIES)
    level = "word"
    class_names = ()
    together = "padded"
    """Whether pairs are read together, or "one at a time" where padding changes what is said of a pair."""

    def __init__(self, model, tokenizer=None):
        check_numbers(model)
        self.kind = self.sequence_kind
        self.model, self.tokenizer, self.config = model, tokenizer, model.config

    # ---------------------------------------------------------------------------------------- what it is

    lacks: Mapping[str, str] = {}

    @property
    def capabilities(self) -> frozenset[str]:
        """Those of CAPABILITIES that it has; `lacks` says why it has not the others."""
        return self.can - set(self.lacks)

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def pad_token_id(self) -> int:
        number = self._of_config("pad_token_id")
        number = getattr(self.tokenizer, "pad_token_id", None) if number is None else number
        return 0 if number is None or number < 0 else int(number)

    @property
    def end_token_id(self) -> int | None:
        """The marker that ends a target; None where it is unknown."""
        number = self._of_config("eos_token_id")
        number = getattr(self.tokenizer, "eos_token_id", None) if number is None else number
        return number[0] if isinstance(number, list) and number else number

    def _of_config(self, name: str):
        owners = (self.config, getattr(self.model, "generation_config", None), getattr(self.config, "decoder", None))
        return next((number for owner in owners if (number := getattr(owner, name, None)) is not None), None)

    def identity(self) -> dict[str, object]:
        """The fields of an identity that the model decides."""
        from attnfaith.data.subwords import tokenizer_digest

        digest = None if self.tokenizer is None else tokenizer_digest(self.tokenizer)
        return {"model": "sequence_to_sequence", "tokenizer_digest": digest, **self._factors()}

    def _factors(self) -> dict[str, object]:
        raise NotImplementedError

    def digest(self) -> str:
        """SHA-256 of weights and configuration."""
        return hash_of_model(self.model).hexdigest()

    # ---------------------------------------------------------------------------------------- pairs

    def rows(self, pairs):
        """Encoded pairs from a data set with instance_id, source, target and perhaps links, see `encode_for_model`.

        Raises SubjectError without a tokenizer, and for tokens that the model does not know; DatasetError as that says.
        """
        if self.tokenizer is None:
            raise SubjectError(f"sentences need the model's tokenizer: {type(self).__name__}(model, tokenizer)")
        limit = position_limit(self)
        rows = encode_for_model(pairs, self.tokenizer, max_source=limit, max_target=limit, end=self.end_token_id)
        self.check(rows)
        return rows

    def check(self, rows) -> None:
        """Raises SubjectError for tokens that the model does not know."""
        for name, known in (("input_ids", len(self.vocabulary())), ("labels", self.vocabulary_size)):
            largest = max(max(ids) for ids in rows[name])
            if largest >= known:
                raise SubjectError(
                    f"the tokenizer is not the model's: it gives token {largest}, and the model knows {known}, from 0 on"
                )

    def encode(self, pairs: Sequence[tuple[str, str]]) -> PairBatch:
        """A batch from (source, target)."""
        import pyarrow as pa

        names = [str(number) for number in range(len(pairs))]
        sides = {name: [pair[place] for pair in pairs] for place, name in enumerate(("source", "target"))}
        return self.collate(list(self.rows(in_memory(pa.table({"instance_id": names, **sides})))))

    def collate(self, rows: Sequence[Mapping]) -> PairBatch:
        """A batch from rows of `rows`, on the model's device."""
        batch = PairBatch.of(rows, self.pad_token_id)
        for name, values in batch.items():
            if isinstance(values, torch.Tensor):
                batch[name] = values.to(self.device)
        batch["decoder_input_ids"] = self.shifted(batch["labels"])
        return batch

    def shifted(self, labels: torch.Tensor) -> torch.Tensor:
        """What the decoder reads (B,N): a start token, and the labels (B,N) one place later.

        Raises SubjectError for a model that reads something else.
        """
        make = getattr(self.model, "prepare_decoder_input_ids_from_labels", None)
        if make is not None:
            try:
                inputs = make(labels=labels)
            except Exception as error:  # models raise many kinds, such as for a configuration that lacks something
                raise SubjectError(
                    f"{type(self.model).__name__} says not what its decoder reads: {type(error).__name__}: "
                    f"{excerpt(error, 200)}"
                ) from error
        else:
            start = self._of_config("decoder_start_token_id")
            start = self._of_config("bos_token_id") if start is None else start
            if start is None:
                raise SubjectError(f"{type(self.model).__name__} has no decoder_start_token_id: set the configuration's")
            inputs = torch.cat([torch.full_like(labels[:, :1], start), labels[:, :-1]], 1)
        inputs = inputs.masked_fill(inputs == UNCOUNTED, self.pad_token_id)
        kept = labels[:, 1:] != UNCOUNTED
        if not torch.equal(inputs[:, 1:][kept], labels[:, :-1][kept]):
            raise SubjectError(f"the decoder of {type(self.model).__name__} does not read a target's tokens one place later")
        return inputs

    # ---------------------------------------------------------------------------------------- reading

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Within, the model is in eval mode; after it, every module in its own."""
        with in_eval_mode(self.model), configured(self.model, return_dict=True):
            yield

    def parameters(self) -> Iterator[torch.Tensor]:
        return self.model.parameters()

    def vocabulary(self) -> torch.Tensor:
        """(V,E): the embeddings of all words that a source may hold."""
        raise NotImplementedError

    vocabulary_size: int
    """How many words the decoder chooses from."""

    def embed(self, batch: PairBatch) -> torch.Tensor:
        """(B,S,E): the rows of the table, before they are scaled and positions are added."""
        return torch.nn.functional.embedding(batch["input_ids"], self.vocabulary())

    def log_probs(self, batch: PairBatch, embedded: torch.Tensor | None = None) -> torch.Tensor:
        """(B,N) in float64: the log probability of each target token; 0 on padding. Gradients reach embedded (B,S,E)."""
        parts = []
        for some in torch.arange(len(batch), device=self.device).split(self._at_once(batch)):
            part = batch if len(some) == len(batch) else batch.take(some)
            given = None if embedded is None else embedded[some]
            parts.append(picked(self.logits(part, embedded=given), part["labels"]))
        return torch.cat(parts)

    def _at_once(self, batch: PairBatch) -> int:
        return max(1, NUMBERS_AT_ONCE // (batch["labels"].shape[1] * self.vocabulary_size))

    def logits(self, batch: PairBatch, edit: PairEdit | None = None, embedded=None) -> torch.Tensor:
        """(B,N,V)."""
        return self._by_group(batch, edit, embedded, lambda part, *given: self._read(part, *given))

    @torch.no_grad()
    def attention(self, batch: PairBatch) -> torch.Tensor:
        """(B,L,A,N,S): the weights of cross-attention as the model uses them, 0 on padding; kept in the batch."""
        return batch.once("attention", self, lambda: self._by_group(batch, None, None, self._weights))

    @torch.no_grad()
    def edited(self, batch: PairBatch, owner: torch.Tensor, edit: PairEdit) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Of copies `owner` (n,) of pairs, some at a time: their numbers, and their logits (m,N,V) under an edit of them."""
        for some in torch.arange(len(owner), device=self.device).split(self._at_once(batch)) if len(owner) else ():
            copies = batch.take(owner[some])
            if self.together == "padded":
                yield some, self._read(copies, edit.take(some), None, self._taken(batch, owner[some]))
            else:
                yield some, self.logits(copies, edit.take(some))

    def _by_group(self, batch: PairBatch, edit: PairEdit | None, embedded, read: Callable) -> torch.Tensor:
        """What `read` makes (n,...,N,x) of pairs that can be read together, put together."""
        if self.together == "padded" or len(batch) == 1:
            return read(batch, edit, embedded)
        parts, sizes = [], (batch["labels"].shape[1], batch["input_ids"].shape[1])
        for row in range(len(batch)):
            pair = batch.alone(row)
            width, height = pair["input_ids"].shape[1], pair["labels"].shape[1]
            of_pair = None if edit is None else edit.take(torch.tensor([row], device=self.device), width, height)
            part = read(pair, of_pair, None if embedded is None else embedded[row : row + 1, :width])
            missing = sizes[1] - width if part.dim() == 5 else 0  # weights end in source positions, logits in words
            parts.append(torch.nn.functional.pad(part, (0, missing, 0, sizes[0] - height)))
        return torch.cat(parts)

    def _read(self, batch: PairBatch, edit=None, embedded=None, encoded=None) -> torch.Tensor:
        """Logits of pairs that can be read together; encoded: what `_encoded` made of their sources."""
        raise NotImplementedError

    def _weights(self, batch: PairBatch, edit=None, embedded=None) -> torch.Tensor:
        """Their weights (B,L,A,N,S)."""
        raise NotImplementedError

    def _encoded(self, batch: PairBatch, embedded=None):
        """What the encoder makes of the sources."""
        raise NotImplementedError

    def _taken(self, batch: PairBatch, rows: torch.Tensor):
        """The pairs `rows` of what the encoder makes of a batch, which is kept in it."""
        return taken(batch.once("encoded", self, lambda: self._encoded(batch)), rows, len(batch))

    def without(self, batch: PairBatch, owner: torch.Tensor, gone: torch.Tensor) -> PairBatch:
        """Copies `owner` (n,) of pairs without the source positions `gone` (n,S) bool: what follows them moves up."""
        copies = batch.take(owner)
        stays = (copies["attention_mask"] == 1) & ~gone
        order = (~stays).long().argsort(dim=1, stable=True)
        for name, filling in (("input_ids", self.pad_token_id), ("source_words", -1), ("attention_mask", 0)):
            copies[name] = torch.where(stays.gather(1, order), copies[name].gather(1, order), filling)
        return copies

    def in_double(self) -> "SequenceSubject":
        """A copy of the model in float64."""
        other = copy.copy(self)
        other.model = copy.deepcopy(self.model).double()
        return other


def taken(given, rows: torch.Tensor, count: int):
    """The instances `rows` of what was made of `count` ones: of its tensors that have an axis of instances first."""
    if isinstance(given, torch.Tensor):
        return given[rows] if given.dim() and len(given) == count else given
    if isinstance(given, dict):
        return type(given)(**{name: taken(value, rows, count) for name, value in given.items()})
    if type(given) in (tuple, list):
        return type(given)(taken(value, rows, count) for value in given)
    return given


def picked(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """(B,N) in float64: the log probabilities of labels, 0 where there is none."""
    chosen = logits.gather(2, labels.clamp(min=0).unsqueeze(2)).squeeze(2).double()
    return torch.where(labels == UNCOUNTED, 0.0, chosen - logits.logsumexp(2).double())


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
    from attnfaith.subjects.cross_attention import CrossAttention
    from attnfaith.subjects.recurrent_attention import RecurrentAttention

    if isinstance(model, SequenceSubject):
        return model
    model = unwrapped(model)
    if not is_sequence_model(model):
        raise SubjectError(
            f"{type(model).__name__} has no cross-attention: pairs of sentences are read by models from sequences "
            "to sequences (…ForConditionalGeneration, …MTModel), whose decoder attends to an encoder"
        )
    own = getattr(model.config, "model_type", "") == "attention_seq2seq"
    return (RecurrentAttention if own else CrossAttention)(model, tokenizer)
