"""The vectors that a classifier of transformers has of tokens: the states of a layer, and the lengths of its values.

Shapes: B instances, L input positions, H heads, D the size of a head's values, E that of a state.
"""

import itertools
from collections.abc import Sequence
from contextlib import ExitStack

import torch

from attnfaith.subjects.layers import result_of
from attnfaith.subjects.protocol import Batch
from attnfaith.subjects.reading import nothing


class TokenStates:
    """What `SelfAttention` says of single tokens."""

    @property
    def depth(self) -> int:
        """As `Subject` says: its layers over input positions."""
        return len(self.sites.layers)

    def token_states(self, batch: Batch, layer: int) -> torch.Tensor:
        """As `Subject` says, (B,L,E): what the module of a layer gives, before a norm that stands behind all layers."""
        return self._states(batch, [layer])[0]

    def states_by_layer(self, batch: Batch) -> list[torch.Tensor]:
        """As `Subject` says: see `token_states`."""
        return self._states(batch, range(self.depth))

    @torch.no_grad()
    def _states(self, batch: Batch, layers: Sequence[int]) -> list[torch.Tensor]:
        results = {self.sites.blocks[layer]: [] for layer in layers}
        with ExitStack() as stack:
            for name, of_module in results.items():
                module = self.model.get_submodule(name)
                handle = module.register_forward_hook(
                    lambda module, given, result, to=of_module: to.append(result_of(result).detach())
                )
                stack.callback(handle.remove)
            self.read(batch, keep=nothing)
        return [self._joined(batch, results[self.sites.blocks[layer]], layer) for layer in layers]

    def _joined(self, batch: Batch, results: list[torch.Tensor], layer: int) -> torch.Tensor:
        """The states (B,L,E) of a layer, from what its module gave of each group of texts that are read together."""
        first, every = self._calls(layer)
        groups, own = self.groups(batch), results[first::every]
        states = own[0].new_zeros(*batch["input_ids"].shape, own[0].shape[2])
        for (rows, length), of_group in zip(groups, own, strict=True):
            states[rows, :length] = of_group
        return states

    def _calls(self, layer: int) -> tuple[int, int]:
        """Which call of its module in a reading is this layer's, and of how many: a module may serve as several layers."""
        blocks = self.sites.blocks
        return blocks[:layer].count(blocks[layer]), blocks.count(blocks[layer])

    def predict_from(self, batch: Batch, layer: int, states: torch.Tensor) -> torch.Tensor:
        first, every = self._calls(layer)
        inside, calls = self.attendable(batch).unsqueeze(2), itertools.count()
        groups = self.groups(batch)

        def replaced(module, given, result):
            group, call = divmod(next(calls), every)
            if call != first:
                return None
            rows, length = groups[group]
            own = result_of(result)
            other = torch.where(inside[rows, :length], states[rows, :length].to(own), own)
            return other if isinstance(result, torch.Tensor) else type(result)([other, *result[1:]])

        handle = self.model.get_submodule(self.sites.blocks[layer]).register_forward_hook(replaced)
        try:
            return self.read(batch, keep=nothing).logits
        finally:
            handle.remove()

    @torch.no_grad()
    def value_norms(self, batch: Batch) -> torch.Tensor:
        """As `Subject` says, (B,N,L): of the values (D) of each head that the reduction takes, markers included."""
        numbers = {self.sites.layers[layer] for layer in self.reduction.chosen(self.depth)}
        maps = self.read(batch, keep=numbers.__contains__).maps
        head = slice(None) if self.reduction.head is None else [self.reduction.head]
        norms = torch.cat([one.values.double().norm(dim=3)[:, head] for one in maps], 1)
        return norms * batch["attention_mask"].unsqueeze(1)
