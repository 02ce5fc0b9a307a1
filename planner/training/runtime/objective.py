"""What a run minimises: the loss that the model returns, or a distance of its outputs from fixed random targets.

A sum over outputs, so that every stage can compute its part.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Objective:
    """The loss of a sample.

    ``loss`` is the number of the output that is the loss; ``None``: the model returns none, and the loss is the mean
    square of the distance from targets that are drawn for each sample and output, half of it, summed over outputs.
    """

    loss: int | None

    def part(self, value: Any, output: int, sample: int) -> Any:
        """What one output adds to the loss of a sample, a tensor without dimensions; ``None`` if it adds nothing."""
        import torch

        if self.loss is not None:
            return value if output == self.loss else None
        generator = torch.Generator().manual_seed(1_000_003 * output + sample)
        target = torch.randn(value.shape, generator=generator, dtype=torch.float32).to(value.device, value.dtype)
        return (value - target).square().mean() / 2

    def of(self, values: Sequence[Any], sample: int) -> Any:
        """The loss of a sample, from all outputs of the model in the order of the graph's."""
        import torch

        differentiable = [
            (number, value)
            for number, value in enumerate(values)
            if isinstance(value, torch.Tensor) and value.requires_grad
        ]
        parts = [self.part(value, number, sample) for number, value in differentiable]
        return sum(part for part in parts if part is not None)


def objective_of(outputs: Any) -> Objective:
    """The objective for a model that returns ``outputs``: its loss, if they have one by that name or are one number."""
    import torch
    from torch.utils import _pytree

    found, _ = _pytree.tree_flatten_with_path(outputs)
    for number, (path, value) in enumerate(found):
        named = path and getattr(path[-1], "key", getattr(path[-1], "name", None)) == "loss"
        if isinstance(value, torch.Tensor) and value.dim() == 0 and value.requires_grad and (named or len(found) == 1):
            return Objective(number)
    return Objective(None)
