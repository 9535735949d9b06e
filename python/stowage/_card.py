"""Operations as a card has them, where a CPU has others."""

from contextlib import contextmanager

import torch
from torch.nn import functional


@contextmanager
def on_a_card():
    """Dropout, and attention with dropout, by the fused kernels that a card has for them. Without dropout a CPU's attention is fused, too."""
    dropout, attention = functional.dropout, functional.scaled_dot_product_attention

    def fused_dropout(input, p=0.5, training=True, inplace=False):
        if training and 0 < p < 1 and not inplace:
            return torch.native_dropout(input, p, True)[0]
        return dropout(input, p, training, inplace)

    def fused_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
        if not 0 < dropout_p < 1 or enable_gqa or query.dim() != 4:
            return attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
        if torch.is_autocast_enabled("cpu"):
            query, key, value = (tensor.to(torch.get_autocast_dtype("cpu")) for tensor in (query, key, value))
        if attn_mask is None and query.dtype in (torch.bfloat16, torch.float16):
            return torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, scale=scale)[0]
        if attn_mask is not None:
            if attn_mask.dtype == torch.bool:
                attn_mask = torch.zeros(attn_mask.shape, dtype=query.dtype).masked_fill(~attn_mask, float("-inf"))
            attn_mask = attn_mask.to(query.dtype).expand(*query.shape[:-1], key.shape[-2])
        return torch.ops.aten._scaled_dot_product_efficient_attention(query, key, value, attn_mask, True, dropout_p, is_causal,
                                                                      scale=scale)[0]

    functional.dropout, functional.scaled_dot_product_attention = fused_dropout, fused_attention
    try:
        yield
    finally:
        functional.dropout, functional.scaled_dot_product_attention = dropout, attention
