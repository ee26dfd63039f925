"""Gated DeltaNet's layers as they run with the packages flash-linear-attention and causal-conv1d, which transformers asks for.

Of flash-linear-attention (0.6.0, `pip install --no-deps flash-linear-attention fla-core`) all is its own but the Triton kernels, which have no
scratch. causal-conv1d cannot be built without a card: in its place is what its functions allocate, after its 1.6
(causal_conv1d_interface.py, cpp_functions.py), where a batch comes with its channels last.
"""
import importlib.machinery
import sys
import types

import torch

import loops


class Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        if grad.stride(1) != 1:
            grad = grad.transpose(-1, -2).contiguous().transpose(-1, -2)
        dx, dweight = torch.empty_like(x), torch.zeros_like(weight, dtype=torch.float32)
        return dx, dweight.type_as(weight)


def causal_conv1d_fn(x, weight, bias=None, seq_idx=None, initial_states=None, return_final_states=False, final_states_out=None, activation=None):
    assert bias is None and initial_states is None and not return_final_states and x.stride(1) == 1
    return Convolution.apply(x, weight)


def install():
    """Before transformers imports a class with such layers."""
    m = types.ModuleType("causal_conv1d")
    m.__spec__ = importlib.machinery.ModuleSpec(m.__name__, None)
    m.causal_conv1d_fn, m.causal_conv1d_update = causal_conv1d_fn, None
    sys.modules["causal_conv1d"] = m
    import fla.ops.common.chunk_o as chunks
    chunks.IS_NVIDIA_HOPPER = False         # it refuses Hopper with Triton 3.4 to 3.7.0, whose kernel is wrong there; 3.7.1 takes the same memory
    loops.silence_triton()
