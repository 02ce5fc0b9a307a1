"""Which processes sum the gradient of a parameter with each other. No process here."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.training.runtime.layout import Layout
from planner.training.runtime.program import attribute
from planner.training.runtime.stages import Block, Stages


@dataclass(frozen=True)
class GradientSum:
    """The processes (ranks) that sum a parameter's gradient, in groups that each sum for themselves.

    ``is_cut``: each process has a share of it, and sums that with the same share of the others. ``stages`` have it.
    """

    groups: tuple[tuple[int, ...], ...]
    is_cut: bool = False
    stages: tuple[int, ...] = ()

    def group_of(self, rank: int) -> tuple[int, ...]:
        """The processes that a process sums with, itself among them; empty if it takes no part."""
        return next((group for group in self.groups if rank in group), ())


def gradient_sums(stages: Stages, made: Layout) -> dict[str, GradientSum]:
    """How gradients are summed over replicas and over stages that share tied weights, by the parameter's name.

    Where all stages that use a parameter have one degree and have it whole, or cut in one way by one block, each
    process sums with those that have its place in their replicas. Else, as for a table that is cut in one stage and
    whole in another, the first process of each replica sums the whole gradient.
    """
    found = {}
    for name in sorted({name for parameters in stages.parameters for name in parameters}):
        users = [stage for stage, parameters in enumerate(stages.parameters) if name in parameters]
        ways = {stage: _cuts(stages.blocks[stage], stages.parameters[stage][name]) for stage in users}
        duties = [(number, duty) for number, duty in enumerate(made.duties) if duty.stage in ways]
        first = ways[users[0]]
        ranks = {made.rank_of(number) for number, _ in duties}
        is_same = len({duty.degree for _, duty in duties}) == 1 and all(way == first for way in ways.values())
        is_cut = is_same and len(ranks) == len(duties) and len(first) == 1 and first[0] is not None
        shards = duties[0][1].degree if is_cut or (is_same and set(first) == {None}) else 1
        groups = (
            sorted({made.rank_of(number) for number, duty in duties if duty.shard == shard}) for shard in range(shards)
        )
        found[name] = GradientSum(tuple(map(tuple, groups)), is_cut, tuple(users))
    return found


def sharing(made: Layout, members: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """The processes of those that sum a gradient that share its states: of each group of replicas."""
    count = made.shard_groups
    replicas = [made.duties[made.duties_of(rank)[0]].replica for rank in members]
    all_of = max(duty.replica for duty in made.duties) + 1
    pairs = list(zip(members, replicas, strict=True))
    return tuple(tuple(rank for rank, own in pairs if own * count // all_of == group) for group in range(count))


def _cuts(blocks: tuple[Block, ...], parameter: Any) -> list[Any]:
    """How each block of a stage that uses a parameter cuts it; ``None``: it has it whole."""
    found = []
    for block in blocks:
        if any(each is parameter for each in block.module.parameters()):
            cuts: Mapping[str, Any] = block.split.cuts if block.split else {}
            paths = (path for path in cuts if attribute(block.module, path) is parameter)
            found.append(next((cuts[path] for path in paths), None))
    return found
