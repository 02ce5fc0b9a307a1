"""A chain of modules whose forward and backward passes take declared times and compute next to nothing."""

import time
from typing import Any

import torch
from sleeping_seconds import SECONDS, WEIGHT_SECONDS
from torch import Tensor, nn


@torch.library.custom_op("sleeping::wait", mutates_args=())
def wait(x: Tensor, forward: float, backward: float) -> Tensor:
    """Sleeps so many seconds in each pass."""
    time.sleep(forward)
    return x.clone()


@wait.register_fake
def _(x: Tensor, forward: float, backward: float) -> Tensor:
    return torch.empty_like(x)


def _setup(ctx: Any, inputs: Any, output: Tensor) -> None:
    _, _, ctx.seconds = inputs


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
    time.sleep(ctx.seconds)
    return grad.clone(), None, None


wait.register_autograd(_backward, setup_context=_setup)


class Sleeping(nn.Module):
    """A third of its seconds forward, and of the rest the declared ones of its weights, else a half."""

    def __init__(self, seconds: float, weights: float) -> None:
        super().__init__()
        self.times = seconds / 3, 2 * seconds / 3 - weights, weights
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        forward, backward, weights = self.times
        return torch.ops.sleeping.wait(x * torch.ops.sleeping.wait(self.weight, 0.0, weights), forward, backward)


class Chain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(map(Sleeping, SECONDS, WEIGHT_SECONDS))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def chain() -> tuple[nn.Module, tuple[Tensor]]:
    torch.manual_seed(0)
    return Chain(), (torch.randn(2, 4),)
