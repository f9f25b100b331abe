"""What a forward pass makes of words, as penalties read it: `WordStates`, from a reader for each kind of model.

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
from attnfaith.subjects import Batch, SelfAttention
from attnfaith.subjects.attention import Hook, lengths_of
from attnfaith.subjects.base import eager, is_encoder_decoder
from attnfaith.subjects.checks import probe
from attnfaith.support.errors import AttnfaithError


PREDICTION = "word_prediction"
"""Name of the layer that predicts masked words, a part of the model during training."""


class StateSet(NamedTuple):
    """States (N,T,H) that an attention sums, their mask (N,T), and the instances they belong to, rows (N,)."""

    states: torch.Tensor
    mask: torch.Tensor
    rows: torch.Tensor


class WordStates(NamedTuple):
    """One forward pass.

    words (B,L) bool: the positions of words: no markers, padding or second text. attended (B,L) bool: the positions that
    share attention: words, and in a pretrained model markers. text (B,L) bool: all but the second text. vectors (B,L,E):
    word vectors. states (B,L,H): of words, 0 elsewhere. attention (B,L), or (B,A,L) of heads: the weight of each word in its
    text; in a hierarchical model the weight in its sentence times that of the sentence. scores: the input of the softmax
    that gives the attention, in its shape, up to a constant per text; None for another projection, or scores at a scale.
    levels: for each level of attention the states that it sums: the tokens; the words, and the sentences. impermissible
    (B,L): 1 on impermissible words; None where the data mark none.
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
    """Reads attention classifiers of this package by hooks on their parts during a forward pass.

    seed: to predict masked words, the seed of the layer from H to V that does so, which becomes a part of the model.
    """

    def __init__(self, model, seed: int | None = None):
        self.model = model
        if seed is not None:
            setattr(model, PREDICTION, prediction_layer(model.config.hidden_size, model.get_input_embeddings(), seed))

    @contextmanager
    def reading(self, inputs: Mapping[str, torch.Tensor]) -> Iterator[dict[str, list]]:
        """Record the outputs of embeddings, encoders and alignments, call by call, by name."""
        base, sentences = self.model.model, self.model.model.sentence_reader
        parts = {"vectors": base.embeddings, "encoded": base.encoder, "scores": base.alignment}
        if sentences is not None:
            parts |= {"words_encoded": sentences.word_encoder, "word_scores": sentences.word_alignment}
        read = {name: [] for name in parts}
        hooks = [
            part.register_forward_hook(lambda *call, outputs=read[name]: outputs.append(call[-1]))
            for name, part in parts.items()
        ]
        try:
            yield read
        finally:
            for hook in hooks:
                hook.remove()

    def word_states(self, inputs: Mapping[str, torch.Tensor], outputs, read: Mapping[str, list]) -> WordStates:
        """Return the words of a pass that was read."""
        model, text = self.model, text_inputs(inputs)
        items, vectors = model.items(**text), read["vectors"][0]
        (hidden, _), types = read["encoded"][0], inputs.get("token_type_ids")
        words, exact = items >= 0, model.config.projection == "softmax" and model.config.score_scale is None
        first_text = torch.ones_like(words) if types is None or model.config.query != "text" else types == 0
        rows = torch.arange(len(items), device=items.device)
        if "words_encoded" not in read:
            scores, levels = read["scores"][0] if exact else None, [[StateSet(hidden, words, rows)]]
            return WordStates(words, words, first_text, vectors, hidden, outputs.attention, scores, levels)
        sentences, place = model.attendable(**text), items.clamp(min=0)
        attention = outputs.word_attention * outputs.attention.gather(1, place) * words
        groups, scores = list(sentence_groups(items)), None
        if exact:
            above = read["scores"][0].float().masked_fill(~sentences, BLOCKED).log_softmax(-1)
            within = above.new_zeros(items.shape)
            for group, word_scores in zip(groups, read["word_scores"], strict=True):
                within = group.put(word_scores.float().masked_fill(~group.mask, -torch.inf).log_softmax(-1), within)
            scores = above.gather(1, place) + within
        encoded = zip(groups, read["words_encoded"], strict=True)
        levels = [
            [StateSet(states, group.mask, group.rows) for group, (states, _) in encoded],
            [StateSet(hidden, sentences, rows)],
        ]
        return WordStates(words, words, first_text, vectors, self._states(items, read), attention, scores, levels)

    def states(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the states (B,L,H) of the words of a batch, by a forward pass."""
        text = text_inputs(inputs)
        with self.reading(inputs) as read:
            self.model.model.encode(**text)
        return self._states(self.model.items(**text), read)

    def _states(self, items: torch.Tensor, read: Mapping[str, list]) -> torch.Tensor:
        if "words_encoded" not in read:
            return read["encoded"][0][0]
        vectors = read["vectors"][0]
        states = (read["words_encoded"][0][0] if read["words_encoded"] else vectors).new_zeros(
            *items.shape, self.model.config.hidden_size
        )
        for group, (encoded, _) in zip(sentence_groups(items), read["words_encoded"], strict=True):
            states = group.put(encoded, states)
        return states

    def word_logits(self, states: torch.Tensor) -> torch.Tensor:
        """Return what states (N,H) predict over the vocabulary: (N,V)."""
        return getattr(self.model, PREDICTION)(states)


def text_inputs(inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor | None]:
    """Return the inputs that decide where words are."""
    return {name: inputs.get(name) for name in ("input_ids", "attention_mask", "token_type_ids")}


def prediction_layer(size: int, vectors: nn.Embedding, seed: int) -> nn.Linear:
    """Return a layer from states to words, initialised as torch does, but from a random stream of its own."""
    layer = nn.Linear(size, vectors.num_embeddings, device="meta").to_empty(device="cpu")
    stream = torch.Generator().manual_seed(seed)
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -(size**-0.5), size**-0.5, generator=stream)
    return layer.to(vectors.weight.device)


@dataclass
class Reading:
    """The parts of one forward pass of a pretrained classifier.

    states (B,L,H): the last layer's output, which the classifier's head reads; None without one for each position. scores
    (B,A,L,L): the input of the last layer's softmax or projection. special (B,L): 1 on markers; None where the batch does
    not mark them.
    """

    states: torch.Tensor | None = None
    scores: torch.Tensor | None = None
    special: torch.Tensor | None = None


class PretrainedReader:
    """Reads classifiers of transformers: their last states, word vectors, and the attention that they answer from, all with
    gradients, from the pass of the training step.

    model: the classifier itself, without a wrapper for several processes. tokenizer: of the model. The reader is made once
    before training, by reading random texts; the model is unchanged.

    Raises AttnfaithError for a model whose attention cannot be trusted (`SelfAttention`), an encoder and decoder, and the
    first penalty that the model has nothing for.
    """

    def __init__(self, model, tokenizer, penalties: Sequence):
        if is_encoder_decoder(model):
            names = ", ".join(penalty.name for penalty in penalties)
            raise AttnfaithError(
                f"penalties ({names}) with {type(model).__name__}: it answers with a decoder, whose states are not those of "
                "the words of a text; give an encoder or a decoder alone"
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
        self.answers = _answering_rows(matter) if subject.sites.together == "padded" else None
        self._check(penalties, read, text["input_ids"])

    def _check(self, penalties: Sequence, read: Reading, ids: torch.Tensor) -> None:
        for penalty in penalties:
            place = f"penalties.{penalty.name}={penalty.weight:g} with {type(self.model).__name__}"
            if penalty.name == "impermissible_mass":
                if self.answers is None or self._scores(read, ids) is None:
                    raise AttnfaithError(
                        f"{place}, which padding disturbs, or whose logits do not depend on the first, the last or all "
                        "rows of its last layer: leave it out"
                    )
                continue
            if read.states is None or read.states.shape[:2] != ids.shape:
                raise AttnfaithError(f"{place}, which has no last state for each token: leave it out")
            state_size, vector_size = read.states.shape[2], self.vectors(ids).shape[2]
            if penalty.name in ("word_tying", "masked_language_model") and state_size != vector_size:
                raise AttnfaithError(
                    f"{place}, whose last states have {state_size} numbers and whose word vectors {vector_size}: they must "
                    "have one size, as in BERT; leave it out, or set another model.pretrained"
                )

    @contextmanager
    def reading(self, inputs: Mapping[str, torch.Tensor]) -> Iterator[Reading]:
        """Read one forward pass of `inputs` under "eager" attention. The reading is complete afterwards."""
        read, model = Reading(), self.model
        if model.config.model_type == SelfAttentionClassifierConfig.model_type:
            model = model.base_model

        def keep(module, args, output):
            states = output if isinstance(output, torch.Tensor) else output[0]
            read.states = states if states.dim() == 3 else None

        handle, hook = model.base_model.register_forward_hook(keep), Hook(len(inputs["input_ids"]), None, self.last.__eq__)
        try:
            with eager(self.model), hook:
                yield read
        finally:
            handle.remove()
        read.scores = hook.maps[0].scores

    def vectors(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Return the input embeddings (B,L,E) of words, before positions are added."""
        return self.model.get_input_embeddings()(input_ids)

    def word_logits(self, states: torch.Tensor) -> torch.Tensor:
        """Return the products (N,V) of states (N,H) with all word vectors, which have their size."""
        return torch.nn.functional.linear(states, self.model.get_input_embeddings().weight)

    def states(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the last states (B,L,H) of a batch, by a forward pass."""
        with self.reading(inputs) as read:
            self.model(**inputs)
        return read.states

    def word_states(self, inputs: Mapping[str, torch.Tensor], outputs, read: Reading) -> WordStates:
        """Return the words of a pass that was read, in a pair those of both texts.

        `attention` (B,A,L) is the row of the last layer that the classifier answers from, by head, markers included and
        before dropout; `scores` are the input of its softmax. If the classifier answers from all rows, attention is their
        mean, without scores.
        """
        ids, mask = inputs["input_ids"], inputs["attention_mask"].bool()
        special = torch.isin(ids, self.markers.to(ids.device)) if read.special is None else read.special.bool()
        words = mask & ~special
        levels = [[StateSet(read.states, words, torch.arange(len(ids), device=ids.device))]]
        attention, scores = (None, None) if self.answers is None else self._attention(self._scores(read, ids), mask)
        return WordStates(words, mask, torch.ones_like(mask), self.vectors(ids), read.states, attention, scores, levels)

    def _scores(self, read: Reading, ids: torch.Tensor) -> torch.Tensor | None:
        """(B,A,L,L); None where the last layer does not have one score for each two positions."""
        shape = torch.Size((len(ids), self.heads, ids.shape[1], ids.shape[1]))
        return read.scores.reshape(shape) if read.scores.numel() == shape.numel() else None

    def _attention(self, scores: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        if self.answers != "all":
            places = lengths_of(mask) - 1 if self.answers == "last" else torch.zeros_like(mask[:, 0], dtype=torch.long)
            scores = scores[torch.arange(len(mask), device=mask.device), :, places].unsqueeze(2)
        weights = scores.softmax(-1) if self.softmax else attention_projection(scores, -1, config=self.model.config)
        if self.answers == "all":
            present = mask[:, None, :, None].to(weights)
            return (weights * present).sum(2) / present.sum(2).clamp(min=1), None
        return weights.squeeze(2), scores.squeeze(2) if self.softmax else None


def _answering_rows(matter: torch.Tensor) -> str | None:
    """Which rows a classifier answers from, given those that matter (L,): "first", "last", "all", or None for others."""
    count = int(matter.sum())
    if count == len(matter):
        return "all"
    return "first" if count == 1 and matter[0] else "last" if count == 1 and matter[-1] else None
