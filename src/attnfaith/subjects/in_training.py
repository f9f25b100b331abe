"""What penalties ask of a classifier of transformers while it is trained: its last states, the vectors of its words, and the
attention that it answers from; all with gradient, out of the one forward pass that a step makes anyway.

Shapes: B instances, L input positions, H heads, E the size of a state, D that of a word vector, V vocabulary, N masked words.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch

from attnfaith.models.modeling_self_attention_classifier import attention_projection
from attnfaith.models.registration import SELF_ATTENTION
from attnfaith.subjects.attention_hook import Hook
from attnfaith.subjects.protocol import Batch, SubjectError
from attnfaith.subjects.reading import lengths_of
from attnfaith.subjects.self_attention import SelfAttention
from attnfaith.subjects.self_checks import probe


ANSWERS = ("first", "last", "all")
"""The rows of the last layer that a classifier may answer from."""


class Reading:
    """What one forward pass left.

    states (B,L,E): of the last layer, as the classifier's head is given them; None where they are not there for each position.
    scores (B,H,L,L): what the last layer's softmax, or what stands in its place, was given.
    """

    states: torch.Tensor | None = None
    scores: torch.Tensor | None = None


class TrainedClassifier:
    """A classifier of transformers that is being trained, as penalties see it.

    model: the classifier itself, not what wraps it for several processes. tokenizer: of the model. Made once before training,
    by reading random texts; nothing of the model is changed.

    softmax: whether its attention is one. padded: whether texts may be read together so that each is read as alone. heads: of
    the last layer. answers: which rows of the last layer the logits depend on, one of ANSWERS, None for others. size: that of a state, None
    where states are not one for each position. vector_size: that of a word vector. mask_token_id: the token that hides a
    word, that of unknown words where there is no other, None where there is neither.

    Raises SubjectError for a model whose attention cannot be trusted, see `SelfAttention`, and for an encoder and decoder,
    whose states are not those of the words that they stand for.
    """

    def __init__(self, model, tokenizer=None):
        if model.config.is_encoder_decoder:
            raise SubjectError(
                f"penalties are for encoders, and {type(model).__name__} is an encoder and decoder, whose last states are those "
                "of its answer: leave out the penalties"
            )
        subject = SelfAttention(model, tokenizer)
        self.model, self.last, self.heads = model, subject.sites.layers[-1], subject.sites.heads[-1]
        self.softmax = getattr(model.config, "projection", "softmax") == "softmax"
        self.padded = subject.sites.together == "padded"
        self._markers = torch.tensor(sorted(subject.markers))
        with subject.evaluating():
            text, _ = probe(subject)
            self.answers = _answers(subject.matter(Batch.of(text, subject))[0])
            with torch.no_grad(), self.reading(text) as read:
                model(**text)
        shape = None if read.states is None else tuple(read.states.shape)
        self.size = shape[2] if shape is not None and shape[:2] == tuple(text["input_ids"].shape) else None
        self.vector_size = self.vectors(text["input_ids"]).shape[-1]
        hiding = (getattr(tokenizer, f"{role}_token_id", None) for role in ("mask", "unk"))
        self.mask_token_id = next((number for number in hiding if number is not None), None)

    @contextmanager
    def reading(self, inputs: Mapping[str, torch.Tensor]) -> Iterator[Reading]:
        """Within, one forward pass of `inputs` is read."""
        read, own = Reading(), self.model.config.model_type == SELF_ATTENTION
        encoder = (self.model.base_model if own else self.model).base_model

        def leave(module, args, output):
            states = output if isinstance(output, torch.Tensor) else output[0]
            read.states = states if states.dim() == 3 else None

        handle, hook = encoder.register_forward_hook(leave), Hook(len(inputs["input_ids"]), None, self.last.__eq__)
        try:
            with hook:
                yield read
        finally:
            handle.remove()
        read.scores = hook.maps[0].scores if hook.maps else None

    def vectors(self, input_ids: torch.Tensor) -> torch.Tensor:
        """(B,L,D): what the input embeddings make of words, before positions are added."""
        return self.model.get_input_embeddings()(input_ids)

    def vocabulary_logits(self, states: torch.Tensor) -> torch.Tensor:
        """(N,V): the products of states (N,E) with all word vectors, which have to be of their size."""
        return torch.nn.functional.linear(states, self.model.get_input_embeddings().weight.to(states.dtype))

    def words(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """(B,L) bool: the tokens of the texts; no markers, no padding."""
        ids = inputs["input_ids"]
        return inputs["attention_mask"].bool() & ~torch.isin(ids, self._markers.to(ids.device))

    def shown(self, read: Reading, inputs: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The weights (B,H,L) of each head in the row that the classifier answers from, markers included, before dropout; and
        the scores (B,H,L) that they are the softmax of. Of one that answers from all rows the weights are their mean, and of
        it, and under another projection than softmax, there are no scores to tell: None.

        Raises SubjectError for a last layer whose scores are not one for each two positions.
        """
        scores, mask = read.scores, inputs["attention_mask"].bool()
        expected = (len(mask), self.heads, mask.shape[1], mask.shape[1])
        if scores.numel() != torch.Size(expected).numel():
            raise SubjectError(
                f"the scores of the last layer of {type(self.model).__name__} are {tuple(scores.shape)}, and not one for each "
                "two positions of a text: leave out penalties.impermissible_mass"
            )
        rows = scores.reshape(expected)
        if self.answers != "all":
            places = lengths_of(mask) - 1 if self.answers == "last" else torch.zeros_like(mask[:, 0], dtype=torch.long)
            rows = rows[torch.arange(len(mask), device=mask.device), :, places].unsqueeze(2)
        weights = rows.softmax(-1) if self.softmax else attention_projection(rows, -1, config=self.model.config)
        if self.answers == "all":
            of_texts = mask[:, None, :, None].to(weights)
            return (weights * of_texts).sum(2) / of_texts.sum(2).clamp(min=1), None
        return weights.squeeze(2), rows.squeeze(2) if self.softmax else None


def _answers(matter: torch.Tensor) -> str | None:
    """Which of ANSWERS rows (L,) bool are."""
    first, last, both = bool(matter[0]), bool(matter[-1]), int(matter.sum())
    if both == len(matter):
        return "all"
    return "first" if first and both == 1 else "last" if last and both == 1 else None
