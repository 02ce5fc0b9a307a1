"""A micro-batch size and a k for each stage, compiled: the same recursion without a table by its plain formulas."""

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from branching_cases import random_graph

from formulations.contract.family import Answer
from formulations.microbatch_schedule.definition.in_flight import rule
from formulations.stage_graph.costs.costs import Costs
from formulations.stage_graph.costs.series_parallel import decompose, nodes_of
from formulations.stage_graph.definition.plan import StagePlan
from formulations.stage_graph.definition.problem import bottleneck_s, violations
from formulations.stage_graph.kernels.per_stage import cell
from formulations.stage_graph.paper import graphpipe, per_stage
from formulations.stage_graph.paper.per_stage import PerStage
from formulations.stage_graph.paper.program import CHAIN, FORK, GROUP, SPLIT, STAGE, Branches, Move, Reach, Remainder
from formulations.stage_graph.paper.search import Search
from formulations.stage_graph.upsets import configurations
from instances.problems.stage_graph import AffineTime, Operator, OperatorEdge, StageGraph, TableTime
from solvers.outcome import Limits, Stop, Watch

#: Peak memory, samples in flight at the first stages, and the stages: operators, devices, size and k.
Kept = tuple[float, int, tuple[tuple[int, int, int, int], ...]]


class Plain:
    """The recursion of ``PerStage`` for a target by sets of operators, with the definition's costs and rule."""

    def __init__(self, wider: PerStage, target_s: float) -> None:
        self.wider, self.costs, self.target_s = wider, wider.costs, target_s
        self.instance, self.samples = self.costs.instance, self.costs.instance.minibatch
        self.blocks = sorted({k for _, k in wider.configurations})
        self.known: dict[tuple[object, ...], dict[tuple[int, int], Kept]] = {}

    def best(self, remainder: Remainder, behind: tuple[int, int, int], devices: int) -> dict[tuple[int, int], Kept]:
        parts = remainder.branches if isinstance(remainder, Branches) else (remainder,)
        key = isinstance(remainder, Branches), tuple(map(nodes_of, parts)), behind, devices
        if key not in self.known:
            found: dict[tuple[int, int], Kept] = {}
            for move in self.wider.search.program.moves(remainder) if devices else ():
                for c, each in self.ways(move, behind, devices):
                    if c not in found or each[:2] < found[c][:2]:
                        found[c] = each
            self.known[key] = dict(sorted(found.items()))
        return self.known[key]

    def ways(self, move: Move, behind: tuple[int, int, int], devices: int) -> Iterator[tuple[tuple[int, int], Kept]]:
        splits, first = move.kind in (CHAIN, SPLIT, FORK), move.kind in (STAGE, GROUP)
        rest = move.first if first else move.second
        for left in range(1, devices + 1) if splits else (0,):
            ends = self.best(move.first, behind, left) if splits else {behind[1:]: (0.0, behind[0], ())}
            for c, end in ends.items():
                between = behind if move.kind == SPLIT else (end[1], *c)
                stages = [(0, 0, *c)] if move.kind in (CHAIN, SPLIT) else self.stages(move.nodes, devices - left)
                for stage in stages:
                    own, taken, memory, kept = stage[2:], (stage,) * (stage[1] > 0), end[0], end[1]
                    if taken:
                        kept = min(rule([between] if between[1] else [], *own, self.instance.pass_ratio), self.samples)
                        memory = max(memory, self.costs.memory(stage[0], own[0], stage[1], kept))
                    if memory > self.instance.memory_bytes:
                        continue
                    if not rest:
                        if left + stage[1] == devices:
                            yield own, (memory, kept, (*end[2], *taken))
                        continue
                    before = behind if move.kind in (SPLIT, GROUP) else (kept, *own)
                    for other, found in self.best(rest, before, devices - left - stage[1]).items():
                        if move.kind in (SPLIT, GROUP) and other != own:
                            continue
                        most = max(kept, found[1]) if move.kind in (SPLIT, GROUP) else found[1]
                        yield other, (max(memory, found[0]), most, (*end[2], *taken, *found[2]))

    def stages(self, nodes: int, devices: int) -> Iterator[tuple[int, int, int, int]]:
        for degree in (degree for degree in self.wider.search.degrees if degree <= devices):
            sizes = [b for b in self.wider.sizes if b >= degree and self.costs.tps(nodes, b, degree) <= self.target_s]
            for b in sizes[:2]:
                yield from ((nodes, degree, b, k) for k in self.blocks if k * b <= self.samples)


def run(instance: StageGraph, watch: Watch | None = None, **options: object) -> Answer[StagePlan]:
    return graphpipe.solve_graphpipe(instance, Limits(), watch or Watch(), **options)


def value(instance: StageGraph, answer: Answer[StagePlan]) -> float:
    """The time per sample of a plan that keeps all rules; ``inf`` without a plan."""
    assert answer.plan is None or violations(instance, answer.plan) == ()
    return math.inf if answer.plan is None else bottleneck_s(instance, answer.plan)


def equal_branches(rng: random.Random) -> StageGraph:
    """Two or three equal chains, mostly with an operator behind them, half of the time with one before them."""
    ahead, length = rng.randint(0, 1), rng.randint(1, 2)
    times = [AffineTime(float(rng.randint(0, 4)), float(rng.randint(1, 4))) for _ in range(length + 2)]
    made = [Operator("", each, each, float(rng.randint(0, 2)), float(rng.randint(1, 4))) for each in times]
    branches, edges = rng.randint(2, 3), []
    last = ahead + branches * length
    for first in range(ahead, last, length):
        row = [*range(ahead), *range(first, first + length), *((last,) if rng.random() < 0.9 else ())]
        edges += [OperatorEdge(u, v, 1.0) for u, v in itertools.pairwise(row)]
    operators = (*made[:ahead], *made[1 : 1 + length] * branches, made[-1])
    edges.sort(key=lambda each: (each.source, each.target))
    return StageGraph("equal", operators, tuple(edges), rng.randint(2, 4), 1.0, 1.0, rng.choice((0.0, 0.25)), 8)


def mixed(number: int) -> StageGraph:
    """A random graph, or equal branches, in either schedule; memory for a sixth to more than all of it."""
    rng = random.Random(f"per stage {number}")
    made = random_graph(number, (2, 5), 4, series_parallel=bool(number % 4)) if number % 2 else equal_branches(rng)
    whole = sum(4 * each.weight_bytes + 2 * each.activation_bytes for each in made.operators)
    return replace(
        made, memory_bytes=float(int(whole * rng.uniform(0.15, 1.5)) + 1), minibatch=rng.choice((4, 8, 12)),
        schedule=rng.choice(("per-stage", "kfkb")), pass_ratio=rng.choice(((1, 2), (1, 1), (3, 2))),
    )  # fmt: skip


def test_compiled_and_plain_find_the_same(many: int) -> None:
    """Every configuration's plan of whole models at some targets, on any devices: memory, in flight, and the stages."""
    seen = dict.fromkeys(["mixed", "k", "none", "one of equal branches"], 0)
    for number in range(181, 181 + (many or 15)):
        instance, rng = mixed(number), random.Random(number)
        costs = Costs(instance)
        reach, degrees = rng.choice(list(Reach)), graphpipe.degrees_of(instance, bool(number % 3))
        search = Search(costs, decompose(costs).segment, reach, degrees, False, False, Watch())
        wider = PerStage(search)
        plans = list(wider.below(math.inf))
        seen["none"] += not plans
        fastest = min((bottleneck_s(instance, plan) for plan in plans), default=math.inf)
        for target in (fastest * (1 + 1e-9), 1.5 * fastest):
            plain, wanted = Plain(wider, target), None
            plan = wider._plan(target)
            for devices in range(instance.num_devices, 0, -1):
                each = plain.best(search.segment, (0, 0, 0), devices)
                wanted = wanted or (min(each.values(), key=lambda kept: kept[0]) if each else None)
                at = cell(search.tables.moves, wider._within(target), wider._cells, target,
                          float(instance.memory_bytes), search.root, devices, search.flag)  # fmt: skip
                rows = range(wider._cells.start[at], wider._cells.end[at])
                found = {wider.configurations[wider._cells.rows[row, 0]]: row for row in rows}
                assert list(found) == list(each), (number, target, devices)
                for c, row in found.items():
                    assert (wider._cells.memory[row], wider._cells.rows[row, 1]) == each[c][:2], (number, target, c)
                    seen["k"] += c[1] > 1
            assert (plan is None) == (wanted is None)
            if plan is not None and wanted is not None:
                assert violations(instance, plan) == ()
                stages = [(sum(1 << v for v in own.nodes), own.devices, own.microbatch, own.k) for own in plan.stages]
                assert sorted(stages) == sorted(wanted[2]), number
                seen["mixed"] += len({own.microbatch for own in plan.stages}) > 1
                seen["one of equal branches"] += number % 2 == 0 and len(stages) > 2
    assert all(seen.values()), seen


def test_between_the_optimum_and_one_size(many: int) -> None:
    """No better than the best of all partitions with all sizes and k, and no worse than with one size and 1F1B."""
    seen = dict.fromkeys(["optimal", "better", "mixed"], 0)
    for number in range(40, 40 + (many or 8)):
        instance = replace(mixed(number), minibatch=8)
        if instance.num_operators <= 4:
            answer, every = run(instance, any_degree=True), configurations.solve(instance, Limits(), Watch())
            best, found = value(instance, every), value(instance, answer)
            one = value(instance, run(replace(instance, schedule="uniform"), any_degree=True))
            assert every.stop is Stop.PROVED and best * (1 - 1e-9) <= found <= one, number
            seen["optimal"] += found <= best * (1 + 1e-4)
            seen["better"] += found < one * (1 - 1e-6)
            seen["mixed"] += answer.plan is not None and len({own.microbatch for own in answer.plan.stages}) > 1
    assert all(seen.values()), seen


def test_sizes_of_figure_5_and_tables_that_are_full(monkeypatch: pytest.MonkeyPatch) -> None:
    # Three stages that are fast from 1, 2 and 4 samples on; a size each keeps fewer samples in flight at the first.
    def table(smallest: int) -> TableTime:
        return TableTime((smallest, 8), (float(smallest), 8.0))

    made = tuple(Operator(str(size), table(size), table(size), 1.0, 1.0) for size in (1, 2, 4))
    edges = (OperatorEdge(0, 1, 0.0), OperatorEdge(1, 2, 0.0))
    # Memory for four copies of a weight and for 10 samples (one byte each), not for the 12 of a uniform size.
    instance = StageGraph("figure 5", made, edges, 3, 14.0, 1.0, 0.0, 32, microbatches=(1, 2, 4))
    uniform = run(instance)
    assert value(instance, uniform) > 2.0
    allowed = replace(instance, schedule="per-stage")
    answer = run(allowed)
    assert answer.plan is not None and value(allowed, answer) == 2.0
    assert [(stage.microbatch, stage.in_flight) for stage in answer.plan.stages] == [(1, 10), (2, 8), (4, 4)]
    monkeypatch.setattr(per_stage, "_PLACES", (4, 1 << 20))  # too small a table grows
    grown = run(allowed)
    assert grown.plan == answer.plan and grown.stats["rounds"] > answer.stats["rounds"]
    monkeypatch.setattr(per_stage, "_PLACES", (4, 4))
    short = run(allowed)
    assert short.stop is Stop.SIZE_LIMIT and "4 cells" in short.reason and value(allowed, short) > 2.0
