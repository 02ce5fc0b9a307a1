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

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

#: Layouts of a tensor on t devices: all of it on each, or terms of a sum; from 0 on the dimension that is in shares.
WHOLE, PARTIAL = -1, -2


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


def pareto(layer: SplitLayer, saving: float = 0.0) -> tuple[Way, ...]:
    """The Pareto set, a way for each of its points, the fastest first.

    With a ``saving`` the list is shorter: a way has to save that share of either bytes against each before, so that
    every way is as slow as one of the list and saves less than that of both.
    """
    found: list[Way] = []
    for way in sorted(_ways(layer)[None], key=lambda way: way.amounts):
        if all(_saves(way.amounts, other.amounts, saving) for other in found):
            found.append(way)
    return tuple(found)


def _saves(amounts: Amounts, other: Amounts, saving: float) -> bool:
    return any(one <= two - max(1, math.ceil(saving * two)) for one, two in zip(amounts[1:], other[1:], strict=True))


def fastest(layer: SplitLayer, within: Amounts | None = None) -> Way | None:
    """The fastest way with at most the bytes of ``within``; ``None``: there is none.

    Without ``within`` bytes do not count: another way may be as fast with fewer.
    """
    ways = _ways(layer, within=within, is_time_alone=within is None)
    return min(ways.get(None, ()), key=lambda way: way.amounts, default=None)


#: Of operators so far: time, bytes in flight, other bytes, passing bytes; and the last split with what led to it.
_Label = tuple[int, int, int, int, Any]
_amounts = itemgetter(slice(4))
#: Of an operator whose result is taken later: how it lies, and the layouts that it was moved to, as is its gradient.
_Live = tuple[Layout, frozenset[int], frozenset[int]]


def _ways(
    layer: SplitLayer,
    *,
    begins: Layout | None = None,
    ends: bool = False,
    within: Amounts | None = None,
    is_time_alone: bool = False,
) -> dict[Layout | None, list[Way]]:
    """The ways that no other is as good as, or the fastest; with ``ends``, by the layout in which the layer ends.

    Those alone in which the first operator gives what the layer ``begins`` in, with at most the bytes of ``within``.
    Exact: operators one after the other, and of choices that leave the same to be paid those that none is as good as.
    """
    last = {source: place for place, operator in enumerate(layer.operators) for source in operator.inputs}
    live, moves = list[int](), dict[int, _Moves]()
    states: dict[Any, list[_Label]] = {(): [(0, 0, 0, 0, None)]}
    for place, operator in enumerate(layer.operators):
        is_end = place == len(layer.operators) - 1
        at = {source: number for number, source in enumerate(live)}
        kept = [number for number, source in enumerate(live) if last[source] > place]
        live = [*(live[number] for number in kept), *([place] if place in last else [])]
        moves[place] = _Moves(operator, layer.degree)
        given = [(moves[place].number((split.gives, frozenset(), frozenset())),) for split in operator.splits]
        taking = [(at[source], moves[source]) for source in operator.inputs]
        found: dict[Any, list[_Label]] = defaultdict(list)
        for state, labels in states.items():
            for number, split in enumerate(operator.splits):
                if place == 0 and begins is not None and split.gives != begins:
                    continue
                time, after = split.amounts.time, list(state)
                for (own, move), taken in zip(taking, split.takes, strict=True):
                    after[own], more = move(after[own], taken)
                    time += more
                rest: Any = tuple([after[own] for own in kept])
                if place in last:
                    rest += given[number]
                elif is_end:
                    rest = split.takes[0] if ends else None
                _, activation, static = split.amounts
                passing = split.passing_bytes
                found[rest] += [
                    (t + time, a + activation, s + static, p + passing, (link, number)) for t, a, s, p, link in labels
                ]
        states = {}
        for rest, labels in found.items():
            if within is not None:
                labels = [each for each in labels if _fits(layer, each, within)]
            if labels:
                states[rest] = [min(labels, key=_amounts)] if is_time_alone else _best(labels)
    return {rest: _undominated([_way(layer, each) for each in labels]) for rest, labels in states.items()}


def along_chain(layers: Sequence[SplitLayer]) -> Chain:
    """The fastest splits of layers one after the other: a layer ends in the layout that the next one begins in.

    Between two layers, the last operator of the one is what leaves it, and the first of the other is what enters it.
    Both have a split for every layout that the tensor may have there. Exact: a dynamic program over the layouts between
    layers, and over the operators of each.

    `ValueError` if there is no layer, or no layout that a layer ends in is one that the next begins in.

    Source: this project; sharded outputs as Piper's Appendix B.
    """
    if not layers:
        raise ValueError("a chain has a layer")
    known: dict[tuple[SplitLayer, Layout | None, bool], dict[Layout | None, list[Way]]] = {}
    ends: dict[Layout | None, Chain] = {None: Chain(0, (), ())}
    for number, layer in enumerate(layers):
        before, ends = ends, {}
        is_last = number == len(layers) - 1
        given = {split.gives for split in layer.operators[0].splits}
        for enters, chain in before.items():
            key = (layer, enters, not is_last)
            if enters is not None and enters not in given:
                continue
            if key not in known:  # equal layers have equal ways
                known[key] = _ways(layer, begins=enters, ends=not is_last, is_time_alone=True)
            for leaves, (way,) in known[key].items():
                if leaves not in ends or chain.time + way.amounts.time < ends[leaves].time:
                    borders = chain.borders if leaves is None else (*chain.borders, leaves)
                    ends[leaves] = Chain(chain.time + way.amounts.time, borders, (*chain.ways, way))
    if not ends:
        raise ValueError("no layout that a layer ends in is one that the next begins in")
    return ends[None]


class _Moves:
    """How an operator's result is moved to where it is taken: what that takes, of which each layout is paid once."""

    def __init__(self, operator: Operator, degree: int) -> None:
        self.operator, self.degree = operator, degree
        self.live: list[_Live] = []
        self.numbers: dict[_Live, int] = {}
        self.known: dict[tuple[int, Layout], tuple[int, int]] = {}

    def number(self, live: _Live) -> int:
        """Stands for it in states: tables of numbers are faster."""
        if live not in self.numbers:
            self.numbers[live] = len(self.live)
            self.live.append(live)
        return self.numbers[live]

    def __call__(self, own: int, taken: Layout) -> tuple[int, int]:
        """What is left to be paid after an operator has taken it, and the time."""
        found = self.known.get((own, taken))
        if found is None:
            gives, *moved = self.live[own]
            time = 0
            for side, layout in enumerate(taken):
                more = self.operator.exchange(side == 0, gives[side], layout, self.degree)
                if more and layout not in moved[side]:
                    time, moved[side] = time + more, moved[side] | {layout}
            found = self.known[own, taken] = self.number((gives, moved[0], moved[1])), time
        return found


def _best(labels: list[_Label]) -> list[_Label]:
    """Those that no other is as good as, one of equal ones."""
    if len(labels) == 1:
        return labels
    found: list[_Label] = []
    for each in sorted(labels, key=_amounts):
        _, a, s, p, _ = each
        if not any(x <= a and y <= s and z <= p for _, x, y, z, _ in found):
            found.append(each)
    return found


def _fits(layer: SplitLayer, label: _Label, within: Amounts) -> bool:
    _, activation, static, passing, _ = label
    fits = static + max(0, passing - layer.room_bytes) <= within.static_bytes
    return fits and activation <= within.activation_bytes


def _way(layer: SplitLayer, label: _Label) -> Way:
    """The splits that a label is made of."""
    choice: list[int] = []
    link = label[-1]
    while link is not None:
        link, number = link
        choice.append(number)
    return Way(tuple(reversed(choice)), evaluate(layer, choice[::-1]))


def _undominated(ways: list[Way]) -> list[Way]:
    """Of ways with different amounts those that none is as good as."""
    found = {way.amounts: way for way in reversed(ways)}
    return [
        way
        for amounts, way in found.items()
        if not any(
            other != amounts and all(one <= two for one, two in zip(other, amounts, strict=True)) for other in found
        )
    ]
