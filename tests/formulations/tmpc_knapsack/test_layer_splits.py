"""Splits of a layer's operators: Pareto sets against all choices, chains of layers, and a layer by hand."""

from __future__ import annotations

import itertools
import random

from formulations.tmpc_knapsack.questions.studies.layer_splits import (
    PARTIAL,
    WHOLE,
    Amounts,
    Layout,
    Operator,
    Split,
    SplitLayer,
    evaluate,
    pareto,
)

W, COLUMNS = Layout(WHOLE, WHOLE), Layout(WHOLE, PARTIAL)


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


def random_layer(seed: int) -> SplitLayer:
    """2 to 6 operators with 2 to 4 splits each, layouts and amounts at random, some of them equal."""
    draw = random.Random(seed)
    layouts = [WHOLE, PARTIAL, 0, 1]

    def layout() -> Layout:
        return Layout(draw.choice(layouts), draw.choice(layouts))

    operators: list[Operator] = []
    for place in range(draw.randint(2, 6)):
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
        for each in found:
            assert each.amounts == evaluate(layer, each.choice) == amounts_of(layer, each.choice), seed
            own = sum(
                operator.splits[which].amounts.time
                for operator, which in zip(layer.operators, each.choice, strict=True)
            )
            exchanged += each.amounts.time > own
    assert 2 * many > cases and 2 * exchanged > cases
