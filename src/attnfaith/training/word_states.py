"""What a forward pass makes of words, as penalties read it: `WordStates`, by a reader for each kind of model.

Shapes: B instances, L input positions, T tokens, S sentences, A heads, E a word vector, H a state, N words, V vocabulary.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn

from attnfaith.models import SelfAttentionClassifierConfig
from attnfaith.models.hierarchy import sentence_groups
from attnfaith.models.modeling_self_attention_classifier import attention_projection
from attnfaith.models.projections import BLOCKED
from attnfaith.subjects.attention import Hook, lengths_of
from attnfaith.subjects.base import eager, is_encoder_decoder
from attnfaith.subjects.checks import probe
from attnfaith.subjects.classifier import SelfAttention
from attnfaith.subjects.protocol import Batch
from attnfaith.support.errors import AttnfaithError


PREDICTION = "word_prediction"
"""Name of the layer that predicts masked words, a part of the model while it is trained."""


class StateSet(NamedTuple):
    """States (N,T,H) that one attention sums, which of them there are, mask (N,T), and of which instances, rows (N,)."""

    states: torch.Tensor
    mask: torch.Tensor
    rows: torch.Tensor


class WordStates(NamedTuple):
    """One forward pass.

    words (B,L) bool: the positions that are words: no markers, padding or second text. attended (B,L) bool: those that
    share attention: words, and in a pretrained model markers. text (B,L) bool: all but the second text. vectors (B,L,E):
    word vectors. states (B,L,H): of words, 0 elsewhere. attention (B,L), or (B,heads,L): the weight of each word in its
    text; in a hierarchical model that in its sentence times that of the sentence. scores: what a softmax took that of, in
    its shape, whatever is added to all of a text; None where the projection is another, or holds scores at a scale.
    levels: of each level of attention the states that it sums: the tokens; the words, and the sentences.
    impermissible (B,L): 1 on impermissible words; None where the data mark none.
    """

    words: torch.Tensor
    attended: torch.Tensor
    text: torch.Tensor
    vectors: torch.Tensor
    states: torch.Tensor
    attention: torch.Tensor
    scores: torch.Tensor | None
    levels: list[list[StateSet]]
    impermissible: torch.Tensor | None = None


class ClassifierReader:
    """Reads attention classifiers of this package: their parts are watched while a pass is made.

    seed: where masked words are to be predicted, that of the layer which does so (H to V) and becomes a part of the model.
    """

    def __init__(self, model, seed: int | None = None):
        self.model = model
        if seed is not None:
            setattr(model, PREDICTION, prediction_layer(model.config.hidden_size, model.get_input_embeddings(), seed))

    @contextmanager
    def reading(self, inputs: Mapping[str, torch.Tensor]) -> Iterator[dict[str, list]]:
        """Within, what embeddings, encoders and alignments return, call by call, by name."""
        base, sentences = self.model.model, self.model.model.sentence_reader
        parts = {"vectors": base.embeddings, "encoded": base.encoder, "scores": base.alignment}
        if sentences is not None:
            parts |= {"words_encoded": sentences.word_encoder, "word_scores": sentences.word_alignment}
        seen = {name: [] for name in parts}
        hooks = [
            part.register_forward_hook(lambda *call, outputs=seen[name]: outputs.append(call[-1]))
            for name, part in parts.items()
        ]
        try:
            yield seen
        finally:
            for hook in hooks:
                hook.remove()

    def word_states(self, inputs: Mapping[str, torch.Tensor], outputs, seen: Mapping[str, list]) -> WordStates:
        """The words of the pass that was read."""
        model, text = self.model, texts_of(inputs)
        items, vectors = model.items(**text), seen["vectors"][0]
        (hidden, _), types = seen["encoded"][0], inputs.get("token_type_ids")
        words, exact = items >= 0, model.config.projection == "softmax" and model.config.score_scale is None
        alone = torch.ones_like(words) if types is None or model.config.query != "text" else types == 0
        rows = torch.arange(len(items), device=items.device)
        if "words_encoded" not in seen:
            attention, scores = outputs.attention, seen["scores"][0] if exact else None
            return WordStates(words, words, alone, vectors, hidden, attention, scores, [[StateSet(hidden, words, rows)]])
        sentences, place = model.attendable(**text), items.clamp(min=0)
        attention = outputs.word_attention * outputs.attention.gather(1, place) * words
        groups = list(sentence_groups(items))
        scores = None
        if exact:
            above = seen["scores"][0].float().masked_fill(~sentences, BLOCKED).log_softmax(-1)
            within = above.new_zeros(items.shape)
            for group, word_scores in zip(groups, seen["word_scores"], strict=True):
                logs = word_scores.float().masked_fill(~group.mask, -torch.inf).log_softmax(-1)
                within = group.put(logs, within)
            scores = above.gather(1, place) + within
        of_words = [
            StateSet(states, group.mask, group.rows)
            for group, (states, _) in zip(groups, seen["words_encoded"], strict=True)
        ]
        levels = [of_words, [StateSet(hidden, sentences, rows)]]
        return WordStates(words, words, alone, vectors, self._states(items, seen), attention, scores, levels)

    def states(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The states (B,L,H) of the words of a batch, by a pass of its own."""
        text = texts_of(inputs)
        with self.reading(inputs) as seen:
            self.model.model.encode(**text)
        return self._states(self.model.items(**text), seen)

    def _states(self, items: torch.Tensor, seen: Mapping[str, list]) -> torch.Tensor:
        if "words_encoded" not in seen:
            return seen["encoded"][0][0]
        if not seen["words_encoded"]:  # no text has a word
            return seen["vectors"][0].new_zeros(*items.shape, self.model.config.hidden_size)
        first = seen["words_encoded"][0][0]
        states = first.new_zeros(*items.shape, first.shape[-1])
        for group, (encoded, _) in zip(sentence_groups(items), seen["words_encoded"], strict=True):
            states = group.put(encoded, states)
        return states

    def word_logits(self, states: torch.Tensor) -> torch.Tensor:
        """What states (N,H) predict of the vocabulary: (N,V)."""
        return getattr(self.model, PREDICTION)(states)


def texts_of(inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor | None]:
    """The inputs that say where words are."""
    return {name: inputs.get(name) for name in ("input_ids", "attention_mask", "token_type_ids")}


def prediction_layer(size: int, vectors: nn.Embedding, seed: int) -> nn.Linear:
    """A layer from states to words, drawn as torch draws one, from a stream of its own: nothing else is drawn otherwise."""
    layer = nn.Linear(size, vectors.num_embeddings, device="meta").to_empty(device="cpu")
    stream = torch.Generator().manual_seed(seed)
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -(size**-0.5), size**-0.5, generator=stream)
    return layer.to(vectors.weight.device)


@dataclass
class Reading:
    """The parts of one forward pass that penalties read.

    states (B,L,H): of the last layer, as the classifier's head is given them; None where it has none for each position.
    scores (B,A,L,L): what the last layer's softmax, or what stands in its place, was given. special (B,L): 1 on markers;
    None where the batch does not mark them.
    """

    states: torch.Tensor | None = None
    scores: torch.Tensor | None = None
    special: torch.Tensor | None = None


class PretrainedReader:
    """Reads classifiers of transformers: their last states, the vectors of their words, and the attention that they answer
    from; all with gradient, out of the pass that a step makes anyway.

    model: the classifier itself, not what wraps it for several processes. tokenizer: of the model. Made once before
    training, by reading random texts; nothing of the model is changed.

    Raises AttnfaithError for a model whose attention cannot be trusted (`SelfAttention`), an encoder and decoder, whose last
    states are not those of the words of a text, and for the first penalty that the model has nothing for.
    """

    def __init__(self, model, tokenizer, penalties: Sequence):
        if is_encoder_decoder(model):
            names = ", ".join(penalty.name for penalty in penalties)
            raise AttnfaithError(
                f"penalties ({names}) with {type(model).__name__}: it answers with a decoder, whose states are not those of "
                "the words of a text; they are for encoders, and decoders alone"
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

    def _check(self, penalties: Sequence, read: Reading, ids: torch.Tensor) -> None:
        name = type(self.model).__name__
        for penalty in penalties:
            stated = f"penalties.{penalty.name}={penalty.weight:g} with {name}"
            if penalty.name == "impermissible_mass":
                if self.answers is None or self._scores(read, ids) is None:
                    raise AttnfaithError(
                        f"{stated}, which padding disturbs, or whose logits do not depend on the first, the last or all "
                        "rows of its last layer: leave it out"
                    )
                continue
            if read.states is None or read.states.shape[:2] != ids.shape:
                raise AttnfaithError(f"{stated}, which has no last state for each token: leave it out")
            state_size, vector_size = read.states.shape[2], self.vectors(ids).shape[2]
            if penalty.name in ("word_tying", "masked_language_model") and state_size != vector_size:
                raise AttnfaithError(
                    f"{stated}, whose last states have {state_size} numbers and whose word vectors {vector_size}: they must "
                    "be of one size, as BERT's; leave it out, or set another model.pretrained"
                )

    @contextmanager
    def reading(self, inputs: Mapping[str, torch.Tensor]) -> Iterator[Reading]:
        """Within, one forward pass of `inputs` is read, under "eager" attention. Afterwards the reading is complete."""
        read, model = Reading(), self.model
        if model.config.model_type == SelfAttentionClassifierConfig.model_type:
            model = model.base_model
        encoder = model.base_model

        def keep(module, args, output):
            states = output if isinstance(output, torch.Tensor) else output[0]
            read.states = states if states.dim() == 3 else None

        handle, hook = encoder.register_forward_hook(keep), Hook(len(inputs["input_ids"]), None, self.last.__eq__)
        try:
            with eager(self.model), hook:
                yield read
        finally:
            handle.remove()
        read.scores = hook.maps[0].scores

    def vectors(self, input_ids: torch.Tensor) -> torch.Tensor:
        """(B,L,E): what the input embeddings make of words, before positions are added."""
        return self.model.get_input_embeddings()(input_ids)

    def word_logits(self, states: torch.Tensor) -> torch.Tensor:
        """(N,V): the products of states (N,H) with all word vectors, which are of their size."""
        return torch.nn.functional.linear(states, self.model.get_input_embeddings().weight)

    def states(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The last states (B,L,H) of a batch, by a pass of its own."""
        with self.reading(inputs) as read:
            self.model(**inputs)
        return read.states

    def word_states(self, inputs: Mapping[str, torch.Tensor], outputs, read: Reading) -> WordStates:
        """The words of the pass that was read, those of both texts of a pair. `attention` (B,A,L) is the row of the
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
        """(B,A,L,L); None where the last layer has not one score for each two positions."""
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
