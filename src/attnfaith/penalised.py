"""A Trainer that adds penalties to the loss of each instance, and says what they come to.

Shapes: B instances, L input positions, H hidden, V words of the vocabulary.
"""

from collections.abc import Mapping

import torch
from torch import nn
from transformers import Trainer

from attnfaith.errors import AttnfaithError
from attnfaith.objectives import (
    Penalties,
    check_sizes,
    conicity,
    drawn_words,
    impermissible_mass,
    masked_language_model,
    word_tying,
)
from attnfaith.word_states import WordStates, states_of_words, watched, word_states


PREDICTION = "word_prediction"
"""Name of the layer that predicts masked words, a part of the model while it is trained."""
EVALUATION = -1  # in place of a step, where the same words are masked each time
Values = dict[str, tuple[torch.Tensor, torch.Tensor]]
"""Penalty -> its value (B,) before it is weighted, and where that is defined (B,)."""


class PenalisedTrainer(Trainer):
    """What trainers on labels share: `penalties`, none where it is None.

    Logs have the mean of each penalty beside the loss, before it is weighted, over the texts of which it is defined, and the
    number of the others where there are any (`diversity_undefined`); evaluations have the means. The loss of an evaluation
    has the weighted penalties in it, as that of training.

    Masked words are predicted by a layer on the states (H to V), which is trained with the model, kept in its checkpoints,
    and no part of `trained_model`. They are masked in a pass of their own, so that labels are learned from whole texts.
    Which words depends on seed, step and text; evaluations mask the same ones each time.

    In a hierarchical model words are read by sentence: an impermissible word has its weight in the sentence times that of
    the sentence; diversity is the mean of that of the sentences' states and that of the words' in each sentence of two or
    more.

    Raises AttnfaithError where states and word vectors that are to be tied have two sizes, and where words are to be masked
    and there is neither a mask nor an unknown token.
    """

    def __init__(self, *args, penalties: Penalties | None = None, **kwargs):
        super().__init__(*args, **kwargs)
        self.penalties = penalties or Penalties()
        self.sums: dict[str, torch.Tensor] = {}  # penalty -> sum, number defined and number not, since the last log
        self.prepare()

    def prepare(self) -> None:
        """What penalties need besides the model, and whether it has what they are of."""
        config, vectors = self.model.config, self.model.get_input_embeddings()
        if self.penalties.word_tying:
            check_sizes(config.hidden_size, vectors.embedding_dim)
        if self.penalties.masked_language_model:
            self.mask_id = mask_id(self.processing_class, config)
            setattr(self.model, PREDICTION, prediction_layer(config.hidden_size, vectors, self.args.seed))

    def predicted(self, model, inputs: Mapping, impermissible: torch.Tensor | None):
        """The model's outputs for a batch, and the penalties of its instances (`Values`)."""
        if not self.penalties.taken:
            return model(**inputs), {}
        stages = self.accelerator.unwrap_model(model)
        with watched(stages) as seen:
            # within the forward pass, where several processes look for the parameters that have a part in the loss
            hook = stages.register_forward_hook(
                lambda _, __, outputs: (outputs, self.values(stages, inputs, outputs, seen, impermissible))
            )
            try:
                return model(**inputs)
            finally:
                hook.remove()

    def values(self, stages, inputs: Mapping, outputs, seen: Mapping, impermissible: torch.Tensor | None) -> Values:
        """The penalties of a forward pass that was `watched`."""
        given, taken = self.word_states(stages, inputs, outputs, seen), self.penalties.taken
        values, words = {}, given.words
        if "impermissible_mass" in taken:
            mass = impermissible_mass(
                given.attention, impermissible, given.attended, heads=self.penalties.impermissible_heads, scores=given.scores
            )
            values["impermissible_mass"] = mass, (given.attended & ~impermissible.bool()).any(-1)
        if "diversity" in taken:
            values["diversity"] = diversity(given)
        if "word_tying" in taken:
            tied = given.text if self.penalties.word_tying_padding else words
            distance = word_tying(given.states, given.vectors, tied, self.penalties.word_tying_distance)
            values["word_tying"] = distance, tied.any(-1)
        if "masked_language_model" in taken:
            values["masked_language_model"] = self.masked_words(stages, inputs, words)
        return values

    def word_states(self, stages, inputs: Mapping, outputs, seen: Mapping) -> WordStates:
        """What a forward pass made of words."""
        return word_states(stages, inputs, outputs, seen)

    def masked_words(self, stages, inputs: Mapping, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The penalty (B,) on masked words that their states do not tell, and which texts have any (B,)."""
        ids, step = inputs["input_ids"], self.state.global_step if stages.training else EVALUATION
        open_, share = words & (ids != self.mask_id), self.penalties.masked_share
        masked = drawn_words(ids, inputs["attention_mask"], open_, share, seed=self.args.seed, step=step)
        with self.accelerator.autocast():
            states = self.states({**inputs, "input_ids": ids.masked_fill(masked, self.mask_id)}, stages)
            logits = self.word_logits(stages, states[masked])
        return masked_language_model(logits, ids, masked), masked.any(-1)

    def states(self, inputs: Mapping, stages) -> torch.Tensor:
        """The states (B,L,H) of the words of a batch."""
        text = {name: inputs.get(name) for name in ("input_ids", "attention_mask", "token_type_ids")}
        with watched(stages) as seen:
            stages.model.encode(**text)
        return states_of_words(stages, stages.items(**text), seen)

    def word_logits(self, stages, states: torch.Tensor) -> torch.Tensor:
        """What states (N,H) say of the vocabulary: (N,V)."""
        return getattr(stages, PREDICTION)(states)

    def penalised(
        self, losses: torch.Tensor, values: Values, training: bool
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The losses (B,) with the weighted penalties, and what evaluations average: each penalty (B,), NaN if undefined."""
        scores = {}
        for name, weight in self.penalties.taken.items():
            value, defined = values[name]
            losses = losses + weight * value
            if training:
                counted = value.detach().double() * defined
                counts = torch.stack([counted.sum(), defined.sum(), (~defined).sum()])
                self.sums[name] = self.sums.get(name, 0) + counts
            else:
                scores[name] = value.where(defined, torch.nan)
        return losses, scores

    def log(self, logs, start_time=None):
        if "loss" in logs:
            for name, sums in self.sums.items():
                total, count, undefined = self.accelerator.reduce(sums, "sum").tolist()
                logs[name] = total / count if count else float("nan")
                logs.update({f"{name}_undefined": undefined} if undefined else {})
            self.sums = {}
        super().log(logs, start_time)

    def trained_model(self):
        """The model without what only its training needed."""
        if hasattr(self.model, PREDICTION):
            delattr(self.model, PREDICTION)
        return self.model


def diversity(given: WordStates) -> tuple[torch.Tensor, torch.Tensor]:
    """The conicity (B,) of what attention sums, the mean of its levels, and where that is defined."""
    means, several = [], torch.zeros(len(given.words), dtype=torch.bool, device=given.words.device)
    for sets in given.levels:
        sums = torch.zeros(2, len(given.words), device=given.words.device)
        for states, mask, rows in sets:
            values = torch.stack([conicity(states, mask).float(), (mask.sum(-1) > 1).float()])
            sums = sums.index_add(1, rows, values)
        means.append(sums[0] / sums[1].clamp(min=1))
        several = several | (sums[1] > 0)
    return sum(means) / len(means), several


def mask_id(tokenizer, config) -> int:
    """The token that stands for a masked word: the tokenizer's mask, or the unknown token. AttnfaithError: there is none."""
    ids = (getattr(tokenizer, "mask_token_id", None), getattr(tokenizer, "unk_token_id", None))
    known = [number for number in (*ids, getattr(config, "unk_token_id", None)) if number is not None]
    if not known:
        raise AttnfaithError(
            "penalties.masked_language_model puts a token in the place of a word, and this tokenizer has neither a mask nor "
            "an unknown token: leave it out, or take another tokenizer"
        )
    return known[0]


def prediction_layer(size: int, vectors: nn.Embedding, seed: int) -> nn.Linear:
    """A layer from states to words, drawn as torch draws one, from a stream of its own: nothing else is drawn otherwise."""
    layer = nn.Linear(size, vectors.num_embeddings, device="meta").to_empty(device="cpu")
    stream = torch.Generator().manual_seed(seed)
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -(size**-0.5), size**-0.5, generator=stream)
    return layer.to(vectors.weight.device)
