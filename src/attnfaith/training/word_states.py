"""What a forward pass makes of words, as penalties read it: `WordStates`, from a reader for each kind of model.

Shapes: B instances, L input positions, A heads, E a word vector, H a state, N words, V vocabulary.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import nn

from attnfaith.models.modeling_self_attention_classifier import attention_projection
from attnfaith.subjects import Batch, SelfAttention
from attnfaith.subjects.attention import Hook
from attnfaith.subjects.base import eager
from attnfaith.subjects.checks import Texts
from attnfaith.support.errors import AttnfaithError


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

    def word_logits(self, states: torch.Tensor) -> torch.Tensor:
        """Return what states (N,H) predict over the vocabulary: (N,V)."""
        return getattr(self.model, PREDICTION)(states)


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
