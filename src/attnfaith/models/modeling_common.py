"""What the models of this folder share, for B instances of T positions: initialisation, masks and weighted sums."""

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers import initialization as init


class PaperPreTrainedModel(PreTrainedModel):
    """Initialisation as in the papers' code: torch's own defaults for every layer, embeddings N(0, embedding_std^2)."""

    base_model_prefix = "model"
    accepts_loss_kwargs = False  # losses are means over a batch: let the Trainer divide them when it accumulates gradients
    _input_embed_layer = "embeddings"
    _no_split_modules = ["Encoder", "TransformerLayer"]

    @torch.no_grad()
    def _init_weights(self, module):
        if isinstance(module, nn.Embedding):
            init.normal_(module.weight, std=self.config.embedding_std)
            if module.padding_idx is not None and not getattr(module.weight, "_is_hf_initialized", False):
                module.weight[module.padding_idx].zero_()
        elif isinstance(module, nn.Linear | nn.Conv1d):
            bound = module.weight[0].numel() ** -0.5
            init.uniform_(module.weight, -bound, bound)
            if module.bias is not None:
                init.uniform_(module.bias, -bound, bound)
        elif isinstance(module, nn.RNNBase | nn.RNNCellBase):
            for parameter in module.parameters(recurse=False):
                init.uniform_(parameter, -(module.hidden_size**-0.5), module.hidden_size**-0.5)
        else:
            super()._init_weights(module)


def refuse(wrong: torch.Tensor, message: str) -> None:
    """Raise ValueError with the message if `wrong` (B, ...) bool has a True; {row} in the message names its row."""
    if bool(wrong.any()):
        raise ValueError(message.format(row=f"row {int(wrong.nonzero()[0, 0])}"))


def present_mask(input_ids, attention_mask, pad_token_id: int | None, inputs_embeds=None) -> torch.Tensor:
    """Return the attention mask (B,T) as bool; without one, the ids that are not padding, or all places of embeddings.

    Raises ValueError unless one of input_ids and inputs_embeds (B,T,E) is given, and for padding that is not on the right.
    """
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("give exactly one of input_ids and inputs_embeds")
    if attention_mask is not None:
        mask = attention_mask.bool()
    elif input_ids is None:
        mask = inputs_embeds.new_ones(inputs_embeds.shape[:2], dtype=torch.bool)
    else:
        mask = torch.ones_like(input_ids, dtype=torch.bool) if pad_token_id is None else input_ids != pad_token_id
    refuse(mask[:, 1:] & ~mask[:, :-1], "padding must be on the right: use tokenizer.padding_side='right'")
    return mask


def between_markers(text: torch.Tensor) -> torch.Tensor:
    """Return the mask (B,T) of a text (B,T) without its first and last token."""
    return text & nn.functional.pad(text[:, :-1], (1, 0)) & nn.functional.pad(text[:, 1:], (0, 1))


def contexts(values: torch.Tensor, attention: torch.Tensor) -> torch.Tensor:
    """Return attention-weighted sums of values (B,T,D): (B,D) with attention (B,T), (B,K,D) with attention (B,K,T)."""
    attention = attention.to(values.dtype)
    if attention.dim() == 2:
        return (attention.unsqueeze(1) @ values).squeeze(1)
    return attention @ values
