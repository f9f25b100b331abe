"""What is explained, shared out to input positions: gradient times input, under the rules of a model's backward pass.

Shapes: B instances, L input positions, E embedding, S the size of a state, C classes, K numbers that are explained.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from attnfaith.subjects.attention_hook import Embedded, Hook
from attnfaith.subjects.backward_rules import Halves, Rules, check_affine
from attnfaith.subjects.protocol import SubjectError


INPUTS = ("layer", "table")
"""Where relevance ends: in what the first layer reads, or in what the table of tokens gives."""


@dataclass(frozen=True)
class Shares:
    """values (B,K): what is explained. of_places (B,K,L): the part of each input position, 0 behind shorter texts. Both are
    float64. What the parts leave of a value is that of biases and start tokens and, for inputs "table", of positions.
    """

    values: torch.Tensor
    of_places: torch.Tensor


@dataclass(frozen=True)
class Entry:
    """Where a stack of layers begins.

    modules: names of its layers, of which the first that is called reads the texts. later: by how many places what it reads
    comes later than the token, 1 in a decoder that reads its text shifted. turned: whether places come before instances.
    """

    modules: tuple[str, ...]
    later: int
    turned: bool


@torch.no_grad()
def shares(subject, batch, explain: Callable, rules: str | None = None, inputs: str = "layer") -> Shares:
    """What an input position has of each number that is explained: gradient times input at `inputs`, under `rules`.

    explain: from logits (n,C) to (n,) or (n,K), for the instances it is told, explain(logits, rows). rules: "frozen" or
    "halved", which halves the gradients of attention's products as well, see `backward_rules`; None: plain gradients.

    Raises SubjectError where inputs is "layer" and a model's first layer does not read one vector for each token.
    """
    count, width = batch["input_ids"].shape
    values = of_places = None
    for rows, length in subject.groups(batch):
        part = batch.take(rows, length)
        numbers, own = _shares(subject, part, lambda logits, rows=rows: explain(logits, rows), rules, inputs)
        if values is None:
            values = numbers.new_zeros(count, numbers.shape[1])
            of_places = own.new_zeros(count, own.shape[1], width)
        values[rows] = numbers
        of_places[rows, :, :length] = own
    return Shares(values, of_places)


def check_rules(subject, text: dict) -> bool:
    """True. Raises SubjectError for a model with something that no rule of `backward_rules` is for, naming it."""
    model = subject.model
    with subject.evaluating(), torch.backends.cudnn.flags(enabled=False):
        embedded = subject.embed(text)
        check_affine(model, text, embedded, lambda leaf: Embedded(subject.vocabulary(), text["input_ids"], leaf))
    return True


def _shares(subject, batch, explain, rules, inputs):
    model, given = subject.model, subject.given(batch)
    trainable = [one for one in model.parameters() if one.requires_grad]
    with ExitStack() as stack:
        stack.enter_context(subject.evaluating())
        stack.enter_context(torch.backends.cudnn.flags(enabled=False))  # it refuses backward passes in eval mode
        stack.enter_context(torch.enable_grad())
        for one in trainable:
            one.requires_grad_(False)
            stack.callback(one.requires_grad_, True)
        if rules is not None:
            stack.enter_context(Rules(model, rules))
        if rules == "halved":
            stack.enter_context(Hook(len(batch["input_ids"]), Halves(), lambda number: False))
        if inputs == "table":
            leaves = [subject.embed(batch).detach().requires_grad_()]
            entries = [Entry((), 0, False)]
            stack.enter_context(Embedded(subject.vocabulary(), given["input_ids"], leaves[0]))
        else:
            entries = subject.entries
            leaves = stack.enter_context(cut(model, entries))
        logits = model(**given).logits
        numbers = explain(logits)
        numbers = numbers.unsqueeze(1) if numbers.dim() == 1 else numbers
        parts = []
        for left, number in zip(range(numbers.shape[1])[::-1], numbers.unbind(1), strict=True):
            slopes = torch.autograd.grad(number.sum(), leaves, allow_unused=True, retain_graph=left > 0)
            own = 0
            for entry, leaf, slope in zip(entries, leaves, slopes, strict=True):
                if slope is not None:
                    own = own + _at_tokens((leaf.detach() * slope).sum(-1, dtype=torch.float64), entry)
            parts.append(own if isinstance(own, torch.Tensor) else numbers.new_zeros(given["input_ids"].shape))
    mask = given["attention_mask"].bool().unsqueeze(1)
    return numbers.detach().double(), torch.stack(parts, 1).masked_fill(~mask, 0)


def _at_tokens(values: torch.Tensor, entry: Entry) -> torch.Tensor:
    """(B,L) at the places of tokens, from what the layers' places have."""
    values = values.T if entry.turned else values
    return nn.functional.pad(values[:, entry.later :], (0, entry.later)) if entry.later else values


@contextmanager
def cut(model, entries: list[Entry]) -> Iterator[list[torch.Tensor]]:
    """Within, what each stack of layers reads first is a leaf; the list holds these once the model has read."""
    leaves: list[torch.Tensor] = []

    def taken(values):
        leaves.append(values.detach().requires_grad_())
        return leaves[-1]

    with ExitStack() as stack:
        for entry in entries:
            stack.enter_context(_first(model, entry.modules, taken))
        yield leaves


@contextmanager
def _first(model, names, taken: Callable) -> Iterator[None]:
    """Within, taken(states) takes the place of what the first of these modules to be called reads."""
    handles, seen = [], []

    def enter(module, args, kwargs):
        if seen:
            return None
        seen.append(module)
        if args and isinstance(args[0], torch.Tensor):
            return (taken(args[0]), *args[1:]), kwargs
        name = next((name for name in ("hidden_states", "x") if isinstance(kwargs.get(name), torch.Tensor)), None)
        return None if name is None else (args, {**kwargs, name: taken(kwargs[name])})

    for name in names:
        handles.append(model.get_submodule(name).register_forward_pre_hook(enter, with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def find_entries(subject, text: dict, names: list[str]) -> list[Entry]:
    """Where the stacks of layers of a model begin, from one text (1,L) and the names of the modules that make its maps.

    Raises SubjectError where what a first layer reads is not one vector for each token, and where the logits depend on
    tokens by another way.
    """
    model = subject.model
    refusal = SubjectError(
        f"the first layer of {type(model).__name__} does not read one vector for each token, or is not all that reads them: "
        "take inputs='table'"
    )
    stacks: dict[str, list[str]] = {}
    for name in names:
        if (layer := _layer_of(model, name)) is None:
            raise refusal
        layers = stacks.setdefault(layer[0], [])
        if layer[1] not in layers:
            layers.append(layer[1])
    entries, ids = [], text["input_ids"]
    with torch.enable_grad():
        embedded = subject.embed({"input_ids": ids}).detach().requires_grad_()
        read: list[torch.Tensor] = []
        with ExitStack() as stack:
            stack.enter_context(Embedded(subject.vocabulary(), ids, embedded))
            for layers in stacks.values():
                stack.enter_context(_first(model, layers, lambda states: read.append(states) or states))
            model(**text)
        if len(read) != len(stacks):
            raise refusal
        # stacks were entered in the order of their maps, and are called in it
        for layers, states in zip(stacks.values(), read, strict=True):
            entry = _entry(tuple(layers), states, embedded)
            if entry is None:
                raise refusal
            entries.append(entry)
        with Embedded(subject.vocabulary(), ids, embedded), cut(model, entries):
            logits = model(**text).logits
        if logits.requires_grad and torch.autograd.grad(logits.sum(), [embedded], allow_unused=True)[0] is not None:
            raise refusal
    return entries


def _layer_of(model, name: str) -> tuple[str, str] | None:
    """The outermost list of layers that a module lies in, and the layer itself."""
    parts, stack = name.split("."), None
    for end in range(1, len(parts) + 1):
        path = ".".join(parts[:end])
        if isinstance(model.get_submodule(path), nn.ModuleList):
            stack = path if stack is None else stack
        elif stack is not None:
            return stack, path
    return None


def _entry(layers, states: torch.Tensor, embedded: torch.Tensor) -> Entry | None:
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
