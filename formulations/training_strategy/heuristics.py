"""What people use: Megatron's even split, and the fill of a pipeline in closed form."""

import heapq
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, groupby, pairwise, takewhile
from operator import attrgetter

import numpy as np

from formulations.contract.family import Answer
from formulations.training_strategy.costs import Chain, Chains, Choice, Table, TooManyWaysError, chain_of, plan_of
from formulations.training_strategy.definition.plan import StrategyPlan
from formulations.training_strategy.degrees import Degrees, all_degrees
from formulations.training_strategy.fixed_orders import in_flight, moments
from formulations.training_strategy.layouts import Layouts, least_sum, places, quick_bound
from instances.problems.training_strategy import Schedule, StrategyInstance
from solvers.outcome import Limits, Stop, Watch


def even(instance: StrategyInstance, _limits: Limits, watch: Watch) -> Answer[StrategyPlan]:
    """As many blocks in each chunk, at the degrees with the shortest simulated iteration.

    Blocks are the longest run of equal layers; what is before them is in the first chunk, what is behind them in the
    last. In all chunks the same number of first blocks, the least that fits, run in the way that holds the fewest
    activations, and all other layers in their fastest way. Degrees whose chunks do not divide the blocks are left out.

    Source: Megatron-LM: ``num_layers`` in equal parts, ``--recompute-method block --recompute-num-layers``.
    """
    return _evenly(instance, watch, even_split, lambda blocks: range(len(blocks[0]) + 1))


def torchtitan(instance: StrategyInstance, _limits: Limits, watch: Watch) -> Answer[StrategyPlan]:
    """Chunks whose numbers of blocks differ by at most one, at the degrees with the shortest simulated iteration.

    What is before the blocks counts as one of them, and so does what is behind them; the first chunks have one more.
    All blocks run in the way that holds the fewest activations, or none does.

    Source: torchtitan 0.2.2, distributed/pipeline_parallel.py: modules of a part by weights of 1, which are its
    default.
    """
    return _evenly(instance, watch, titan_split, lambda blocks: (0, max(map(len, blocks))))


def _evenly(
    instance: StrategyInstance,
    watch: Watch,
    split: Callable[[StrategyInstance, Degrees], tuple[list[int], list[range]] | None],
    numbers: Callable[[list[range]], Iterable[int]],
) -> Answer[StrategyPlan]:
    """The best degrees by simulation, where ``split`` has ends and blocks, of which the first ``numbers`` recompute."""
    chains, simulated, best = Chains(), 0, math.inf
    plan: StrategyPlan | None = None
    in_time = takewhile(lambda _: not watch.stopped(), all_degrees(instance))
    every = [(degrees, chain_of(chains, instance, degrees)) for degrees in in_time]
    for degrees, chain in sorted(every, key=lambda each: quick_bound(each[1], each[0])):
        if quick_bound(chain, degrees) >= best or watch.stopped():
            break
        cut = split(instance, degrees)
        if cut is None:
            continue
        ends, blocks = cut
        chunks = list(pairwise((0, *ends)))
        choices = _recomputing_first(chain, degrees, chunks, blocks, numbers(blocks))
        if choices is None:
            continue
        found, _ = chain.batch(degrees, ends, [choices[i].again[g // degrees.p] for g, i in enumerate(degrees.devices)])
        simulated += 1
        if found < best:
            best, plan = found, plan_of(chain, degrees, ends, choices)
            watch.plan(plan, best)
    return Answer(plan, stop=watch.why(Stop.COMPLETED), reason=why_none(plan, watch), stats={"simulated": simulated})


def why_none(plan: StrategyPlan | None, watch: Watch) -> str:
    """What a method says that looked at all degrees and found no plan."""
    return "" if plan is not None or watch.stopped() else "no degrees have a plan of this kind that fits"


def even_split(instance: StrategyInstance, degrees: Degrees) -> tuple[list[int], list[range]] | None:
    """The end and the blocks of each chunk; ``None`` if the chunks do not divide the blocks."""
    first, longest, num_layers = _blocks(instance, degrees)
    size, left = divmod(longest, degrees.num_chunks)
    return None if left else _cut(first, [size] * degrees.num_chunks, num_layers)


def titan_split(instance: StrategyInstance, degrees: Degrees) -> tuple[list[int], list[range]] | None:
    """As `even_split`, with one block less in the first and in the last chunk; ``None`` if a chunk had nothing."""
    first, longest, num_layers = _blocks(instance, degrees)
    size, more = divmod(longest + 2, degrees.num_chunks)
    sizes = [size + (g < more) for g in range(degrees.num_chunks)]
    sizes[0] -= 1
    sizes[-1] -= 1
    return _cut(first, sizes, num_layers) if size else None


def _blocks(instance: StrategyInstance, degrees: Degrees) -> tuple[int, int, int]:
    """Where the longest run of equal layers begins, how many they are, and the number of all layers."""
    # Neighbours have other ids, and volumes to synchronise with them belong to edges.
    amounts = attrgetter("time", "weight_bytes", "activation_bytes", "static_bytes")
    ways = ([*map(amounts, layer.tmpcs[degrees.t])] for layer in instance.chain)
    runs = [len(list(run)) for _, run in groupby(ways)]
    longest = max(runs)
    return sum(runs[: runs.index(longest)]), longest, sum(runs)


def _cut(first: int, sizes: list[int], num_layers: int) -> tuple[list[int], list[range]] | None:
    """The end and the blocks of chunks of so many; ``None`` if one has no layer."""
    ends = list(accumulate(sizes, initial=first))
    blocks = [range(x, y) for x, y in pairwise(ends)]
    cuts = [0, *ends[1:-1], num_layers]
    return (cuts[1:], blocks) if all(x < y for x, y in pairwise(cuts)) else None


def _recomputing_first(
    chain: Chain, degrees: Degrees, chunks: list[tuple[int, int]], blocks: list[range], numbers: Iterable[int]
) -> list[Choice] | None:
    """How the layers of each device run where all chunks recompute as many first blocks: the first number that fits."""
    rows = moments(degrees)
    lean = [min(ways, key=lambda way: (way.activation, way.static, way.again)) for ways in chain.ways]
    fast = [min(ways) for ways in chain.ways]
    for number in numbers:
        leans = {v for own in blocks for v in own[:number]}
        every = [[(lean if v in leans else fast)[v] for v in range(x, y)] for x, y in chunks]
        found = [[every[g] for g in own] for own in degrees.held]
        if all(chain.fits(own, row) for own, row in zip(found, rows, strict=True)):
            again = [tuple(math.fsum(way.again for way in chunk) for chunk in own) for own in found]
            return [
                Choice(a, tuple(way.id for chunk in own for way in chunk)) for a, own in zip(again, found, strict=True)
            ]
    return None


def formula(instance: StrategyInstance, _limits: Limits, watch: Watch) -> Answer[StrategyPlan]:
    """The best plan by S + (m - 1) C + R: its iteration is simulated, but no other plan's.

    S is the time of a micro-batch in all stages, C that in the slowest one, and R the longest sum of gradients, all of
    one chunk on each device under 1F1B. At given degrees the layout is the one of the least S + (m - 1) C, and stages
    recompute as little as fits.

    Source: Narayanan et al. 2021, section 2.2: (m + p - 1) t for equal stages; AMP's Equation 4, with sends in stages.
    """
    return least_by_formula(instance, watch, all_degrees(instance))


def least_by_formula(
    instance: StrategyInstance,
    watch: Watch,
    candidates: Iterable[Degrees],
    *,
    share: float = 1.0,
    tables: Callable[[Layouts], tuple[Table, Table]] = lambda own: 2 * (own.forward * 3 + own.again + own.allowed,),
) -> Answer[StrategyPlan]:
    """The best plan of some degrees by S + (m - 1) C + R, or with a ``share`` of R.

    ``tables``: what a chunk adds to S, and its longest step; it may be one step, with what it receives and sends.
    """
    chains: Chains = {}
    queue: list[tuple[float, int, Degrees]] = []
    for degrees in candidates:
        if degrees.schedule is Schedule.ONE_F_ONE_B:
            chain = chain_of(chains, instance, degrees)
            heapq.heappush(queue, (_quick_formula(chain, degrees, share), len(queue), degrees))
    best, plan = math.inf, None
    while queue and not watch.stopped():
        low, _, degrees = heapq.heappop(queue)
        if low >= best:
            break
        layouts = Layouts(chain_of(chains, instance, degrees), degrees)
        if layouts.bound == math.inf:
            continue
        for found, ends in _by_formula(layouts, tables(layouts), best, watch, share):
            chunks = list(pairwise((0, *ends)))
            try:
                choices = [layouts.chain.fastest(x, y, in_flight(degrees, g)) for g, (x, y) in enumerate(chunks)]
            except TooManyWaysError as error:
                return Answer(plan, stop=Stop.SIZE_LIMIT, reason=str(error))
            if None not in choices:
                best, plan = found, plan_of(layouts.chain, degrees, ends, [own for own in choices if own is not None])
    if plan is not None:
        watch.plan(plan)
    return Answer(plan, stop=watch.why(Stop.COMPLETED), reason=why_none(plan, watch))


def _quick_formula(chain: Chain, degrees: Degrees, share: float) -> float:
    """A lower bound on the formula at given degrees, in no time."""
    slowest = max(chain.total / degrees.p, float(chain.time.max()))
    behind = chain.behind(degrees)
    largest = max(float(behind[0, -1]) / degrees.p, float(np.diagonal(behind, 1).max()))
    return chain.total + (degrees.m - 1) * slowest + share * largest


def _by_formula(
    layouts: Layouts, tables: tuple[Table, Table], best: float, watch: Watch, share: float
) -> Iterator[tuple[float, tuple[int, ...]]]:
    """Layouts at given degrees that are better by the formula than all before, with its value."""
    t, step = tables
    m = layouts.degrees.m
    least, _ = least_sum(t)
    limits = np.unique(step[np.isfinite(step)]).tolist()
    first = bisect_left(limits, True, key=lambda limit: math.isfinite(least_sum(_within(t, step, limit))[0]))
    for limit in limits[first:]:
        # No layout whose slowest stage takes this takes less in all its stages than one without a limit.
        if least + (m - 1) * limit >= best or watch.stopped():
            return
        found, ends = least_sum(_within(t, step, limit))
        found += (m - 1) * float(step[places(ends)].max()) + share * float(layouts.gradients[places(ends)].max())
        if found < best:
            best = found
            yield found, ends


def _within(t: Table, step: Table, limit: float) -> Table:
    return np.where(step <= limit, t, math.inf)
