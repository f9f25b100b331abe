"""Gradients by rules: within `Rules` a model is linear, its nonlinear parts being factors held from this forward pass.

Gradient times input then shares out what is explained, layer by layer down to the embeddings, in one backward pass:
`shares`. No architecture is named here: functions are watched as they are called, and activations as modules. A model in
which something else is not linear is refused.

Shapes: B instances, L input positions, E embedding, C classes, K numbers that are explained.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from transformers.activations import ACT2CLS

from attnfaith.subjects.attention import SOFTMAX, Embedded, widened
from attnfaith.subjects.base import frozen, rounding
from attnfaith.subjects.layers import replaced, with_state
from attnfaith.subjects.protocol import SubjectError


ACTIVATIONS = frozenset("gelu silu relu relu6 tanh leaky_relu elu celu selu mish hardswish hardtanh erf special_erf".split())
GATES = frozenset({"sigmoid", "hardsigmoid"})
DIVISORS = frozenset("rsqrt sqrt std norm linalg_norm linalg_vector_norm".split())
PRODUCTS = frozenset({"mul", "__mul__", "__rmul__", "multiply"})
MATRIX_PRODUCTS = frozenset({"matmul", "__matmul__", "bmm", "baddbmm", "einsum"})
SUMS = frozenset({"add", "__add__", "__radd__"})
"""Functions of torch and methods of tensors, by name."""
CLASSES = tuple({entry[0] if isinstance(entry, tuple) else entry for entry in ACT2CLS.values()} - {nn.Identity})
NAMED = re.compile(r"gelu|relu|silu|swish|tanh|mish", re.I)


class Rules(TorchFunctionMode):
    """A context: within, gradients of a model go by these rules. Values stay what they are, up to rounding.

    Softmax ("frozen" alone) and sigmoid are held fixed. A normalisation is the subtraction of the mean, where it has one,
    and a division by what it divides by, held fixed. An activation y of x is x times y / x, held fixed, and its slope where
    x is 0; one that is not 0 at 0 is held fixed as a whole. Of a product of two factors that both depend on the text:
    "frozen": the one that an activation made, the gate, is held fixed; "halved": each has half the gradient, those of
    attention's products too. In both, what is 1 + tanh or 1 + erf is the slope of an activation that is written out, and
    held fixed. The model is as it was afterwards.
    """

    def __init__(self, model, rules: str = "frozen"):
        super().__init__()
        self.model, self.rules = model, rules
        # results of activations, and what sums of them with numbers are; held so that no id comes twice
        self._gates: dict[int, torch.Tensor] = {}
        self._slopes: dict[int, torch.Tensor] = {}

    def __enter__(self):
        def acted(module, args, output):
            if not args or not (_follows(args[0]) and _follows(output)):
                return output
            return self._activated(module.forward, args[0], output)

        self._handles = [module.register_forward_hook(acted) for module in self.model.modules() if is_activation(module)]
        return super().__enter__()

    def __exit__(self, *error):
        for handle in self._handles:
            handle.remove()
        self._gates.clear()
        self._slopes.clear()
        return super().__exit__(*error)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs, name = kwargs or {}, getattr(function, "__name__", "")
        if name in ACTIVATIONS and _follows(args[0]):
            inplace = {"inplace": False} if "inplace" in kwargs else {}

            def applied(values):
                return function(values, *args[1:], **kwargs | inplace)

            return self._activated(applied, args[0], applied(args[0].detach()))
        if name in PRODUCTS and len(args) == 2 and all(map(_follows, args)):
            return self._product(function, args)
        if name in MATRIX_PRODUCTS and self.rules == "halved" and sum(map(_follows, args)) == 2:
            return halved(function(*args, **kwargs))
        if name in NORMS and _follows(args[0]):
            return NORMS[name](*args, **kwargs)
        result = function(*args, **kwargs)
        if name in SUMS and any(id(value) in self._gates for value in args) and not all(map(_follows, args)):
            self._slopes[id(result)] = result
        is_softmax = function in SOFTMAX or getattr(function, "is_attention", False)
        is_held = name in GATES | DIVISORS or (is_softmax and self.rules == "frozen")
        return result.detach() if is_held or (name == "pow" and _is_root(args, kwargs)) else result

    def _activated(self, function: Callable, values: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
        result = result.detach()
        with torch.enable_grad():
            zero = torch.zeros(1, dtype=values.dtype, device=values.device, requires_grad=True)
            start = function(zero)
            if not isinstance(start, torch.Tensor):  # such as a quantised one's, with its scale
                return result
            (slope,) = torch.autograd.grad(start.sum(), [zero], materialize_grads=True)
        if float(start.detach()) != 0:
            return result
        result = values * torch.where(values.detach() == 0, slope, result / values.detach())
        self._gates[id(result)] = result
        return result

    def _product(self, function, args):
        for results in (self._slopes, self._gates) if self.rules == "frozen" else (self._slopes,):
            held = [id(value) in results for value in args]
            if sum(held) == 1:
                return function(*(value.detach() if is_held else value for value, is_held in zip(args, held, strict=True)))
        return halved(function(*args)) if self.rules == "halved" else function(*args)


def halved(values: torch.Tensor) -> torch.Tensor:
    """The same values, of half the gradient."""
    return values / 2 + values.detach() / 2


def is_activation(module: nn.Module) -> bool:
    """Whether a module is an activation function, by its class or, where it has nothing inside, by its name."""
    empty = not any(True for _ in module.children()) and not any(True for _ in module.parameters())
    return isinstance(module, CLASSES) or (empty and bool(NAMED.search(type(module).__name__)))


def _follows(values) -> bool:
    return isinstance(values, torch.Tensor) and values.requires_grad


def _is_root(args, kwargs) -> bool:
    exponent = args[1] if len(args) > 1 else kwargs.get("exponent")
    return isinstance(exponent, float) and abs(exponent) == 0.5


def _layer_norm(values, shape, weight=None, bias=None, eps=1e-5, *_):
    axes = tuple(range(-len(shape), 0))
    spread = values.detach().var(axes, keepdim=True, unbiased=False)
    result = (values - values.mean(axes, keepdim=True)) * (spread + eps).rsqrt()
    result = result if weight is None else result * weight
    return result if bias is None else result + bias


def _rms_norm(values, shape, weight=None, eps=None):
    eps = torch.finfo(values.dtype).eps if eps is None else eps
    result = values * (values.detach().square().mean(tuple(range(-len(shape), 0)), keepdim=True) + eps).rsqrt()
    return result if weight is None else result * weight


NORMS = {"layer_norm": _layer_norm, "rms_norm": _rms_norm}


@torch.no_grad()
def shares(subject, batch, explain: Callable, rules: str, inputs: str = "layer") -> tuple[torch.Tensor, torch.Tensor]:
    """The numbers (B,K) that are explained, and the share (B,K,L) of each input position in them, 0 behind shorter texts, in
    float64: gradient times input at `inputs`, under `rules`. The rest is the share of biases and, for "table", of positions.

    explain(logits (n,C), rows (n,)) → (n,) or (n,K), the numbers of the instances `rows`. rules: see `Rules`. inputs:
    "layer", what the first layer reads, or "table", the embeddings.
    """
    groups, width, values, parts = subject.groups(batch), batch["input_ids"].shape[1], [], []
    for rows, length in groups:
        part = batch.take(rows, length)
        arguments = subject.model_inputs(part)
        with _differentiable(subject), frozen(subject.model), Rules(subject.model, rules), ExitStack() as stack:
            if inputs == "table":
                states = [subject.embed(part).detach().requires_grad_()]
                stack.enter_context(Embedded(subject.vocabulary(), arguments["input_ids"], states[0]))
            else:
                states = stack.enter_context(cut(subject))
            numbers = explain(widened(subject.model(**arguments).logits), rows)
            numbers, leaf = numbers.reshape(len(rows), -1), states[-1]
            slopes = [
                torch.autograd.grad(number.sum(), [leaf], retain_graph=True, materialize_grads=True)[0]
                for number in numbers.unbind(1)
            ]
        products = torch.stack([(widened(leaf) * widened(slope)).sum(-1, dtype=torch.float64) for slope in slopes], 1)
        products = products.masked_fill(arguments["attention_mask"].unsqueeze(1) == 0, 0)
        values.append(numbers.double())
        parts.append(torch.nn.functional.pad(products, (0, width - length)))
    back = torch.cat([rows for rows, _ in groups]).argsort()
    return torch.cat(values)[back], torch.cat(parts)[back]


@contextmanager
def _differentiable(subject) -> Iterator[None]:
    """Within, gradients can be taken of a model in eval mode; of its LSTMs cuDNN would take none."""
    with subject.evaluating(), torch.backends.cudnn.flags(enabled=False), torch.enable_grad():
        yield


@contextmanager
def cut(subject) -> Iterator[list[torch.Tensor]]:
    """Within, what the first layer of a model reads is a leaf; the list holds its states and the leaf once it has run."""
    found: list[torch.Tensor] = []

    def leaf(states):
        found.extend((states, states.detach().requires_grad_()))
        return found[1]

    def call(forward, *args, **kwargs):
        args, kwargs = (args, kwargs) if found else with_state(args, kwargs, leaf)
        return forward(*args, **kwargs)

    with replaced([subject.model.get_submodule(subject.sites.blocks[0])], "forward", call):
        yield found


def check_rules(subject, text: dict, inputs: str) -> None:
    """Raise SubjectError where a model under the rule "frozen" is not affine in the embeddings of a text (1,L), and, for
    inputs "layer", where its first layer does not read one vector for each token, or not all of the text.
    """
    model, leaf = subject.model, subject.embed(text).detach().requires_grad_()
    with _differentiable(subject), Rules(model), Embedded(subject.vocabulary(), text["input_ids"], leaf):
        logits = model(**text).logits
        weights = torch.linspace(1, 2, logits.numel(), dtype=logits.dtype, device=logits.device).view_as(logits)
        (slope,) = torch.autograd.grad((logits * weights).sum(), [leaf], create_graph=True, materialize_grads=True)
        if slope.requires_grad:
            (second,) = torch.autograd.grad((slope * leaf.detach()).sum(), [leaf], materialize_grads=True)
            if float(second.abs().max()) > rounding(model) * float(slope.detach().abs().max()):
                raise SubjectError(
                    f"{type(model).__name__} is not linear with its attention, divisors and activations held fixed: a part "
                    "of it is something else, for which there is no rule"
                )
    if inputs == "layer" and not (subject.sites.blocks and _reads_tokens(subject, text)):
        raise SubjectError(
            f"the first layer of {type(model).__name__} does not read one vector for each token, or is not all that "
            "reads them: take inputs='table'"
        )


@torch.enable_grad()
def _reads_tokens(subject, text: dict) -> bool:
    embedded = subject.embed(text).detach().requires_grad_()
    with subject.evaluating(), Embedded(subject.vocabulary(), text["input_ids"], embedded), cut(subject) as found:
        logits = subject.model(**text).logits
    if torch.autograd.grad(logits.sum(), [embedded], allow_unused=True)[0] is not None:
        return False
    states = found[0][0]
    weights = torch.linspace(1, 2, states.shape[1], dtype=states.dtype, device=states.device).cos()
    for place in (2, len(states) - 2):
        total = (states[place] * weights).sum()
        (slope,) = torch.autograd.grad(total, [embedded], retain_graph=True, materialize_grads=True)
        if slope[0].any(1).nonzero().flatten().tolist() != [place]:
            return False
    return True
