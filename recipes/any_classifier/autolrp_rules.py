"""autoLRP 0.2's AttnLRP worked out from gradients, and the rules that make autoLRP give ours.

Both have the same rules for attention's products, for softmax and for activations. They differ in four:

* what is shared out: 1 in autoLRP, f in ours;
* a sum, of a residual connection or of embeddings: by absolute values in autoLRP, by the summands in ours;
* a bias: by absolute values, as one summand, in autoLRP; by the summands in ours;
* a layer norm: in autoLRP what it gives hands its relevance on to what it reads, element by element, but its bias's part;
  in ours it is linear, its spread held.

`relevance_by_size` is the first of each, and needs no autoLRP; `signed_autolrp` has autoLRP follow the second of each. In
ours they are those of lxt, by authors of the method (Achtibat et al. 2024).
"""

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from attnfaith.subjects.attention import Hook
from attnfaith.subjects.backward_rules import SUMS, Halves, Rules


class BySize(TorchFunctionMode):
    """A context: within, sums, biases and layer norms have gradients whose product with their inputs is autoLRP's relevance,
    over the value that is explained. Values stay what they are, up to rounding.
    """

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if any(isinstance(one, torch.Tensor) and one.requires_grad for one in args):
            if function in SUMS:
                return _by_size(*args)
            if function is functional.linear:
                return _linear(*args, **kwargs)
            if function is functional.layer_norm:
                return _layer_norm(*args, **kwargs)
        return function(*args, **kwargs)


def _by_size(one, other):
    sizes = one.abs() + other.abs()
    return sizes * ((one + other) / sizes).detach()


def _linear(values, weight, bias=None):
    result = functional.linear(values, weight)
    return result if bias is None else _by_size(result, bias)


def _layer_norm(values, shape, weight, bias, eps):
    straight = functional.layer_norm(values, shape, weight, None, eps)
    return _by_size(values * (straight / values).detach(), bias)


def relevance_by_size(model, given: dict, embedded: torch.Tensor) -> torch.Tensor:
    """(L,): the relevance of each token for the predicted class's logit, which is 1, as autoLRP has it.

    model: in eval mode, its attention "eager". given: what it is called with but ids. embedded (1,L,E).
    """
    leaf = embedded.detach().requires_grad_()
    with torch.enable_grad(), Rules(model, "halved"), Hook(1, Halves()), BySize():
        logit = model(inputs_embeds=leaf, **given).logits[0].max()
        (slope,) = torch.autograd.grad(logit, leaf)
    return (slope * leaf / logit).detach().sum(-1)[0]


def own_autolrp(model, given: dict, embedded: torch.Tensor) -> torch.Tensor:
    """(L,): what autoLRP gives; arguments and result as `relevance_by_size` has them."""
    return _autolrp(model, given, embedded)[0]


def signed_autolrp(model, given: dict, embedded: torch.Tensor) -> torch.Tensor:
    """The same, when autoLRP is told the rules of ours; in units of the logit."""
    import autolrp
    from autolrp.forward.intercept import REWRITES

    autolrp.register_rewrite("linear", linear_as_sum)  # a bias is then one of two summands
    try:
        shares, logit = _autolrp(model, given, embedded, AddBackward=signed_sum, NativeLayerNormBackward=spread_held)
    finally:
        REWRITES.pop("linear")
    return shares * logit


def _autolrp(model, given, embedded, **rules):
    import autolrp

    inputs = autolrp.tensor(embedded)
    logits = model(inputs_embeds=inputs, **given).logits
    logit = logits[0, int(logits.argmax())]
    logit.lrp(config=autolrp.LRPConfig(rule={**autolrp.BASE, **autolrp.ATTNLRP, **rules}))
    return inputs.relevance.detach().sum(-1)[0], float(logit.detach())


def signed_sum(one, other, relevance, eps, *_, attribute="both"):
    """What a sum hands on to its two summands."""
    share = relevance / (one + other)
    return one * share, other * share


def spread_held(values, _, relevance, eps, *, weight, bias, mean, rstd, **_shape):
    """What a layer norm hands on to what it reads."""
    slopes = relevance / ((values - mean) * rstd * weight + bias) * weight * rstd
    return values * (slopes - slopes.mean(-1, keepdim=True))


def linear_as_sum(values, weight, bias=None):
    """A linear layer as a product and a sum."""
    product = torch.matmul(values, weight.T)
    return product if bias is None else product + bias
