"""Penalties on attention and on the states that it sums: callables that `AttentionTrainer` takes.

    AttentionTrainer(model, args, ..., penalties=[Diversity(0.1), ImpermissibleMass(1.0)])

To add one: a subclass of `Penalty`. It reads `WordStates`, what a forward pass makes of words, which a reader for each kind
of model collects. Shapes: B instances, L input positions, A heads, T tokens, E a word vector, H hidden, N words, V words of
the vocabulary, G target tokens. Sources: Pruthi et al. 2020 (impermissible mass), Mohankumar et al. 2020 (diversity), Tutek
& Snajder 2020 (word tying, masked words).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import nn
from torch.nn.functional import cross_entropy

from attnfaith.interventions.diagnostics import cosines_to_mean
from attnfaith.models.modeling_self_attention_classifier import attention_projection
from attnfaith.subjects import Batch, SelfAttention
from attnfaith.subjects.attention import Hook
from attnfaith.subjects.base import eager
from attnfaith.subjects.checks import Texts
from attnfaith.support.draws import generator
from attnfaith.support.errors import AttnfaithError


FLOOR = 1e-3  # least permissible weight: below it the gradient of its logarithm, 1 / weight, would drown all others
EVALUATION = -1  # stands for the step in evaluations, which mask the same words each time


@dataclass(frozen=True)
class Penalty:
    """A penalty on the words of a forward pass.

    weight: factor of its value in the loss of an instance; 0 leaves it out. A call with `WordStates`, the inputs of the
    model and the trainer returns its values (B,) and where they are defined (B,) bool.

    Raises pydantic's ValidationError, a ValueError, for options out of their range.
    """

    weight: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    name: ClassVar[str]


@dataclass(frozen=True)
class ImpermissibleMass(Penalty):
    """`impermissible_mass`; heads: its mean over heads, or its maximum."""

    heads: Literal["mean", "max"] = "mean"
    name = "impermissible_mass"

    def __call__(self, words, inputs, trainer):
        how = {"heads": self.heads, "scores": words.scores}
        mass = impermissible_mass(words.attention, words.impermissible, words.attended, **how)
        return mass, (words.attended & ~words.impermissible.bool()).any(-1)


def impermissible_mass(
    attention: torch.Tensor, impermissible: torch.Tensor, mask: torch.Tensor, *, heads: str = "mean", scores=None
) -> torch.Tensor:
    """Return -log(1 - a.m): (B,) in nats, 0 where no attention goes to impermissible tokens, infinite where all does.

    attention a (B,T), or (B,A,T) of A heads, is 0 outside the mask (B,T) and sums to 1 inside. impermissible m (B,T): 1 or
    True on the tokens that should get none, ignored outside the mask. heads: "mean" of -log(1 - a_h.m) over heads, or "max",
    that of the head with the most impermissible weight in each instance (the authors' code: in a whole batch).

    scores, in the shape of attention: the input of its softmax. The value is then LSE over all tokens - LSE over permissible
    ones, exact also where weights are rounded to 0, and attention is not read. Without scores a permissible weight below
    FLOOR counts as FLOOR, without a gradient.

    0 for a text without impermissible tokens or without tokens, and, where the value is undefined, for a text without
    permissible tokens, whose weight is impermissible whatever is learned.
    """
    marked = impermissible.bool()
    permissible, inside = mask & ~marked, mask
    learns = permissible.any(-1) & (mask & marked).any(-1)  # attention can choose
    if attention.dim() == 3:
        permissible, inside, learns = permissible[:, None], inside[:, None], learns[:, None]
    if scores is None:
        weight = (attention * permissible).sum(-1)
        logarithm = weight.to(torch.promote_types(weight.dtype, torch.float32)).clamp(min=FLOOR).log()
    else:
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        # where nothing is learned all places count, so that no gradient is that of minus infinity
        everywhere = ~learns.unsqueeze(-1)
        total = scores.masked_fill(~(inside | everywhere), -torch.inf).logsumexp(-1)
        logarithm = scores.masked_fill(~(permissible | everywhere), -torch.inf).logsumexp(-1) - total
    lost = -logarithm.clamp(max=0).masked_fill(~learns, 0)
    if lost.dim() == 1:
        return lost
    return lost.mean(1) if heads == "mean" else lost.amax(1)


def linked_mass(attention: torch.Tensor, linked: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    """Return the attention of a pair's target tokens to linked source tokens, summed over these: (B,). Divided by the number
    of target tokens it is their mean, 0..1 (Pruthi et al., section 3.3).

    attention (B,A,G,T) of heads, which are averaged; linked (B,G,T), 1 where the words are linked; counted (B,G) bool, False
    on padding. A target token without links counts as 0.
    """
    return ((attention.mean(1) * linked).sum(-1) * counted).sum(-1)


def hidden_links(mass: torch.Tensor) -> torch.Tensor:
    """Return -log(1 - mass), in nats, of the mean mass of a batch (as the authors do); 1 - mass is at least FLOOR."""
    return -(1 - mass).clamp(min=FLOOR).log()


@dataclass(frozen=True)
class Diversity(Penalty):
    """`conicity` of the states that attention sums."""

    name = "diversity"

    def __call__(self, words, inputs, trainer):
        return conicity(words.states, words.attended), words.attended.sum(-1) > 1


def conicity(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the mean over tokens of |cos(h_i, mean of h)|: (B,) in 0..1; 1 where all states lie on one line.

    states (B,T,H); mask (B,T) bool: both means leave out markers and padding. The absolute value is that of the authors'
    code; the paper writes the cosine. Undefined, and 0, for a text of fewer than two tokens, whose state is the mean.
    """
    states, count = states.to(torch.promote_types(states.dtype, torch.float32)), mask.sum(-1)
    return cosines_to_mean(states, mask).abs().sum(-1) / count.clamp(min=1) * (count > 1)


@dataclass(frozen=True)
class WordTying(Penalty):
    """`word_tying`, by the distance or its square."""

    distance: Literal["norm", "squared"] = "squared"
    name = "word_tying"

    def __call__(self, words, inputs, trainer):
        return word_tying(words.states, words.vectors, words.attended, self.distance), words.attended.any(-1)


def word_tying(states: torch.Tensor, vectors: torch.Tensor, mask: torch.Tensor, distance: str = "squared") -> torch.Tensor:
    """Return the mean over tokens of |h_i - e_i| ("norm") or of its square ("squared"): (B,), from 0 on.

    states h and word vectors e (B,T,H), of one size, both with a gradient; mask (B,T) bool, the tokens of the mean. 0 for a
    text without tokens. The gradient of a norm of 0 is 0.
    """
    apart = (states - vectors).to(torch.promote_types(states.dtype, torch.float32))
    lengths = torch.linalg.vector_norm(apart, dim=-1) if distance == "norm" else apart.square().sum(-1)
    return (lengths * mask).sum(-1) / mask.sum(-1).clamp(min=1)


def check_sizes(states: int, vectors: int) -> None:
    """Raise AttnfaithError for states and word vectors of two sizes."""
    if states != vectors:
        fault = f"a state of {states} numbers with a word vector of {vectors}"
        raise AttnfaithError(f"word tying compares {fault}: give model.hidden_size and model.embedding_size one value")


@dataclass(frozen=True)
class MaskedWords(Penalty):
    """`masked_language_model` at words masked in a second forward pass, so that labels are learned from whole texts.

    share: the probability that a word is masked. The draw depends on seed, step and text; evaluations repeat theirs.
    """

    share: Annotated[float, Field(gt=0, le=1)] = 0.15
    name = "masked_language_model"

    def __call__(self, words, inputs, trainer):
        ids, mask_id = inputs["input_ids"], trainer.mask_id
        step = trainer.state.global_step if trainer.model.training else EVALUATION
        open_ = words.attended & (ids != mask_id)
        masked = drawn_words(ids, inputs["attention_mask"], open_, self.share, seed=trainer.args.seed, step=step)
        with trainer.accelerator.autocast():
            states = trainer.model.encode(
                ids.masked_fill(masked, mask_id), inputs["attention_mask"], inputs.get("token_type_ids")
            ).hidden
            logits = getattr(trainer.model, PREDICTION)(states[masked])
        return masked_language_model(logits, ids, masked), masked.any(-1)


def masked_language_model(logits: torch.Tensor, words: torch.Tensor, masked: torch.Tensor) -> torch.Tensor:
    """Return the mean of -log p(word) over a text's masked words: (B,) in nats; undefined, and 0, for a text without any.

    masked (B,T) bool: the places of masked words; words (B,T): their ids. logits (N,V): the predictions at these N places.
    """
    losses = cross_entropy(logits.float(), words[masked], reduction="none")
    rows = masked.nonzero()[:, 0]
    sums = losses.new_zeros(len(masked)).index_add(0, rows, losses)
    return sums / masked.sum(-1).clamp(min=1)


def drawn_words(
    ids, attention_mask, words, share: float, *, seed: int, step: int, purpose="masked_language_model", varied=False
) -> torch.Tensor:
    """Draw some of the `words` of each text, (B,T) bool: each with probability `share`, or, varied, with a probability that
    is drawn uniformly from 0..`share` for each text.

    The draw depends only on seed, purpose, step and text, not on the batch or the number of processes, so a resumed training
    continues as if it had not stopped. All tensors have the shape (B,T).
    """
    numbers, inside, chosen = ids.cpu().numpy(), attention_mask.bool().cpu().numpy(), words.cpu().numpy().copy()
    for row, places in enumerate(chosen):
        text = numbers[row, inside[row]].astype(np.int64).tobytes().hex()
        random = generator(seed, f"{step}\0{text}", purpose)
        draws = random.random(int(places.sum()))
        places[places] = draws < (share * random.random() if varied else share)
    return torch.from_numpy(chosen).to(ids.device)


PREDICTION = "word_prediction"
"""Name of the layer that predicts masked words, a part of the model during training."""


class WordStates(NamedTuple):
    """One forward pass.

    attended (B,L) bool: the positions that share attention: words, in a pretrained model markers too. attention (B,L), or
    (B,A,L) of heads: the weight of each position. scores: the input of the softmax that gives the attention, in its shape;
    None for another projection. vectors (B,L,E): word vectors; states (B,L,H): of words; both None for a pretrained model.
    impermissible (B,L): 1 on impermissible words; None where the data mark none.
    """

    attended: torch.Tensor
    attention: torch.Tensor
    scores: torch.Tensor | None
    vectors: torch.Tensor | None = None
    states: torch.Tensor | None = None
    impermissible: torch.Tensor | None = None


class ClassifierReader:
    """Reads attention classifiers of this package by hooks on their parts during a forward pass.

    seed: to predict masked words, the seed of the layer from H to V that does so, which becomes a part of the model.
    """

    def __init__(self, model, seed: int | None = None):
        self.model, table, size = model, model.get_input_embeddings(), model.config.hidden_size
        if seed is not None:  # initialised as torch does, but from a random stream of its own
            layer = nn.Linear(size, table.num_embeddings, device="meta").to_empty(device="cpu")
            stream = torch.Generator().manual_seed(seed)
            for parameter in layer.parameters():
                nn.init.uniform_(parameter, -(size**-0.5), size**-0.5, generator=stream)
            setattr(model, PREDICTION, layer.to(table.weight.device))

    @contextmanager
    def reading(self, inputs: Mapping[str, torch.Tensor]) -> Iterator[dict]:
        """Record the outputs of embeddings, encoder and alignment by name."""
        base, read = self.model.model, {}
        parts = {"vectors": base.embeddings, "encoded": base.encoder, "scores": base.alignment}
        hooks = [
            part.register_forward_hook(lambda *call, name=name: read.update({name: call[-1]}))
            for name, part in parts.items()
        ]
        try:
            yield read
        finally:
            for hook in hooks:
                hook.remove()

    def word_states(self, inputs: Mapping[str, torch.Tensor], outputs, read: Mapping) -> WordStates:
        """Return the words of a pass that was read."""
        config = self.model.config
        words = self.model.attendable(inputs["input_ids"], inputs["attention_mask"], inputs.get("token_type_ids"))
        scores = read["scores"] if config.projection == "softmax" else None
        return WordStates(words, outputs.attention, scores, read["vectors"], read["encoded"][0])


class PretrainedReader:
    """Reads the attention that an encoder of transformers answers from, with gradients, from the pass of the training step:
    the first row of each head of the last layer.

    model: the classifier itself, without a wrapper for several processes. tokenizer: of the model. The reader is made once
    before training, by reading random texts; the model is unchanged.

    Raises AttnfaithError for a model whose attention cannot be trusted (`SelfAttention`), and one that does not answer from
    the first position, as BERT does.
    """

    def __init__(self, model, tokenizer):
        subject = SelfAttention(model, tokenizer)
        self.model, self.last, self.heads = model, subject.sites.layers[-1], subject.sites.heads[-1]
        self.softmax = getattr(model.config, "projection", "softmax") == "softmax"
        with subject.evaluating(), torch.no_grad():
            text = Texts(subject).inputs[0]
            matter = subject.matter(Batch.of(text, subject))[0].nonzero().flatten().tolist()
        if subject.sites.together != "padded" or matter != [0]:
            fault = f"{type(model).__name__} does not answer from its first position whatever the padding"
            raise AttnfaithError(f"penalties.impermissible_mass: {fault}; leave it out")

    @contextmanager
    def reading(self, inputs: Mapping[str, torch.Tensor]) -> Iterator[Hook]:
        """Read one forward pass of `inputs` under "eager" attention. The reading is complete afterwards."""
        with eager(self.model), Hook(len(inputs["input_ids"]), None, (self.last,)) as hook:
            yield hook

    def word_states(self, inputs: Mapping[str, torch.Tensor], outputs, hook: Hook) -> WordStates:
        """Return the attention (B,A,L) of a pass that was read, markers included and before dropout."""
        (length,) = inputs["input_ids"].shape[1:]
        scores = hook.maps[0].scores.reshape(-1, self.heads, length, length)[:, :, :1]
        weights = scores.softmax(-1) if self.softmax else attention_projection(scores, -1, config=self.model.config)
        mask = inputs["attention_mask"].bool()
        return WordStates(mask, weights.squeeze(2), scores.squeeze(2) if self.softmax else None)
