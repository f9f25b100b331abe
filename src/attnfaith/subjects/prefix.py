"""The part of a forward pass before one of its maps, stored so that later passes compute only what comes after.

One pass shows, from outside, which modules come before a map; no architecture is named here. A second pass from what was
stored, with the texts in another order, has to give the same logits.

Shapes: B instances that were read, N copies of some of them, C classes.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from attnfaith.subjects.attention import Hook, Watching, nothing
from attnfaith.subjects.checks import tolerance_of


class Prefix:
    """The outputs of the outermost modules that were done before a map was made, of B instances.

    outputs: {module: those of its calls, in order}. skipped: how many maps were made in these calls. count: B.
    """

    def __init__(self, outputs: dict[torch.nn.Module, list], skipped: int, count: int):
        self.outputs, self.skipped, self.count = outputs, skipped, count

    @contextmanager
    def reused(self, rows: torch.Tensor) -> Iterator[None]:
        """Within, a forward pass of the copies `rows` (N,) of the instances computes only what comes after."""
        instance_forwards = {module: vars(module).get("forward") for module in self.outputs}
        for module, outputs in self.outputs.items():
            module.forward = self._instead(module.forward, deque(outputs), rows)
        try:
            yield
        finally:
            for module, forward in instance_forwards.items():
                del module.forward
                if forward is not None:
                    module.forward = forward

    def _instead(self, forward: Callable, left: deque, rows: torch.Tensor) -> Callable:
        return lambda *args, **kwargs: instances(left.popleft(), rows, self.count) if left else forward(*args, **kwargs)


def prefix_of(model, texts: dict[str, torch.Tensor], first: int) -> Prefix | None:
    """The prefix of texts (B,L) before map number `first`; None where a pass from it gives other logits.

    Costs a forward pass, and one of what comes after.
    """
    count = len(texts["input_ids"])
    with torch.no_grad():
        watch = _Watch(model, first)
        with watch, Hook(count, watch, keep=nothing):
            logits = model(**texts).logits
        prefix = watch.prefix(count)
        if prefix is None:
            return None
        rows = torch.cat([torch.arange(count - 1, -1, -1), torch.tensor([0])]).to(logits.device)
        copies = {name: values[rows] for name, values in texts.items()}
        try:
            with prefix.reused(rows), Hook(count + 1, keep=nothing) as hook:
                again = model(**copies).logits
        except Exception:  # what was stored has no axis of instances, or another one
            return None
    near = tolerance_of(model)
    same = again.shape == logits[rows].shape and torch.allclose(again, logits[rows], rtol=near, atol=near)
    return prefix if same and hook.number + prefix.skipped == watch.maps else None


class _Watch(Watching):
    """Which calls of modules are done before map `first` is made."""

    def __init__(self, model, first: int):
        self.model, self.first, self.maps = model, first, 0
        self._before, self._frames = None, []

    def weights(self, number, weights):
        if number == self.first:
            self._before = [done for _, _, frame in self._frames for done in frame]
        self.maps += 1
        return weights

    def prefix(self, count: int) -> Prefix | None:
        """The prefix of `count` instances; None where the map was not made, or nothing was done before it."""
        if not self._before:
            return None
        outputs: dict[torch.nn.Module, list] = {}
        for module, output, _ in self._before:
            outputs.setdefault(module, []).append(output)
        return Prefix(outputs, sum(maps for _, _, maps in self._before), count)

    def watch(self):
        for module in self.model.modules():
            yield module.register_forward_pre_hook(self._enter)
            yield module.register_forward_hook(self._leave)

    def _enter(self, module, args) -> None:
        self._frames.append((module, self.maps, []))

    def _leave(self, module, args, output) -> None:
        _, maps, _ = self._frames.pop()
        if self._before is None and self._frames:
            self._frames[-1][2].append((module, output, self.maps - maps))


def instances(output, rows: torch.Tensor, count: int):
    """The instances `rows` of an output for `count` ones: of its tensors whose first axis is that of instances."""
    if isinstance(output, torch.Tensor):
        return output[rows] if output.dim() and len(output) == count else output
    if isinstance(output, dict):
        return type(output)(**{name: instances(value, rows, count) for name, value in output.items()})
    if type(output) in (tuple, list):
        return type(output)(instances(value, rows, count) for value in output)
    return output
