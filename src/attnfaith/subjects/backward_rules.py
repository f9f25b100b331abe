"""Gradients by rules: within `Rules` a model is linear, its nonlinear parts being factors held from this forward pass.

Gradient times input then shares out what is explained, layer by layer down to the embeddings, in one backward pass:
`shares`. No architecture is named here: functions are watched as they are called, and activations as modules. A model in
which something else is not linear is refused.

Shapes: B instances, L input positions, E embedding, S the size of a state, C classes, K numbers that are explained.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from transformers.activations import ACT2CLS

from attnfaith.subjects.attention import SOFTMAX, Edit, Embedded, Hook, nothing, widened
from attnfaith.subjects.base import frozen, precision
from attnfaith.subjects.layers import block_candidates, with_state
from attnfaith.subjects.protocol import SubjectError


RULES = ("frozen", "halved")
SAME = 1e-4
"""A second derivative, over the first, that counts as rounding."""

ACTIVATIONS = frozenset(
    {
        *(functional.gelu, functional.silu, functional.relu, torch.relu, torch.Tensor.relu, functional.relu6),
        *(torch.tanh, torch.Tensor.tanh, functional.tanh, functional.leaky_relu, functional.elu, functional.celu),
        *(torch.selu, functional.selu, functional.mish, functional.hardswish, functional.hardtanh),
        *(torch.erf, torch.Tensor.erf, torch.special.erf),
    }
)
GATES = frozenset({torch.sigmoid, torch.Tensor.sigmoid, functional.sigmoid, functional.hardsigmoid})
DIVISORS = frozenset(
    {
        *(torch.rsqrt, torch.Tensor.rsqrt, torch.sqrt, torch.Tensor.sqrt, torch.std, torch.Tensor.std),
        *(torch.norm, torch.Tensor.norm, torch.linalg.norm, torch.linalg.vector_norm),
    }
)
PRODUCTS = frozenset({torch.mul, torch.Tensor.mul, torch.Tensor.__mul__, torch.Tensor.__rmul__, torch.multiply})
SUMS = frozenset({torch.add, torch.Tensor.add, torch.Tensor.__add__, torch.Tensor.__radd__})
POWERS = frozenset({torch.pow, torch.Tensor.pow, torch.Tensor.__pow__})
CLASSES = tuple({entry[0] if isinstance(entry, tuple) else entry for entry in ACT2CLS.values()} - {nn.Identity})
NAMED = re.compile(r"gelu|relu|silu|swish|tanh|mish", re.I)


class Rules(TorchFunctionMode):
    """A context: within, gradients of a model go by these rules. Values stay what they are, up to rounding.

    Softmax ("frozen" alone) and sigmoid are held fixed. A normalisation is the subtraction of the mean, where it has one,
    and a division by what it divides by, held fixed. An activation y of x is x times y / x, held fixed, and its slope where
    x is 0; one that is not 0 at 0 is held fixed as a whole. Of a product of two factors that both depend on the text:
    "frozen": the one that an activation made, the gate, is held fixed; "halved": each has half the gradient. In both,
    what is 1 + tanh or 1 + erf is the slope of an activation that is written out, and held fixed.

    The model is as it was afterwards.
    """

    def __init__(self, model, rules: str = "frozen"):
        super().__init__()
        if rules not in RULES:
            raise ValueError(f"rules={rules!r}; choose one of {', '.join(RULES)}")
        self.model, self.rules = model, rules
        # results of activations, and what sums of them with numbers are; held so that no id comes twice
        self._gates: dict[int, torch.Tensor] = {}
        self._slopes: dict[int, torch.Tensor] = {}
        self._handles: list = []

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
        kwargs = kwargs or {}
        if function in ACTIVATIONS and _follows(args[0]):
            inplace = {"inplace": False} if "inplace" in kwargs else {}
            rest = {name: value for name, value in kwargs.items() if name != "inplace"} | inplace

            def applied(values):
                return function(values, *args[1:], **rest)

            return self._activated(applied, args[0], applied(args[0].detach()))
        if function in PRODUCTS and len(args) == 2 and all(map(_follows, args)):
            return self._product(function, args)
        if function in (functional.layer_norm, torch.layer_norm) and _follows(args[0]):
            return _layer_norm(*args, **kwargs)
        if function is functional.rms_norm and _follows(args[0]):
            return _rms_norm(*args, **kwargs)
        result = function(*args, **kwargs)
        if function in GATES:
            return result.detach()
        if function in SUMS and any(id(value) in self._gates for value in args) and not all(map(_follows, args)):
            self._slopes[id(result)] = result
        if function in DIVISORS or self._is_held(function) or (function in POWERS and _is_root(args, kwargs)):
            return result.detach()
        return result

    def _is_held(self, function) -> bool:
        return self.rules == "frozen" and (function in SOFTMAX or getattr(function, "is_attention", False))

    def _activated(self, function: Callable, values: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
        result = result.detach()
        with torch.enable_grad():
            zero = torch.zeros(1, dtype=values.dtype, device=values.device, requires_grad=True)
            start = function(zero)
            if not isinstance(start, torch.Tensor):  # such as a quantised one's, with its scale
                return result
            (slope,) = torch.autograd.grad(start.sum(), [zero], allow_unused=True)
        if float(start.detach()) != 0:
            return result
        factor = torch.where(
            values.detach() == 0, torch.zeros_like(zero) if slope is None else slope, result / values.detach()
        )
        result = values * factor
        self._gates[id(result)] = result
        return result

    def _product(self, function, args):
        for results in (self._slopes, self._gates) if self.rules == "frozen" else (self._slopes,):
            held = [id(value) in results for value in args]
            if sum(held) == 1:
                return function(*(value.detach() if is_held else value for value, is_held in zip(args, held, strict=True)))
        return halved(function(*args)) if self.rules == "halved" else function(*args)


class Halves(Edit):
    """Products of attention, of queries with keys and of weights with values, give each factor half the gradient."""

    def scores(self, number, scores):
        return halved(scores)

    def weights(self, number, weights):
        return halved(weights)

    def values(self, number, values):
        return halved(values)


def halved(values: torch.Tensor) -> torch.Tensor:
    """The same values, of half the gradient."""
    return values / 2 + values.detach() / 2


def is_activation(module: nn.Module) -> bool:
    """Whether a module is an activation function, by its class or, where it has nothing inside, by its name."""
    empty = not any(True for _ in module.children()) and not any(True for _ in module.parameters())
    return isinstance(module, CLASSES) or (empty and bool(NAMED.search(type(module).__name__)))


def check_affine(model, text: dict, embedded: torch.Tensor, reading: Callable) -> None:
    """Raise SubjectError where a model under the rule "frozen" is not affine in embeddings (1,L,E).

    text: what the model is given; reading(embedded): a context in which it reads these embeddings.
    """
    leaf = embedded.detach().requires_grad_()
    with torch.enable_grad(), Rules(model), reading(leaf):
        logits = model(**text).logits
        weights = torch.linspace(1, 2, logits.numel(), dtype=logits.dtype, device=logits.device).view_as(logits)
        (slope,) = torch.autograd.grad((logits * weights).sum(), [leaf], create_graph=True, allow_unused=True)
        if slope is None or not slope.requires_grad:
            return
        (second,) = torch.autograd.grad((slope * leaf.detach()).sum(), [leaf], allow_unused=True)
    if second is None or float(second.abs().max()) <= max(SAME, 8 * precision(model)) * float(slope.detach().abs().max()):
        return
    raise SubjectError(
        f"{type(model).__name__} is not linear with its attention, divisors and activations held fixed: a part of it is "
        "something else, for which there is no rule"
    )


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


@dataclass(frozen=True)
class Shares:
    """values (B,K): what is explained. per_position (B,K,L): the share of each input position, 0 behind shorter texts. In
    float64. The rest of a value is the share of biases and start tokens and, for inputs "table", of positions.
    """

    values: torch.Tensor
    per_position: torch.Tensor


@dataclass(frozen=True)
class Entry:
    """Where a stack of layers begins.

    modules: names of its layers; the first that is called reads the texts. later: by how many places its input comes later
    than the token, 1 in a decoder that reads its text shifted. turned: whether places come before instances.
    """

    modules: tuple[str, ...]
    later: int
    turned: bool


@torch.no_grad()
def shares(subject, batch, explain: Callable, rules: str | None = None, inputs: str = "layer") -> Shares:
    """The share of each input position in the numbers that are explained: gradient times input at `inputs`, under `rules`.

    explain(logits (n,C), rows (n,)) → (n,) or (n,K), the numbers of the instances `rows`. rules: "frozen" or "halved", which
    halves the gradients of attention's products as well, see `Rules`; None: plain gradients.

    Raises SubjectError where inputs is "layer" and a model's first layer does not read one vector for each token.
    """
    count, width = batch["input_ids"].shape
    values = per_position = None
    for rows, length in subject.groups(batch):
        numbers, group_shares = _shares(subject, batch.take(rows, length), rows, explain, rules, inputs)
        if values is None:
            values = numbers.new_zeros(count, numbers.shape[1])
            per_position = group_shares.new_zeros(count, numbers.shape[1], width)
        values[rows] = numbers
        per_position[rows, :, :length] = group_shares
    return Shares(values, per_position)


def check_rules(subject, text: dict) -> None:
    """Raise SubjectError for a model with something that no rule of `Rules` is for."""
    with subject.evaluating(), torch.backends.cudnn.flags(enabled=False):
        embedded = subject.embed(text)
        check_affine(subject.model, text, embedded, lambda leaf: Embedded(subject.vocabulary(), text["input_ids"], leaf))


def _shares(subject, batch, rows: torch.Tensor, explain: Callable, rules: str | None, inputs: str):
    """The numbers (n,K) of instances that are read together, and the shares (n,K,L) of their positions."""
    model, arguments = subject.model, subject.model_inputs(batch)
    with ExitStack() as stack:
        stack.enter_context(subject.evaluating())
        stack.enter_context(torch.backends.cudnn.flags(enabled=False))  # it refuses backward passes in eval mode
        stack.enter_context(torch.enable_grad())
        stack.enter_context(frozen(model))
        if rules is not None:
            stack.enter_context(Rules(model, rules))
        if rules == "halved":
            stack.enter_context(Hook(len(rows), Halves(), nothing))
        if inputs == "table":
            entries, leaves = [Entry((), 0, False)], [subject.embed(batch).detach().requires_grad_()]
            stack.enter_context(Embedded(subject.vocabulary(), arguments["input_ids"], leaves[0]))
        else:
            entries, leaves = subject.entries, stack.enter_context(cut(model, subject.entries))
        numbers = explain(widened(model(**arguments).logits), rows)
        numbers = numbers.unsqueeze(1) if numbers.dim() == 1 else numbers
        parts = []
        for number in numbers.unbind(1):
            slopes = torch.autograd.grad(number.sum(), leaves, allow_unused=True, retain_graph=True)
            part = torch.zeros(arguments["input_ids"].shape, dtype=torch.float64, device=numbers.device)
            for entry, leaf, slope in zip(entries, leaves, slopes, strict=True):
                if slope is not None:
                    part = part + _at_tokens((widened(leaf.detach()) * widened(slope)).sum(-1, dtype=torch.float64), entry)
            parts.append(part)
    mask = arguments["attention_mask"].bool().unsqueeze(1)
    return numbers.detach().double(), torch.stack(parts, 1).masked_fill(~mask, 0)


def _at_tokens(values: torch.Tensor, entry: Entry) -> torch.Tensor:
    """Values (B,L) at the places of tokens, from values at the places of a stack of layers."""
    values = values.T if entry.turned else values
    return nn.functional.pad(values[:, entry.later :], (0, entry.later)) if entry.later else values


@contextmanager
def cut(model, entries: list[Entry]) -> Iterator[list[torch.Tensor]]:
    """Within, the first input of each stack of layers is a leaf; the list holds these once the model has run."""
    leaves: list[torch.Tensor] = []

    def leaf(states):
        leaves.append(states.detach().requires_grad_())
        return leaves[-1]

    with ExitStack() as stack:
        for entry in entries:
            stack.enter_context(_first(model, entry.modules, leaf))
        yield leaves


@contextmanager
def _first(model, names: Sequence[str], replace: Callable) -> Iterator[None]:
    """Within, the first of these modules to be called reads replace(states) in place of its states."""
    called = False

    def enter(module, args, kwargs):
        nonlocal called
        if called:
            return None
        called = True
        return with_state(args, kwargs, replace)

    with ExitStack() as stack:
        for name in names:
            stack.enter_context(model.get_submodule(name).register_forward_pre_hook(enter, with_kwargs=True))
        yield


def find_entries(subject, text: dict, names: list[str]) -> list[Entry]:
    """Where the stacks of layers of a model begin, from one text (1,L) and the names of the modules that make its maps.

    Raises SubjectError where the input of a first layer is not one vector for each token, and where the logits depend on
    tokens by another way.
    """
    model, ids = subject.model, text["input_ids"]
    refusal = SubjectError(
        f"the first layer of {type(model).__name__} does not read one vector for each token, or is not all that reads them: "
        "take inputs='table'"
    )
    stacks: dict[str, list[str]] = {}
    for name in names:
        layer = next(block_candidates(model, [name]), None)
        if not layer:
            raise refusal
        layers = stacks.setdefault(layer[0].rpartition(".")[0], [])
        if layer[0] not in layers:
            layers.append(layer[0])
    with torch.enable_grad():
        embedded = subject.embed(text).detach().requires_grad_()
        inputs: list[torch.Tensor] = []
        with ExitStack() as stack:
            stack.enter_context(Embedded(subject.vocabulary(), ids, embedded))
            for layers in stacks.values():
                stack.enter_context(_first(model, layers, lambda states: inputs.append(states) or states))
            model(**text)
        if len(inputs) != len(stacks):
            raise refusal
        # stacks were entered in the order of their maps, and are called in it
        pairs = zip(stacks.values(), inputs, strict=True)
        entries = [_entry(tuple(layers), states, embedded) for layers, states in pairs]
        if None in entries:
            raise refusal
        with Embedded(subject.vocabulary(), ids, embedded), cut(model, entries):
            logits = model(**text).logits
        if logits.requires_grad and torch.autograd.grad(logits.sum(), [embedded], allow_unused=True)[0] is not None:
            raise refusal
    return entries


def _entry(layers: tuple[str, ...], states: torch.Tensor, embedded: torch.Tensor) -> Entry | None:
    """The entry of a stack whose first layer reads states; None where a state depends on several of embedded (1,L,E)."""
    length = embedded.shape[1]
    turned = states.shape[:2] == (length, 1)
    if states.dim() != 3 or not (turned or states.shape[:2] == (1, length)) or not states.requires_grad:
        return None
    places = states[:, 0] if turned else states[0]
    later = set()
    for place in (2, length - 2):
        weights = torch.linspace(1, 2, places.shape[1], dtype=places.dtype, device=places.device).cos()
        (slope,) = torch.autograd.grad((places[place] * weights).sum(), [embedded], retain_graph=True, allow_unused=True)
        reached = [] if slope is None else (slope[0] != 0).any(1).nonzero().flatten().tolist()
        if len(reached) != 1:
            return None
        later.add(place - reached[0])
    return Entry(layers, later.pop(), turned) if later in ({0}, {1}) else None
