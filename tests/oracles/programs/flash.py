"""In place of the package flash_attn, which needs a card to be built for: what its functions allocate, kernels left out.

After flash-attention 2.8, flash_attn/flash_attn_interface.py (FlashAttnFunc, FlashAttnVarlenFunc) and csrc/flash_attn/flash_api.cpp (mha_fwd,
mha_varlen_fwd, mha_bwd, mha_varlen_bwd), not deterministic. Dropout allocates nothing more, for the matrix of what it drops is asked for by
nobody. Forward's split of keys is left out: a training step fills the card.
"""
import importlib.machinery
import sys
import types

import torch


def up(n, m):
    return (n + m - 1) // m * m


def contiguous(x):
    return x if x.stride(-1) == 1 else x.contiguous()


class Attention(torch.autograd.Function):
    """lengths: None, or the bounds of documents in rows that are flattened."""

    @staticmethod
    def forward(ctx, q, k, v, lengths):
        q, k, v = contiguous(q), contiguous(k), contiguous(v)
        rows = (q.shape[1], q.shape[0]) if lengths is not None else (q.shape[0], q.shape[2], q.shape[1])
        out = torch.empty_like(q)
        lse = torch.empty(rows, dtype=torch.float32, device=q.device)
        seed = torch.empty(2, dtype=torch.int64, device=q.device)
        if lengths is None:
            ctx.save_for_backward(q, k, v, out, lse, seed)
        else:
            ctx.save_for_backward(q, k, v, out, lse, lengths[0], lengths[1], seed)
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k, v, out, _, *more = ctx.saved_tensors
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        grad, q, k, v, out = [contiguous(x) for x in (grad, q, k, v, out)]
        heads, of_kv, head = q.shape[-2], k.shape[-2], q.shape[-1]
        wide = up(head, 32 if head <= 128 else 64)
        if len(more) == 3:
            rows = q.shape[0] + 128 * (more[0].numel() - 1)
            scratch = [torch.empty((heads, rows), dtype=torch.float32, device=q.device),
                       torch.empty((rows, heads, wide), dtype=torch.float32, device=q.device)]
        else:
            n, s = q.shape[0], up(q.shape[1], 128)
            scratch = [torch.empty((n, heads, s), dtype=torch.float32, device=q.device),
                       torch.empty((n, s, heads, wide), dtype=torch.float32, device=q.device)]
        if of_kv != heads:
            for to in (dk, dv):
                scratch.append(torch.empty(k.shape[:-2] + (heads, head), dtype=k.dtype, device=k.device))
            for to, x in zip((dk, dv), scratch[2:]):
                torch.sum(x.reshape(k.shape[:-2] + (of_kv, heads // of_kv, head)), dim=-2, out=to)
        return dq, dk, dv, None


def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None,
                    deterministic=False, return_attn_probs=False):
    assert not deterministic and q.shape[-1] % 8 == 0
    return Attention.apply(q, k, v, None)


def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0, softmax_scale=None, causal=False,
                           window_size=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False, return_attn_probs=False, block_table=None):
    assert not deterministic and q.shape[-1] % 8 == 0
    return Attention.apply(q, k, v, (cu_seqlens_q, cu_seqlens_k))


def unpadded(mask):
    """As transformers' _get_unpad_data, but that every token is kept: how many are depends on values, and this is the most."""
    lengths = mask.sum(dim=-1, dtype=torch.int32)
    kept = torch.empty(mask.numel(), dtype=torch.int64, device=mask.device)
    return kept, torch.nn.functional.pad(torch.cumsum(lengths, dim=0, dtype=torch.int32), (1, 0)), mask.shape[-1]


def install():
    """transformers finds it as flash_attention_2."""
    import transformers.modeling_flash_attention_utils as t
    m, padding = types.ModuleType("flash_attn"), types.ModuleType("flash_attn.bert_padding")
    m.__spec__, padding.__spec__ = (importlib.machinery.ModuleSpec(x.__name__, None) for x in (m, padding))
    m.flash_attn_func, m.flash_attn_varlen_func, m.flash_attn_with_kvcache = flash_attn_func, flash_attn_varlen_func, None
    padding.pad_input, padding.unpad_input = t._pad_input, t._unpad_input
    sys.modules["flash_attn"], sys.modules["flash_attn.bert_padding"] = m, padding
    t.is_flash_attn_2_available = lambda: True
    t._get_unpad_data = unpadded
    of_2 = t.FLASH_ATTENTION_COMPATIBILITY_MATRIX[2]
    of_2["general_availability_check"] = of_2["pkg_availability_check"] = lambda *args, **kwargs: True
