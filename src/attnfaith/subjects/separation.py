"""Whether a classifier that is told which tokens are impermissible keeps them apart from all others, as it says.

What a mask is for is seen in the weights, and what it does in what they weigh: a model may have other ways from token to
token, such as a convolution, and may answer from other rows than the first.

Shapes: L input positions, H heads, D the size of a head's values.
"""

import torch

from attnfaith.models.modeling_self_attention_classifier import kept_together
from attnfaith.subjects.attention_hook import Edit, Hook
from attnfaith.subjects.reading import Watched


ROUNDING = 1e-5
"""Largest difference of values, over the largest of them or 1, that counts as none."""


def check_separation(model, text, other: torch.Tensor, last: int) -> str | None:
    """What is wrong with how a model keeps tokens apart, seen on one text (1,L); None where nothing is.

    text: what the model is given, with tokens of both kinds. other (1,L): ids of another text. last: the number of the map
    whose rows it answers from. Nothing is wrong where no weight is between the kinds, or on the first position but its own;
    where other tokens of one kind leave values of the other kind as they are, in every map; and where the logits depend on
    the first row of the last map alone.
    """
    marked, apart = text["impermissible"][0].bool(), ~kept_together(text["impermissible"])
    first = torch.arange(len(marked), device=marked.device) == 0
    watched = Watched(Edit(), last)
    with torch.enable_grad(), Hook(1, watched) as hook:
        logits = model(**text).logits
        rows = watched.rows(logits, text["attention_mask"])[0]
    if not torch.equal(rows, first):
        places = rows.nonzero().flatten().tolist()
        where = f"positions {places}" if len(places) < len(rows) else "all positions"
        return f"its logits depend on {where} of the last layer, and kinds of tokens may meet in the first alone"
    if any(one.weights.shape[2:] != apart.shape[2:] for one in hook.maps):
        return "not all its attention is over all input positions"
    if most := max(float(one.weights.detach().masked_fill(~apart, 0).max()) for one in hook.maps):
        return f"a weight of {most:.2g} lies between tokens that it is to keep apart"
    values = [one.values.detach() for one in hook.maps]
    for kind in (marked, ~marked & ~first):
        changed = text | {"input_ids": torch.where(kind, other, text["input_ids"])}
        with torch.no_grad(), Hook(1) as again:
            model(**changed)
        stays = ~kind & ~first
        for own, one in zip(values, again.maps, strict=True):
            if float((own - one.values)[:, :, stays].abs().max()) > ROUNDING * float(own.abs().max().clamp(min=1)):
                return "what it computes of tokens of one kind depends on the other by another way than attention"
    return None
