"""The vectors that a classifier of transformers has of tokens: the states of a layer, and the lengths of its values.

Shapes: B instances, L input positions, H heads, D the size of a head's values, E that of a state.
"""

import torch

from attnfaith.subjects.layers import result_of
from attnfaith.subjects.protocol import Batch


class TokenStates:
    """What `SelfAttention` says of single tokens."""

    @property
    def depth(self) -> int:
        """As `Subject` says: its layers over input positions."""
        return len(self.sites.layers)

    @torch.no_grad()
    def token_states(self, batch: Batch, layer: int) -> torch.Tensor:
        """As `Subject` says, (B,L,E): what the module of a layer gives, before a norm that stands behind all layers."""
        blocks, results = self.sites.blocks, []
        name = blocks[layer]  # a module may serve as several layers
        handle = self.model.get_submodule(name).register_forward_hook(
            lambda module, given, result: results.append(result_of(result).detach())
        )
        try:
            self.read(batch, keep=lambda number: False)
        finally:
            handle.remove()
        groups, own = self.groups(batch), results[blocks[:layer].count(name) :: blocks.count(name)]
        states = own[0].new_zeros(*batch["input_ids"].shape, own[0].shape[2])
        for (rows, length), of_group in zip(groups, own, strict=True):
            states[rows, :length] = of_group
        return states

    @torch.no_grad()
    def value_norms(self, batch: Batch) -> torch.Tensor:
        """As `Subject` says, (B,N,L): of the values (D) of each head that the reduction takes, markers included."""
        numbers = {self.sites.layers[layer] for layer in self.reduction.chosen(self.depth)}
        maps = self.read(batch, keep=numbers.__contains__).maps
        head = slice(None) if self.reduction.head is None else [self.reduction.head]
        norms = torch.cat([one.values.double().norm(dim=3)[:, head] for one in maps], 1)
        return norms * batch["attention_mask"].unsqueeze(1)
