"""What a forward pass of a pretrained classifier makes of words, as the penalties of training read it: its last states, the
vectors of its words, and the attention that it answers from; all with gradient, out of the pass that a step makes anyway.

Shapes: B instances, L input positions, H heads, E the size of a state, D that of a word vector, V vocabulary, N words.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from attnfaith.errors import AttnfaithError
from attnfaith.models import SelfAttentionClassifierConfig
from attnfaith.models.modeling_self_attention_classifier import attention_projection
from attnfaith.objectives import Penalties
from attnfaith.subjects.attention import Hook, lengths_of
from attnfaith.subjects.base import is_encoder_decoder
from attnfaith.subjects.checks import probe
from attnfaith.subjects.classifier import SelfAttention
from attnfaith.subjects.modes import eager
from attnfaith.subjects.protocol import Batch
from attnfaith.word_states import StateSet, WordStates


@dataclass
class Reading:
    """What one forward pass left.

    states (B,L,E): of the last layer, as the classifier's head is given them; None where it has none for each position.
    scores (B,H,L,L): what the last layer's softmax, or what stands in its place, was given. special (B,L): 1 on markers;
    None where the batch does not mark them.
    """

    states: torch.Tensor | None = None
    scores: torch.Tensor | None = None
    special: torch.Tensor | None = None


class TrainedClassifier:
    """A classifier of transformers that is being trained, as penalties see it.

    model: the classifier itself, not what wraps it for several processes. tokenizer: of the model. Made once before
    training, by reading random texts; nothing of the model is changed.

    Raises AttnfaithError for a model whose attention cannot be trusted (`SelfAttention`), an encoder and decoder, whose last
    states are not those of the words of a text, and for the first penalty that the model has nothing for.
    """

    def __init__(self, model, tokenizer, penalties: Penalties):
        if is_encoder_decoder(model):
            raise AttnfaithError(
                f"penalties ({', '.join(penalties.taken)}) with {type(model).__name__}: it answers with a decoder, whose "
                "states are not those of the words of a text; they are for encoders, and decoders alone"
            )
        subject = SelfAttention(model, tokenizer)
        self.model, self.last, self.heads = model, subject.sites.layers[-1], subject.sites.heads[-1]
        self.softmax = getattr(model.config, "projection", "softmax") == "softmax"
        self.markers = torch.tensor(sorted(subject.markers), dtype=torch.int64)
        with subject.evaluating(), torch.no_grad():
            text, _ = probe(subject)
            matter = subject.matter(Batch.of(text, subject))[0]
            with self.reading(text) as read:
                model(**text)
        self.answers = _answers(matter) if subject.sites.together == "padded" else None
        self._check(penalties, read, text["input_ids"])

    def _check(self, penalties: Penalties, read: Reading, ids: torch.Tensor) -> None:
        name, wanted = type(self.model).__name__, penalties.taken
        if "impermissible_mass" in wanted and (self.answers is None or self._scores(read, ids) is None):
            raise AttnfaithError(
                f"penalties.impermissible_mass={penalties.impermissible_mass:g} with {name}, which padding disturbs, or "
                "whose logits do not depend on the first, the last or all rows of its last layer: leave it out"
            )
        if "impermissible_mass" in wanted and penalties.impermissible_heads == "max" and self.heads == 1:
            raise AttnfaithError(
                f"penalties.impermissible_heads='max' with {name}, whose last layer has one head, so that it is the same "
                "as 'mean': leave it out"
            )
        others = [key for key in wanted if key != "impermissible_mass"]
        if others and (read.states is None or read.states.shape[:2] != ids.shape):
            raise AttnfaithError(
                f"penalties.{others[0]}={wanted[others[0]]:g} with {name}, which has no last state for each token: leave it "
                "out"
            )
        for key in ("word_tying", "masked_language_model"):
            if key in wanted and (sizes := (read.states.shape[2], self.vectors(ids).shape[2]))[0] != sizes[1]:
                raise AttnfaithError(
                    f"penalties.{key}={wanted[key]:g} with {name}, whose last states have {sizes[0]} numbers and whose word "
                    f"vectors {sizes[1]}: they must be of one size, as BERT's; leave it out, or set another model.pretrained"
                )

    @contextmanager
    def reading(self, inputs: Mapping[str, torch.Tensor]) -> Iterator[Reading]:
        """Within, one forward pass of `inputs` is read, under "eager" attention; after it the reading is whole."""
        read, own = Reading(), self.model.config.model_type == SelfAttentionClassifierConfig.model_type
        encoder = (self.model.base_model if own else self.model).base_model

        def leave(module, args, output):
            states = output if isinstance(output, torch.Tensor) else output[0]
            read.states = states if states.dim() == 3 else None

        handle, hook = encoder.register_forward_hook(leave), Hook(len(inputs["input_ids"]), None, self.last.__eq__)
        try:
            with eager(self.model), hook:
                yield read
        finally:
            handle.remove()
        read.scores = hook.maps[0].scores

    def vectors(self, input_ids: torch.Tensor) -> torch.Tensor:
        """(B,L,D): what the input embeddings make of words, before positions are added."""
        return self.model.get_input_embeddings()(input_ids)

    def word_logits(self, states: torch.Tensor) -> torch.Tensor:
        """(N,V): the products of states (N,E) with all word vectors, which are of their size."""
        return torch.nn.functional.linear(states, self.model.get_input_embeddings().weight)

    def word_states(self, inputs: Mapping[str, torch.Tensor], read: Reading) -> WordStates:
        """One forward pass that was read. Words are those of both texts of a pair. `attention` (B,H,L) is the row of the
        last layer that the classifier answers from, head by head, markers included and before dropout; `scores` are what it
        is the softmax of. Where it answers from all rows, attention is their mean, without scores.
        """
        ids, mask = inputs["input_ids"], inputs["attention_mask"].bool()
        special = torch.isin(ids, self.markers.to(ids.device)) if read.special is None else read.special.bool()
        words = mask & ~special
        levels = [[StateSet(read.states, words, torch.arange(len(ids), device=ids.device))]]
        attention, scores = (None, None) if self.answers is None else self._shown(self._scores(read, ids), mask)
        every = torch.ones_like(mask)
        return WordStates(words, mask, every, self.vectors(ids), read.states, attention, scores, levels)

    def _scores(self, read: Reading, ids: torch.Tensor) -> torch.Tensor | None:
        """(B,H,L,L); None where the last layer has not one score for each two positions."""
        shape = torch.Size((len(ids), self.heads, ids.shape[1], ids.shape[1]))
        return read.scores.reshape(shape) if read.scores.numel() == shape.numel() else None

    def _shown(self, scores: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        if self.answers != "all":
            places = lengths_of(mask) - 1 if self.answers == "last" else torch.zeros_like(mask[:, 0], dtype=torch.long)
            scores = scores[torch.arange(len(mask), device=mask.device), :, places].unsqueeze(2)
        weights = scores.softmax(-1) if self.softmax else attention_projection(scores, -1, config=self.model.config)
        if self.answers == "all":
            present = mask[:, None, :, None].to(weights)
            return (weights * present).sum(2) / present.sum(2).clamp(min=1), None
        return weights.squeeze(2), scores.squeeze(2) if self.softmax else None


def _answers(matter: torch.Tensor) -> str | None:
    """Which rows a classifier answers from, by those that matter (L,): "first", "last" or "all"; None for others."""
    count = int(matter.sum())
    if count == len(matter):
        return "all"
    return "first" if count == 1 and matter[0] else "last" if count == 1 and matter[-1] else None
