"""The knapsack subproblems that arise in a Piper run: how many, how well each rule solves them, and each of them.

| Paper              | Here                                                                    |
|--------------------|-------------------------------------------------------------------------|
| D, D', S = D \\ D' | ``Origin.outer``, ``Origin.inner``: indices of downsets in the lattice  |
| t, d               | ``Origin.q``, ``Origin.dp``: positions in the profile's degrees         |
| ceil(s/d)          | ``Origin.y``: micro-batches in flight                                   |

Source: Piper, Appendix C and D.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from formulations.compiled.array_types import Floats, Ints
from formulations.compiled.downsets import all_downsets, position_masks, too_many
from formulations.stage_partitioning.kernels import walk
from formulations.stage_partitioning.kernels.arrays import CallScratch
from formulations.stage_partitioning.kernels.tables import Lattice, Profile, build_lattice, build_profile, carriers
from formulations.stage_partitioning.methods import MAX_DOWNSETS
from instances.problems.stage_partitioning import CostModel, StageInstance
from instances.problems.tmpc_knapsack import Choice, KnapsackInstance, KnapsackNode
from instances.rules import NodeId

#: Non-trivial instances that one range is expected to have at most, 40 bytes each; more are walked over once again.
_AT_ONCE = 200_000
#: The heuristic's variants, in the order of the kernels' tables.
RULES = ("rerank", "sort-once", "truncating")
#: Upper ends of the bins of the histogram of relative gaps; one more bin lies beyond.
EDGES = (0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


class Origin(NamedTuple):
    """Where an instance arises: downsets by index, positions of t and d in the profile, micro-batches in flight."""

    inner: int
    outer: int
    q: int
    dp: int
    y: int


class Options(NamedTuple):
    """What the instances of one call share: nodes, options per node, and the options of all nodes, node by node.

    An option takes ``per_microbatch`` * y + ``static`` bytes.
    """

    nodes: list[NodeId]
    counts: Ints
    tmpcs: list[str]
    time: Floats
    per_microbatch: Floats
    static: Floats


@dataclass(frozen=True)
class RuleTally:
    """How one rule fared on the non-trivial instances.

    ``usable`` of the ``suboptimal`` ones have a y that a plan of at most S = min(N, K) micro-batches can reach, at most
    ceil(S/d) (see `last_y`). ``missed``: it found nothing though something fits. ``gap_sum`` adds the relative gaps up;
    ``histogram`` counts them by `EDGES`; ``worst`` are the largest.
    """

    suboptimal: int
    usable: int
    missed: int
    gap_sum: float
    histogram: tuple[int, ...]
    worst: tuple[tuple[float, Origin], ...]


@dataclass(frozen=True)
class Survey:
    """Counts of one range of outer downsets; ``instances`` = fastest-feasible + infeasible + non-trivial.

    ``reachable`` of the ``instances`` have a y <= ceil(S/d), S = min(N, K): all that Appendix D counts.
    """

    pairs: int
    calls: int
    instances: int
    reachable: int
    all_fastest_feasible: int
    infeasible: int
    nontrivial: int
    rules: dict[str, RuleTally]


class Subproblems:
    """All knapsack subproblems of one instance, or those with a y of at most ``most_y``; threads may share it.

    `ValueError` if the graph has more downsets than can be enumerated.
    """

    def __init__(self, instance: StageInstance, most_y: int | None = None) -> None:
        downsets = all_downsets(instance, MAX_DOWNSETS)
        if downsets is None:
            raise ValueError(f"{too_many(len(instance.layers), MAX_DOWNSETS)}; try --linearize or --first")
        self.instance = instance
        self.profile: Profile = build_profile(instance, prune=False)
        self.lattice: Lattice = build_lattice(self.profile, downsets)
        self.rules = RULES if int(self.profile.num_tmpcs.max(initial=0)) <= 2 else ("rerank", "truncating")
        self._masks = position_masks(self.lattice.bits)
        self._heavy = self._most_memory()
        last = last_y(instance, self.profile.dp_degrees)
        self._last_y = last if most_y is None else np.minimum(last, most_y)

    def _most_memory(self) -> Floats:
        """Bytes that every downset takes at most, shape (q, D): all options at their heaviest, the largest y."""
        profile = self.profile
        held = profile.per_microbatch.copy()
        for h, v in enumerate(carriers(profile)):
            held[:, v] += profile.carried[:, h]
        heaviest = (held * (1 + profile.max_s) + profile.static).max(axis=2, initial=0.0)
        bits = np.unpackbits(self.lattice.bits.view(np.uint8), axis=1, bitorder="little")
        return np.ascontiguousarray(heaviest @ bits[:, : heaviest.shape[1]].T.astype(np.float64))

    @property
    def num_downsets(self) -> int:
        """Downsets of the graph: outer ones are 1, ..., num_downsets - 1."""
        return len(self.lattice.bits)

    def survey(self, first: int, last: int, *, worst: int = 5) -> Survey:
        """Solve every instance with ``first`` <= outer < ``last`` exactly and by every rule."""
        counts = _no_counts()
        _, origins = self._pick(first, last, True, 0, np.arange(_AT_ONCE), counts)
        nontrivial = int(counts[walk.NONTRIVIAL])
        if nontrivial > len(origins):
            _, origins = self._pick(first, last, True, 0, np.arange(nontrivial))
        gaps = np.zeros((len(RULES), nontrivial))
        use = np.array([rule in self.rules for rule in RULES])
        walk.compare(
            self.profile, self.lattice, self.instance.memory_bytes, origins, self._groups(origins), use, gaps,
            _scratch(self.profile), np.zeros(1, np.uint8),
        )  # fmt: skip
        reachable_y = -(-self.profile.max_s // self.profile.dp_degrees[origins[:, 3]])
        usable = origins[:, 4] <= reachable_y
        rules = {rule: _tally(gaps[r], usable, origins, worst) for r, rule in enumerate(RULES) if use[r]}
        pairs, calls, instances, reachable, fastest, infeasible, _ = counts.tolist()
        return Survey(pairs, calls, instances, reachable, fastest, infeasible, nontrivial, rules)

    def count(self, first: int, last: int, *, nontrivial: bool) -> int:
        """Instances with ``first`` <= outer < ``last``, all or only the non-trivial ones."""
        return self._pick(first, last, nontrivial, 0, np.empty(0, np.int64))[0]

    def pick(
        self, first: int, last: int, ordinals: Sequence[int] | Ints, *, nontrivial: bool, seen: int = 0
    ) -> list[Origin]:
        """The instances of these ascending numbers, counted in the order of the walk from ``seen`` at ``first``."""
        wanted = np.asarray(ordinals, np.int64)
        _, found = self._pick(first, last, nontrivial, seen, wanted)
        return [Origin(*row) for row in found.tolist()]

    def _pick(
        self, first: int, last: int, nontrivial: bool, seen: int, wanted: Ints, counts: Ints | None = None
    ) -> tuple[int, Ints]:
        found = np.empty((len(wanted), 5), np.int64)
        here, taken = walk.pick(
            self.profile, self.lattice, self.instance.memory_bytes, self._heavy, self._last_y, first, last, nontrivial,
            seen, wanted, found, _no_counts() if counts is None else counts, _scratch(self.profile),
        )  # fmt: skip
        return int(here), found[:taken]

    def _groups(self, origins: Ints) -> Ints:
        """Where the stages of ``origins`` begin, and equal ones before them (`kernels.walk.twins`)."""
        stages = int((np.diff(origins[:, :3], axis=0) != 0).any(axis=1).sum()) + 1
        groups, table = np.empty((stages, 2), np.int64), np.full(1 << (2 * stages).bit_length(), -1, np.int64)
        one, other = _scratch(self.profile), _scratch(self.profile)
        return groups[: walk.twins(self.profile, self.lattice.bits, origins, groups, table, one, other)]

    def options(self, origin: Origin) -> Options:
        """The options of a call (whatever its y)."""
        scratch, q = _scratch(self.profile), origin.q
        m = int(walk.open_call(self.profile, self.lattice.bits, q, origin.inner, origin.outer, origin.dp, -1, scratch))
        t, total = int(self.profile.tp_degrees[q]), int(scratch.start[m])
        layers = [self.instance.layers[v] for v in scratch.nodes[:m].tolist()]
        return Options(
            nodes=[layer.id for layer in layers],
            counts=np.diff(scratch.start[: m + 1]),
            tmpcs=[tmpc.id for layer in layers for tmpc in layer.tmpcs[t]],  # the profile keeps all, in this order
            time=scratch.cost[:total],
            per_microbatch=scratch.per_microbatch[:total],
            static=scratch.static[:total],
        )

    def knapsack(self, origin: Origin) -> KnapsackInstance:
        """An instance as its own family has it: times are shares of the stage's time per sample."""
        found = self.options(origin)
        memory = found.per_microbatch * origin.y + found.static
        choices = [Choice(*each) for each in zip(found.tmpcs, found.time.tolist(), memory.tolist(), strict=True)]
        ends = np.cumsum(found.counts).tolist()
        nodes = tuple(
            KnapsackNode(node, tuple(choices[start:end]))
            for node, start, end in zip(found.nodes, [0, *ends], ends, strict=False)
        )
        facts = self.facts(origin)
        return KnapsackInstance(name_of(facts), nodes, self.instance.memory_bytes, origin=facts)

    def facts(self, origin: Origin) -> dict[str, str | int | float]:
        """The origin in words: downsets as hexadecimal masks (bit v: the v-th node of the parent), t, d and y."""
        return {
            "parent": self.instance.name,
            "outer": f"{self._masks[origin.outer]:x}",
            "inner": f"{self._masks[origin.inner]:x}",
            "t": int(self.profile.tp_degrees[origin.q]),
            "d": int(self.profile.dp_degrees[origin.dp]),
            "y": origin.y,
        }


def last_y(instance: StageInstance, dp_degrees: Ints) -> Ints:
    """The last y = ceil(s/d) for which a run solves a call's knapsack, for each of ``dp_degrees``; the first is 1.

    With s <= S = min(N, K) no stage holds more than ceil(S/d) micro-batches: the paper's count. The released program
    tabulates y = 1 + floor(s'/d) for s' = 0, ..., S: one more where d divides S, and the same elsewhere.

    Source: Piper, Appendix D (ceil(N/d) instances for each d), and the released program.
    """
    S = min(instance.num_microbatches, instance.num_devices)
    if instance.cost_model is not CostModel.PAPER:
        return 1 + S // dp_degrees
    return -(-S // dp_degrees)


def _tally(gaps: Floats, usable: NDArray[np.bool_], origins: Ints, worst: int) -> RuleTally:
    missed = np.isinf(gaps)
    suboptimal = (gaps > 0) & ~missed
    found = gaps[suboptimal]
    bins = np.searchsorted(EDGES, found)  # a gap at an edge belongs to the bin below it
    largest = np.argsort(-found, kind="stable")[:worst]
    at = np.flatnonzero(suboptimal)[largest]
    return RuleTally(
        suboptimal=len(found),
        usable=int((suboptimal & usable).sum()),
        missed=int(missed.sum()),
        gap_sum=float(found.sum()),
        histogram=tuple(np.bincount(bins, minlength=len(EDGES) + 1).tolist()),
        worst=tuple((float(gaps[r]), Origin(*origins[r].tolist())) for r in at),
    )


def name_of(facts: Mapping[str, Any]) -> str:
    """The name of the instance that arises there."""
    return "{parent}-{outer}-{inner}-t{t}-d{d}-y{y}".format(**facts)


def _no_counts() -> Ints:
    return np.zeros(walk.COUNTS, np.int64)


def _scratch(profile: Profile) -> CallScratch:
    n = profile.num_tmpcs.shape[1]
    base, weight, per_microbatch, static, cost, memory = np.zeros((6, n * profile.time.shape[2]))
    nodes, start, choice = np.zeros(n, np.int64), np.zeros(n + 1, np.int64), np.zeros(n, np.int64)
    return CallScratch(nodes, start, base, weight, per_microbatch, static, cost, memory, choice)
