"""A chain of modules whose forward and backward passes take declared times and compute next to nothing."""

import time
from typing import Any

import torch
from sleeping_seconds import SECONDS
from torch import Tensor, nn


@torch.library.custom_op("sleeping::passes", mutates_args=())
def passes(x: Tensor, weight: Tensor, seconds: float) -> Tensor:
    """Sleeps a third of the seconds, and two thirds in the backward pass."""
    time.sleep(seconds / 3)
    return x * weight


@passes.register_fake
def _(x: Tensor, weight: Tensor, seconds: float) -> Tensor:
    return torch.empty_like(x)


def _setup(ctx: Any, inputs: Any, output: Tensor) -> None:
    x, weight, ctx.seconds = inputs
    ctx.save_for_backward(x, weight)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
    time.sleep(2 * ctx.seconds / 3)
    x, weight = ctx.saved_tensors
    return grad * weight, (grad * x).sum(0), None


passes.register_autograd(_backward, setup_context=_setup)


class Sleeping(nn.Module):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.sleeping.passes(x, self.weight, self.seconds)


class Chain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Sleeping(each) for each in SECONDS])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def chain() -> tuple[nn.Module, tuple[Tensor]]:
    torch.manual_seed(0)
    return Chain(), (torch.randn(2, 4),)
