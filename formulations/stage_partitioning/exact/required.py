"""What requirements mean for the threshold search: which TMPCs, downsets and degrees a plan may have.

Two nodes that share a stage are in the same downsets of a plan. Nodes that do not, and degrees of a node's stage, limit
the stages between two downsets. How many stages there are takes a copy of every downset for each number of stages that
it is split into; copies differ in bits behind those of the nodes, the lowest of which are 1. Label for label, the
argument of the search is what it was: what is limited are stages, whatever stands before and behind them.

Source: this project.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from formulations.compiled.array_types import Words
from formulations.contract.quantities import resolve_requirement, unknown_to
from formulations.stage_partitioning.definition.problem import allowed_dp_degrees
from formulations.stage_partitioning.definition.quantities import VOCABULARY
from formulations.stage_partitioning.kernels.tables import Lattice, Profile
from formulations.stage_partitioning.methods import HONOURED
from instances.problems.stage_partitioning import Layer, StageInstance
from instances.requirements import Requirement, requirements_of
from solvers.memory_budget import demand

#: Limits of stages are kept for each pair of downsets (8 bytes).
MAX_PAIRED = 3_000


@dataclass(frozen=True)
class Required:
    """What the requirements of an instance leave; nodes by position.

    ``instance`` has none any more, but fewer devices and TMPCs. ``together`` and ``apart`` are pairs of nodes;
    ``degrees`` are nodes with the data-parallel degrees that their stages may have; ``counts`` are the numbers of
    stages (``None``: any).
    """

    instance: StageInstance
    together: tuple[tuple[int, int], ...] = ()
    apart: tuple[tuple[int, int], ...] = ()
    degrees: tuple[tuple[int, frozenset[int]], ...] = ()
    counts: range | None = None

    @property
    def levels(self) -> int:
        """Copies of a downset: as many numbers of stages as make a difference."""
        if self.counts is None:
            return 1
        return max(0, self.counts.start - 1 if self._is_open else self.counts.stop - 2)

    @property
    def _is_open(self) -> bool:
        """Whether every larger number of stages is admitted as well."""
        assert self.counts is not None
        return self.counts.stop > most_stages(self.instance)

    def downsets(self, bits: Words) -> Words:
        """The downsets that a plan may pass through, of all ``bits``; with copies where stages are counted."""
        member = _members(bits, len(self.instance.layers))
        kept = np.ones(len(bits), bool)
        for u, v in self.together:
            kept &= member[:, u] == member[:, v]
        if self.counts is None:
            return bits[kept]
        size = member.sum(axis=1)
        middle = member[kept & (size > 0) & (size < member.shape[1])]
        ends = np.stack([np.zeros(member.shape[1], bool), np.ones(member.shape[1], bool)])
        unary = np.tri(self.levels + 1, self.levels, -1, dtype=bool)  # row c has c ones
        copies = [np.hstack([middle, np.broadcast_to(row, (len(middle), self.levels))]) for row in unary[1:]]
        return _pack(np.vstack([*copies, np.hstack([ends, unary[[0, -1]]])]))

    def limit_degrees(self, profile: Profile, lattice: Lattice) -> Lattice:
        """The lattice with the positions in ``profile.dp_degrees`` that stages between its downsets may have."""
        if not (self.apart or self.degrees or self.counts is not None):
            return lattice
        D, n = len(lattice.bits), len(self.instance.layers)
        demand(12.0 * D * D, f"the limits of stages between {D} downsets")
        member = _members(lattice.bits, n)
        least, most = np.zeros((D, D), np.int32), np.full((D, D), len(profile.dp_degrees) - 1, np.int32)

        def inside(v: int) -> NDArray[np.bool_]:
            return np.asarray(member[None, :, v] & ~member[:, None, v])

        for v, admitted in self.degrees:
            places = [place for place, d in enumerate(profile.dp_degrees.tolist()) if d in admitted] or [1, 0]
            here = inside(v)
            least[here] = np.maximum(least[here], places[0])
            most[here] = np.minimum(most[here], places[-1])
        for u, v in self.apart:
            most[inside(u) & inside(v)] = -1
        if self.counts is not None:
            most[~self._steps(lattice.bits, member)] = -1
        return lattice._replace(least_d=least, most_d=most)

    def _steps(self, bits: Words, member: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Between which copies a stage lies: it adds one to their numbers; the last one ends at a number admitted."""
        assert self.counts is not None
        n, size = member.shape[1], member.sum(axis=1)
        level = _members(bits, n + self.levels)[:, n:].sum(axis=1)
        after = np.minimum(level + 1, self.levels) if self._is_open else level + 1
        steps = (after[:, None] == level[None, :]) & (size[:, None] < size[None, :]) & (size[None, :] < n)
        steps[:, size == n] = ((level + 1 >= self.counts.start) & (level + 1 < self.counts.stop))[:, None]
        return np.asarray(steps)


def limits_of_requirements(instance: StageInstance) -> Required:
    """What the requirements leave; all are of `HONOURED`, and those about devices are upper bounds (`refusal`)."""
    found = Required(replace(instance, requirements=()))
    # The fewer devices, the fewer stages there can be: what counts stages comes last.
    for requirement in sorted(requirements_of(instance), key=lambda each: each.quantity == "num_stages"):
        quantity, arguments = resolve_requirement(VOCABULARY, instance, requirement)
        nodes = [instance.index[node] for node in arguments]
        found = _add_limit(found, quantity.name, nodes, requirement)
    return found


def _add_limit(found: Required, quantity: str, nodes: list[int], requirement: Requirement) -> Required:
    """The limits with one more requirement."""
    instance, holds = found.instance, requirement.holds
    if quantity == "num_devices" and requirement.amount >= 1:
        return replace(found, instance=replace(instance, num_devices=min(instance.num_devices, requirement.amount)))
    if quantity == "tp_degree_of":
        layers = [_at(layer, holds) if v in nodes else layer for v, layer in enumerate(instance.layers)]
        return replace(found, instance=replace(instance, layers=tuple(layers)))
    if quantity == "dp_degree_of":
        admitted = frozenset(d for d in allowed_dp_degrees(instance) if holds(d))
        return replace(found, degrees=(*found.degrees, (nodes[0], admitted)))
    if quantity == "same_stage" and holds(0) != holds(1):
        pair = (nodes[0], nodes[1])
        if holds(0):
            return replace(found, apart=(*found.apart, pair))
        return replace(found, together=(*found.together, pair))
    if quantity == "same_stage" and holds(0):
        return found
    every = range(1, most_stages(instance) + 1)
    counts = [count for count in found.counts or every if quantity == "num_stages" and holds(count)]
    if found.counts == range(0) or not counts:
        return replace(found, counts=range(0))  # nothing meets it
    return replace(found, counts=None if counts == list(every) else range(counts[0], counts[-1] + 1))


def _at(layer: Layer, holds: object) -> Layer:
    """A layer with the TMPCs of some tensor-parallel degrees alone."""
    assert callable(holds)
    return replace(layer, tmpcs={t: found for t, found in layer.tmpcs.items() if holds(t)})


def most_stages(instance: StageInstance) -> int:
    """No plan has more stages."""
    return min(len(instance.layers), instance.num_microbatches, instance.num_devices)


def refusal(instance: StageInstance, num_downsets: int) -> str | None:
    """Which requirement the search cannot honour, and why; ``None``: it honours all."""
    unknown = unknown_to(HONOURED, instance)
    if unknown is not None:
        return unknown
    for requirement in requirements_of(instance):
        if requirement.quantity == "num_devices" and requirement.relation != "<=":
            return f"it cannot honour the requirement {requirement}: its labels have the fewest devices"
    found = limits_of_requirements(instance)
    rows = num_downsets * max(1, found.levels)
    if (found.apart or found.degrees or found.counts is not None) and rows > MAX_PAIRED:
        return f"{rows} downsets are too many for limits of the stages between each two; at most {MAX_PAIRED}"
    return None


def _members(bits: Words, n: int) -> NDArray[np.bool_]:
    """Which of n bits are set, shape (D, n)."""
    return np.unpackbits(bits.view(np.uint8), axis=1, bitorder="little")[:, :n].astype(bool)


def _pack(member: NDArray[np.bool_]) -> Words:
    """The inverse of `_members`."""
    words = max(1, -(-member.shape[1] // 64))
    whole = np.zeros((len(member), 64 * words), bool)
    whole[:, : member.shape[1]] = member
    return np.packbits(whole, axis=1, bitorder="little").view(np.uint64)
