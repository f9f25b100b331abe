"""Hiding what is translated: a penalty on the attention of a target word to the source words that it is a translation of.

Shapes: B instances, A heads, G target tokens, T source tokens. Source: Pruthi et al. 2020, "Learning to Deceive with
Attention-Based Explanations", section 3.3, and their code.
"""

import torch

from attnfaith.objectives.impermissible_mass import FLOOR


def linked_mass(attention: torch.Tensor, linked: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    """The mean over target tokens of a batch of the attention that goes to linked source tokens: (), 0..1.

    attention (B,G,T), or (B,A,G,T) of heads, whose mean is taken; linked (B,G,T), 1 where the words of both are linked;
    counted (B,G) bool, False on padding. A target token without links, such as the end of a sentence, counts and gives 0.
    """
    if attention.dim() == 4:
        attention = attention.mean(1)
    return ((attention * linked).sum(-1) * counted).sum() / counted.sum()


def hidden_links(mass: torch.Tensor, floor: float = FLOOR) -> torch.Tensor:
    """-log(1 - mass): () in nats, 0 where no attention goes to linked source tokens.

    Of the mean mass of a batch, inside the logarithm, as in the authors' code: a token whose whole attention is on what it
    translates then costs no more than its share. Below `floor` the rest counts as that much, and has no gradient.
    """
    return -(1 - mass).clamp(min=floor).log()
