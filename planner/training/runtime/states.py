"""Optimizer states, and gradients (ZeRO 1, 2), that replicas share: each steps its share of the weights, and sends it.

Shares are of one row of all parameters that the same processes sum, as equal as can be. Gloo has no reduce-scatter:
each process sends every other one that one's share of its own gradients, which are as many bytes as a ring sends.

Of several groups of replicas each has all states: shares are summed over the groups, too.

Source: Rajbhandari et al. 2020, section 5.1; one row of all gradients, and groups: Megatron-LM's distributed optimizer
(``--num-distributed-optimizer-instances``).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any


def step(weights: Any, gradients: Any) -> int:
    """Step weights in place with Adam, as its first step; the bytes of its states.

    Weights of two bytes have a copy in float32 among the states. Epsilon is 1: with one near 0 the first step is the
    sign of a gradient, and so of its rounding where it is zero in exact numbers.
    """
    import torch

    wide = torch.float32 if weights.element_size() == 2 else weights.dtype
    own = weights.detach().to(wide, copy=True).requires_grad_()
    own.grad = gradients.to(wide)
    optimizer = torch.optim.Adam([own], lr=1.0, eps=1.0)
    optimizer.step()
    weights.copy_(own.detach())
    states = [each for each in optimizer.state[own].values() if each.dim()]  # the number of the step apart
    states += [own] if wide != weights.dtype else []
    return sum(each.numel() * each.element_size() for each in states)


@dataclass(frozen=True)
class Team:
    """The processes that share states, with the place of this one among so many.

    ``count`` teams have states of the same weights: the processes that have this place in them, ``across``, sum their
    shares.
    """

    place: int
    size: int
    group: Any
    count: int = 1
    across: Any = None

    def ends(self, length: int) -> list[int]:
        """Where the shares of a row of so many numbers begin and end."""
        return [length * number // self.size for number in range(self.size + 1)]


def scatter(gradients: Sequence[Any], team: Team) -> tuple[Any, float]:
    """This process's share of the sum of gradients of one type, and the bytes that it sent for it."""
    import torch
    from torch import distributed

    from planner.training.capture.sharding import ring

    row = torch.cat([gradient.reshape(-1) for gradient in gradients])
    widths = [end - start for start, end in pairwise(team.ends(row.numel()))]
    own = widths[team.place]
    share = _exchange(row, [own] * team.size, widths, team.group).view(team.size, -1).sum(0)
    if team.count > 1:
        distributed.all_reduce(share, group=team.across)
    return share, (row.numel() - own + ring(team.count) * own) * row.element_size()


def step_share(pairs: Sequence[tuple[Any, Any]], share: Any, team: Team) -> tuple[int, int]:
    """Step weights, given as pairs (weights, gradient) of one type, in place in all of a team.

    ``share``: this process's share of the gradients' sums.
    Returns: bytes that this process sent for it, and bytes of states that it holds. Gradients of the other shares are
    gathered, uncounted, so that they can be compared.
    """
    import torch

    weights = torch.cat([weight.detach().reshape(-1) for weight, _ in pairs])
    ends, place, size = team.ends(weights.numel()), team.place, team.size
    widths = [end - start for start, end in pairwise(ends)]
    own = weights[ends[place] : ends[place + 1]].clone()
    held = step(own, share)
    for number, made in enumerate((own, share)):
        gathered = _exchange(made.repeat(size), widths, [widths[place]] * size, team.group)
        parts = gathered.split([pair[number].numel() for pair in pairs])
        for pair, part in zip(pairs, parts, strict=True):
            pair[number].detach().copy_(part.view_as(pair[number]))
    return (size - 1) * widths[place] * weights.element_size(), held


def _exchange(data: Any, came: Sequence[int], sent: Sequence[int], group: Any) -> Any:
    """What the processes of a group send each other, so many numbers from and to each."""
    from torch import distributed

    found = data.new_empty(sum(came))
    distributed.all_to_all_single(found, data, list(came), list(sent), group=group)
    return found
