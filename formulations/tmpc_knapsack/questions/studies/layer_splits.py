"""Where TMPCs come from: the Pareto set of the splits declared for a layer's operators, on t devices.

With a saving above 0 (`planner import --splits found` takes 5 %) the list is not the whole Pareto set.

Every operator has splits (whole on each device, by columns, by rows, by samples or positions), each with a time, bytes,
and the layouts in which it takes its inputs and gives its result. Where the two differ, the devices exchange the
tensor in a ring, once for every layout that is taken. A gradient has a layout of its own: what columns take whole, they
give a partial gradient of. The borders of the layer are operators, with one split where tensors enter and leave whole.
In a chain of layers they have one for each layout, and a layer ends in the one that the next begins in (`along_chain`).

Source: this project, for Piper's open question (section 6: "automatically finding good tensor-parallelism schemes for
each individual layer type"). Exchanges as in a ring: all-reduce 2 (t-1)/t, gather and scatter (t-1)/t of the tensor.
"""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from solvers.cpsat import backend as cpsat
from solvers.outcome import Limits, Watch

#: Layouts of a tensor on t devices: all of it on each, or terms of a sum; from 0 on the dimension that is in shares.
WHOLE, PARTIAL = -1, -2
#: Operators are joined up to so many splits: a block of Llama has 15 operators then, with 600 12, and takes longer.
_MOST_JOINED = 100


class Layout(NamedTuple):
    """How a tensor lies on the devices, and how its gradient does."""

    forward: int
    gradient: int


class Amounts(NamedTuple):
    """Time of a sample, bytes for each micro-batch in flight, bytes besides; all whole numbers."""

    time: int
    activation_bytes: int
    static_bytes: int


@dataclass(frozen=True)
class Split:
    """A way to run an operator: a layout for each input, that of the result, what it takes.

    ``gives.gradient`` is the layout that the operator needs the gradient in. ``passing_bytes`` are there during the
    layer's backward pass alone.
    """

    name: str
    takes: tuple[Layout, ...]
    gives: Layout
    amounts: Amounts
    passing_bytes: int = 0


@dataclass(frozen=True)
class Operator:
    """The places of operators whose results this one takes, and its splits.

    ``forward_step`` and ``backward_step`` are times to move (t-1)/t^2 of its result, and of the gradient;
    ``again_step``, that of a result which is kept in shares and moved once more where it is taken in another layout.
    """

    inputs: tuple[int, ...]
    splits: tuple[Split, ...]
    forward_step: int
    backward_step: int
    again_step: int = 0

    def exchange(self, is_forward: bool, given: int, taken: int, degree: int) -> int:
        """Time to change the layout of its result from the given to the taken one, or of its gradient back."""
        if not is_forward:
            return self.backward_step * steps(taken, given, degree)
        return (self.forward_step + self.again_step * (given >= 0)) * steps(given, taken, degree)


@dataclass(frozen=True)
class SplitLayer:
    """Operators in a topological order, on ``degree`` devices; ``room_bytes`` of what passes cost nothing."""

    degree: int
    operators: tuple[Operator, ...]
    room_bytes: int = 0


class Way(NamedTuple):
    """A split for every operator, by its place, and what they amount to."""

    choice: tuple[int, ...]
    amounts: Amounts


class Chain(NamedTuple):
    """Layers one after the other: their time together, the layouts between them, and a way for each."""

    time: int
    borders: tuple[Layout, ...]
    ways: tuple[Way, ...]


def steps(before: int, after: int, degree: int) -> int:
    """How many times (t-1)/t^2 of a tensor a device sends to change its layout."""
    if before in (after, WHOLE) or after == PARTIAL:  # a share of what is there, or zeros elsewhere
        return 0
    if before == PARTIAL:
        return 2 * degree if after == WHOLE else degree
    return degree if after == WHOLE else 1


def evaluate(layer: SplitLayer, choice: Sequence[int]) -> Amounts:
    """What a split of every operator amounts to: the definition."""
    chosen = [operator.splits[each] for operator, each in zip(layer.operators, choice, strict=True)]
    time = sum(each.amounts.time for each in chosen)
    for place, operator in enumerate(layer.operators):
        given = chosen[place].gives
        taken = {
            chosen[user].takes[number]
            for user, other in enumerate(layer.operators)
            for number, source in enumerate(other.inputs)
            if source == place
        }
        for is_forward, side in ((True, 0), (False, 1)):
            for layout in {each[side] for each in taken}:
                time += operator.exchange(is_forward, given[side], layout, layer.degree)
    passing = sum(each.passing_bytes for each in chosen)
    return Amounts(
        time,
        sum(each.amounts.activation_bytes for each in chosen),
        sum(each.amounts.static_bytes for each in chosen) + max(0, passing - layer.room_bytes),
    )


def pareto(layer: SplitLayer, saving: float = 0.0, watch: Watch | None = None) -> tuple[Way, ...]:
    """The Pareto set, a way for each of its points, the fastest first; proved by CP-SAT.

    One fastest way after the other is found that has fewer bytes of one kind than each before; those of them stay that
    none is as good as. With a ``saving`` the list is shorter: a way has to save that share of either bytes against each
    before, so that every way is as slow as one of the list and saves less than that of both.

    Raises
    ------
    TimeoutError
        If ``watch`` stops the search.
    """
    watch = watch or Watch()
    small, consists = condense(layer)
    found: list[Way] = []
    while True:
        model = _Model(small, [each.amounts for each in found], saving)
        chosen = model.solved(watch)
        if chosen is None:
            return tuple(each for each in found if not any(_is_better(other.amounts, each.amounts) for other in found))
        found.append(_way(layer, consists, chosen))


def fastest(layer: SplitLayer, within: Amounts | None = None, watch: Watch | None = None) -> Way | None:
    """The fastest way with at most the bytes of ``within``; ``None``: there is none. `TimeoutError` as of `pareto`."""
    small, consists = condense(layer)
    chosen = _Model(small, within=within).solved(watch or Watch())
    return None if chosen is None else _way(layer, consists, chosen)


def _way(layer: SplitLayer, consists: list[list[dict[int, int]]], chosen: list[int]) -> Way:
    """The way that a split of each joined operator is."""
    parts: dict[int, int] = {}
    for place, each in enumerate(chosen):
        parts |= consists[place][each]
    choice = tuple(parts[place] for place in range(len(layer.operators)))
    return Way(choice, evaluate(layer, choice))


def along_chain(layers: Sequence[SplitLayer], watch: Watch | None = None) -> Chain:
    """The fastest splits of layers one after the other: a layer ends in the layout that the next one begins in.

    Between two layers, the last operator of the one is what leaves it, and the first of the other is what enters it.
    Both have a split for every layout that the tensor may have there. Exact: a dynamic program over the layouts between
    layers, with a proof by CP-SAT for each layer and pair of them.

    Raises
    ------
    ValueError
        If there is no layer, or no layout that a layer ends in is one that the next begins in.
    TimeoutError
        If ``watch`` stops the search.

    Source: this project; sharded outputs as Piper's Appendix B.
    """
    if not layers:
        raise ValueError("a chain has a layer")
    known: dict[tuple[SplitLayer, Layout | None, Layout | None], Way | None] = {}
    ends: dict[Layout | None, Chain] = {None: Chain(0, (), ())}
    for number, layer in enumerate(layers):
        before, ends = ends, {}
        is_last = number == len(layers) - 1
        begins = {None} if number == 0 else {split.gives for split in layer.operators[0].splits}
        leaving = {None} if is_last else {split.takes[0] for split in layer.operators[-1].splits}
        for enters, leaves in itertools.product(begins & before.keys(), leaving):
            pair = (layer, enters, leaves)
            if pair not in known:
                known[pair] = _between(*pair, watch)
            chain, way = before[enters], known[pair]
            if way is not None and (leaves not in ends or chain.time + way.amounts.time < ends[leaves].time):
                borders = chain.borders if leaves is None else (*chain.borders, leaves)
                ends[leaves] = Chain(chain.time + way.amounts.time, borders, (*chain.ways, way))
    if not ends:
        raise ValueError("no layout that a layer ends in is one that the next begins in")
    return ends[None]


def _between(layer: SplitLayer, enters: Layout | None, leaves: Layout | None, watch: Watch | None) -> Way | None:
    """The fastest way of a layer that begins and ends in these layouts; ``None``: as its operators say."""
    operators = list(layer.operators)
    kept = [list(range(len(each.splits))) for each in operators]
    if enters is not None:
        kept[0] = [each for each in kept[0] if operators[0].splits[each].gives == enters]
    if leaves is not None:
        kept[-1] = [each for each in kept[-1] if operators[-1].splits[each].takes[0] == leaves]
    for place in (0, -1):
        operators[place] = replace(
            operators[place], splits=tuple(layer.operators[place].splits[i] for i in kept[place])
        )
    way = fastest(replace(layer, operators=tuple(operators)), watch=watch)
    return way and Way(tuple(own[each] for own, each in zip(kept, way.choice, strict=True)), way.amounts)


def _is_better(amounts: Amounts, other: Amounts) -> bool:
    return amounts != other and all(one <= two for one, two in zip(amounts, other, strict=True))


def condense(layer: SplitLayer) -> tuple[SplitLayer, list[list[dict[int, int]]]]:
    """Operators joined to the only one that takes their result, and which splits of these a split of them consists of.

    Of splits with the same layouts at the borders those stay that no other is as good as: the Pareto set is the same.
    """
    takers = Counter(source for operator in layer.operators for source in operator.inputs)
    joined = {
        place: (operator, [{place: each} for each in range(len(operator.splits))])
        for place, operator in enumerate(layer.operators)
    }
    for place in range(len(layer.operators)):
        for source in layer.operators[place].inputs:
            if takers[source] == 1:
                both = _join(joined[source], joined[place], source, layer.degree)
                if len(both[1]) <= _MOST_JOINED:
                    joined[place] = both
                    del joined[source]
    number = {place: each for each, place in enumerate(joined)}
    operators = tuple(
        replace(operator, inputs=tuple(number[source] for source in operator.inputs)) for operator, _ in joined.values()
    )
    return replace(layer, operators=operators), [consists for _, consists in joined.values()]


_Joined = tuple[Operator, list[dict[int, int]]]


def _join(first: _Joined, second: _Joined, source: int, degree: int) -> _Joined:
    """An operator and the one that takes its result, as one."""
    (before, _), (after, _) = first, second
    number = after.inputs.index(source)
    best: dict[tuple[tuple[Layout, ...], Layout], list[tuple[Split, dict[int, int]]]] = defaultdict(list)
    pairs = itertools.product(zip(before.splits, first[1], strict=True), zip(after.splits, second[1], strict=True))
    for (one, mine), (other, its) in pairs:
        taken = other.takes[number]
        between = sum(before.exchange(side == 0, one.gives[side], taken[side], degree) for side in (0, 1))
        amounts = Amounts(*(map(sum, zip(one.amounts, other.amounts, strict=True))))
        split = Split(
            other.name,
            (*one.takes, *other.takes[:number], *other.takes[number + 1 :]),
            other.gives,
            amounts._replace(time=amounts.time + between),
            one.passing_bytes + other.passing_bytes,
        )
        known = best[split.takes, split.gives]
        if not any(_is_as_good(each, split) for each, _ in known):
            known[:] = [each for each in known if not _is_as_good(split, each[0])]
            known.append((split, {**mine, **its}))
    found = [each for known in best.values() for each in known]
    inputs = (*before.inputs, *after.inputs[:number], *after.inputs[number + 1 :])
    return replace(after, inputs=inputs, splits=tuple(split for split, _ in found)), [each for _, each in found]


def _is_as_good(split: Split, other: Split) -> bool:
    mine, its = (*split.amounts, split.passing_bytes), (*other.amounts, other.passing_bytes)
    return all(one <= two for one, two in zip(mine, its, strict=True))


class _Model:
    """The fastest way that has fewer bytes of one kind than each that was found."""

    def __init__(
        self, layer: SplitLayer, found: Sequence[Amounts] = (), saving: float = 0.0, within: Amounts | None = None
    ) -> None:
        self.layer = layer
        self.model = cpsat.SpokenModel()
        places = [(place, each) for place, own in enumerate(layer.operators) for each in range(len(own.splits))]
        self.chosen: Mapping[tuple[int, int], Any] = self.model.booleans(
            "chosen", places, "chosen[o,j]: operator o is split in its way j"
        )
        self.model.rows(
            "one_split",
            range(len(layer.operators)),
            lambda o: self.model.add_exactly_one(self.chosen[o, j] for j in range(len(layer.operators[o].splits))),
            "an operator is split in one way: sum over j of chosen[o,j] = 1",
        )
        totals = self._totals()
        for number, point in enumerate(found):
            fewer = [self.model.new_bool_var(f"fewer[{number},{kind}]") for kind in Amounts._fields[1:]]
            self.model.add_bool_or(fewer)
            for literal, total, amount in zip(fewer, totals[1:], point[1:], strict=True):
                self.model.add(total <= amount - max(1, math.ceil(saving * amount))).only_enforce_if(literal)
        for total, most in zip(totals[1:], () if within is None else within[1:], strict=within is not None):
            self.model.add(total <= most)
        self.model.minimize(totals[0])

    def solved(self, watch: Watch) -> list[int] | None:
        """The split of every operator, ``None`` if there is no such way; `TimeoutError` without a proof."""
        run = cpsat.run(self.model, Limits(), watch)
        if run.infeasible:
            return None
        if run.objective is None or run.bound is None or cpsat.whole(run.bound) < round(run.objective):
            raise TimeoutError(run.reason or "the search for splits was stopped before a proof")
        return [each for (_, each), literal in self.chosen.items() if run.values[literal]]

    def _totals(self) -> list[Any]:
        def total(amounts: Mapping[tuple[int, int], int]) -> Any:
            return cpsat.weighted_sum((amount, self.chosen[each]) for each, amount in amounts.items())

        splits = {(o, j): split for o, own in enumerate(self.layer.operators) for j, split in enumerate(own.splits)}
        time, activation, static = (
            total({each: split.amounts[kind] for each, split in splits.items()}) for kind in range(3)
        )
        passing = {each: split.passing_bytes for each, split in splits.items()}
        most = sum(passing.values()) + max(0, -self.layer.room_bytes)
        excess = self.model.integer("excess", 0, most, "excess: passing bytes that there is no room for")
        self.model.add(excess >= total(passing) - self.layer.room_bytes)
        exchanges = cpsat.weighted_sum(self._exchanges())
        return [time + exchanges, activation, static + excess]

    def _exchanges(self) -> Iterator[tuple[int, Any]]:
        """Times of exchanges with a Boolean for each: at least what one given and one taken layout have it be."""
        for place, operator in enumerate(self.layer.operators):
            takers = [
                (user, number)
                for user, other in enumerate(self.layer.operators)
                for number, source in enumerate(other.inputs)
                if source == place
            ]
            for is_forward, side in ((True, 0), (False, 1)):
                given = self._by_layout((place, each.gives[side]) for each in operator.splits)
                moved: dict[tuple[int, int], Any] = {}
                for user, number in takers:
                    splits = self.layer.operators[user].splits
                    taken = self._by_layout((user, each.takes[number][side]) for each in splits)
                    edge = f"{place},{user},{number},{side}"
                    flow = {
                        (a, b): self.model.new_bool_var(f"flow[{edge},{a},{b}]")
                        for a, b in itertools.product(given, taken)
                    }
                    # As tight as a relaxation of one edge can be: what is given in a layout is taken in some layout.
                    for layout, own in given.items():
                        self.model.add(sum(flow[layout, other] for other in taken) == sum(own))
                    for layout, own in taken.items():
                        self.model.add(sum(flow[other, layout] for other in given) == sum(own))
                    for pair in flow:
                        if operator.exchange(is_forward, *pair, self.layer.degree):
                            if pair not in moved:
                                moved[pair] = self.model.new_bool_var(f"moved[{place},{side},{pair[0]},{pair[1]}]")
                            self.model.add_implication(flow[pair], moved[pair])
                for pair, literal in moved.items():
                    yield operator.exchange(is_forward, *pair, self.layer.degree), literal

    def _by_layout(self, layouts: Iterator[tuple[int, int]]) -> dict[int, list[Any]]:
        """The Booleans of an operator's splits by a layout of each."""
        found: dict[int, list[Any]] = defaultdict(list)
        for number, (place, layout) in enumerate(layouts):
            found[layout].append(self.chosen[place, number])
        return found
