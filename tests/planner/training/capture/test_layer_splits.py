"""Splits of a layer's operators: Pareto sets against all choices, chains of layers, and a layer by hand."""

import itertools
import random

import pytest

from planner.training.capture.layer_splits import (
    PARTIAL,
    WHOLE,
    Amounts,
    Layout,
    Operator,
    Split,
    SplitLayer,
    along_chain,
    evaluate,
    fastest,
    pareto,
)

W, COLUMNS = Layout(WHOLE, WHOLE), Layout(WHOLE, PARTIAL)
SHARES = (Layout(0, 0), Layout(1, 1))


def bytes_sent(before: int, after: int, degree: int) -> float:
    """Parts of a tensor that a device sends: written out for each pair, in another way than `steps`."""
    if before == after:
        return 0.0
    reduce_scatter = gather = (degree - 1) / degree
    return {
        (True, False, False): 0.0,
        (False, True, False): reduce_scatter + (gather if after == WHOLE else 0.0),
        (False, False, True): gather if after == WHOLE else (degree - 1) / degree / degree,
    }[before == WHOLE, before == PARTIAL, before >= 0] * (after != PARTIAL)


def amounts_of(layer: SplitLayer, choice: tuple[int, ...]) -> Amounts:
    """What a choice amounts to, tensor by tensor; shares no code with `evaluate`."""
    used: dict[int, list[Layout]] = {}
    time = activation = static = passing = 0.0
    for operator, which in zip(layer.operators, choice, strict=True):
        split = operator.splits[which]
        time += split.amounts.time
        activation += split.amounts.activation_bytes
        static += split.amounts.static_bytes
        passing += split.passing_bytes
        for source, layout in zip(operator.inputs, split.takes, strict=True):
            used.setdefault(source, []).append(layout)
    unit = (layer.degree - 1) / layer.degree**2
    for source, layouts in used.items():
        operator = layer.operators[source]
        given = operator.splits[choice[source]].gives
        for each in {layout[0] for layout in layouts}:
            times = operator.forward_step + (operator.again_step if given[0] in (0, 1) else 0)
            time += times * bytes_sent(given[0], each, layer.degree) / unit
        for each in {layout[1] for layout in layouts}:
            time += operator.backward_step * bytes_sent(each, given[1], layer.degree) / unit
    return Amounts(round(time), round(activation), round(static + max(passing - layer.room_bytes, 0.0)))


def all_ways(layer: SplitLayer) -> set[Amounts]:
    """The Pareto set by brute force."""
    choices = itertools.product(*(range(len(each.splits)) for each in layer.operators))
    found = {amounts_of(layer, choice) for choice in choices}
    return {
        each
        for each in found
        if not any(other != each and all(a <= b for a, b in zip(other, each, strict=True)) for other in found)
    }


def random_layer(seed: int, most: int = 6) -> SplitLayer:
    """2 to ``most`` operators with 2 to 4 splits each, layouts and amounts at random, some of them equal."""
    draw = random.Random(seed)
    layouts = [WHOLE, PARTIAL, 0, 1]

    def layout() -> Layout:
        return Layout(draw.choice(layouts), draw.choice(layouts))

    operators: list[Operator] = []
    for place in range(draw.randint(2, most)):
        inputs = tuple(sorted(draw.sample(range(place), draw.randint(min(place, 1), min(place, 2)))))
        splits = tuple(
            Split(
                str(each),
                tuple(layout() for _ in inputs),
                layout(),
                Amounts(draw.randint(0, 12), draw.randint(0, 4), draw.randint(0, 4)),
                draw.randint(0, 3),
            )
            for each in range(draw.randint(2, 4))
        )
        operators.append(Operator(inputs, splits, *(draw.randint(0, 4) for _ in range(3))))
    return SplitLayer(draw.choice([2, 3, 4]), tuple(operators), draw.randint(-1, 6))


def test_brute_force_agrees(cases: int) -> None:
    exchanged = many = 0
    for seed in range(cases):
        layer = random_layer(seed)
        found = pareto(layer)
        assert {each.amounts for each in found} == all_ways(layer), seed
        assert len({each.amounts for each in found}) == len(found)
        assert [each.amounts.time for each in found] == sorted(each.amounts.time for each in found)
        many += len(found) > 1
        draw = random.Random(f"bytes {seed}")
        within = Amounts(0, draw.randint(0, 12), draw.randint(0, 12))
        fits = [each.time for each in all_ways(layer) if each[1] <= within[1] and each[2] <= within[2]]
        own = fastest(layer, within)
        assert (own and own.amounts.time) == min(fits, default=None), seed
        for each in found:
            assert each.amounts == evaluate(layer, each.choice) == amounts_of(layer, each.choice), seed
            own = sum(
                operator.splits[which].amounts.time
                for operator, which in zip(layer.operators, each.choice, strict=True)
            )
            exchanged += each.amounts.time > own
    assert 2 * many > cases and 2 * exchanged > cases


def with_borders(layer: SplitLayer, draw: random.Random) -> SplitLayer:
    """The layer with a tensor that enters and one that leaves, each in two or three layouts, whole among them."""
    first = {W, COLUMNS, draw.choice([Layout(0, 0), Layout(PARTIAL, WHOLE)])}
    last = {W, *draw.sample([COLUMNS, *SHARES], 2)}
    cost = Amounts(draw.randint(0, 3), 0, 0)
    enters = Operator((), tuple(Split("border", (), each, cost) for each in sorted(first)), 2, 3, 1)
    inside = [
        Operator(tuple(source + 1 for source in each.inputs), each.splits, *steps_of(each))
        if each.inputs
        else Operator((0,), tuple(Split("", (split.gives,), split.gives, split.amounts) for split in each.splits), 1, 2)
        for each in layer.operators
    ]
    leaves = Operator(
        (len(inside),), tuple(Split("border", (each,), W, Amounts(0, 0, 0)) for each in sorted(last)), 0, 0
    )
    return SplitLayer(layer.degree, (enters, *inside, leaves), layer.room_bytes)


def steps_of(operator: Operator) -> tuple[int, int, int]:
    return operator.forward_step, operator.backward_step, operator.again_step


def fastest_by_layouts(layer: SplitLayer) -> dict[tuple[Layout, Layout], int]:
    """The least time of a layer for each layout that it may begin and end in, by brute force."""
    found: dict[tuple[Layout, Layout], int] = {}
    for choice in itertools.product(*(range(len(each.splits)) for each in layer.operators)):
        pair = layer.operators[0].splits[choice[0]].gives, layer.operators[-1].splits[choice[-1]].takes[0]
        found[pair] = min(found.get(pair, 10**9), amounts_of(layer, choice).time)
    return found


def test_layers_of_a_chain_end_in_the_layout_that_the_next_begins_in(cases: int) -> None:
    """Against all choices of all layers, and layouts between them."""
    faster = 0
    for seed in range(cases):
        draw = random.Random(f"chain {seed}")
        own = [with_borders(random_layer(draw.randrange(10**6), 3), draw) for _ in range(2)]
        layers = [SplitLayer(own[0].degree, draw.choice(own).operators) for _ in range(draw.randint(1, 3))]
        least = [fastest_by_layouts(each) for each in layers]
        sequences = itertools.product(*({enters for enters, _ in each} for each in least), (W, COLUMNS, *SHARES))
        times: dict[tuple[Layout, ...], int] = {}
        for ends in sequences:
            time = sum(each.get(pair, 10**9) for each, pair in zip(least, itertools.pairwise(ends), strict=True))
            times[ends[1:-1]] = min(times.get(ends[1:-1], 10**9), time)
        chain = along_chain(layers)
        assert chain.time == min(times.values()) == times[chain.borders], seed
        assert chain.time == sum(
            amounts_of(layer, way.choice).time for layer, way in zip(layers, chain.ways, strict=True)
        )
        faster += chain.time < times[(W,) * (len(layers) - 1)]
    assert 4 * faster > cases


def test_layers_without_a_layout_in_common_are_no_chain() -> None:
    def layer(enters: Layout, leaves: Layout) -> SplitLayer:
        first = Operator((), (Split("border", (), enters, Amounts(1, 0, 0)),), 0, 0)
        last = Operator((0,), (Split("border", (leaves,), W, Amounts(0, 0, 0)),), 0, 0)
        return SplitLayer(2, (first, last))

    assert along_chain([layer(W, COLUMNS), layer(COLUMNS, W)]).borders == (COLUMNS,)
    with pytest.raises(ValueError, match="no layout that a layer ends in"):
        along_chain([layer(W, COLUMNS), layer(W, W)])
    with pytest.raises(ValueError, match="a chain has a layer"):
        along_chain([])
