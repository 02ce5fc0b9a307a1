"""PipeDream's profiles ``NAME.graph.txt``: lines of operators, then lines of edges.

``node7 -- Conv2d(...) -- forward_compute_time=1.3, backward_compute_time=2.8, activation_size=205520896.000,
parameter_size=262144.000`` (milliseconds, bytes; a list in brackets: several outputs), and ``<tab>node7 -- node8``.

Source: msr-fiddle/pipedream, graph/graph.py, `Node.__str__` and `Graph.from_str`, and its released profiles.
"""

import math
import re
from dataclasses import replace
from pathlib import PurePath

from instances.errors import InstanceError, closest
from instances.parameters import AMOUNTS, is_amount
from instances.problems.operator_partitioning import (
    Operator,
    OperatorInstance,
    TrainingMemory,
    in_topological_order,
    merge_edges,
)
from instances.readers.written import expect_same

_FIELDS = ("forward_compute_time", "backward_compute_time", "activation_size", "parameter_size")


def read(text: str, where: str) -> OperatorInstance:
    """The operator graph of a profile; a tensor moves forward, and its gradient back.

    `InstanceError` if a line is neither an operator nor an edge, a number breaks its rule, or the graph has a cycle.
    """
    operators: dict[str, Operator] = {}
    links: dict[tuple[str, str], None] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        parts = [part.strip() for part in line.split(" -- ")]
        if len(parts) >= 3 and not line[0].isspace():
            operator = _operator(parts[0], " -- ".join(parts[1:-1]), parts[-1], where, number)
            if operators.setdefault(parts[0], operator) is not operator:
                raise InstanceError.at(where, f"line {number}", parts[0], "an operator that was not there before")
        elif len(parts) == 2:
            links[parts[0], parts[1]] = None
        else:
            raise InstanceError.at(where, f"line {number}", line.strip(), "NODE -- OPERATOR -- TIMES or NODE -- NODE")
    place = {identity: index for index, identity in enumerate(operators)}
    for link in links:
        for end in link:
            if end not in place:
                raise InstanceError.at(where, "an edge", end, f"an operator{closest(end, place)}")
    volumes = [(place[a], place[b], 2 * operators[a].activation_bytes) for a, b in links if a != b]
    sorted_operators, tensors = in_topological_order(operators.values(), merge_edges(volumes), where, "the edges")
    name = PurePath(where).name.removesuffix(".txt").removesuffix(".graph") or "profile"
    return OperatorInstance(name, sorted_operators, tensors, training=TrainingMemory())


def _operator(identity: str, description: str, numbers: str, where: str, line: int) -> Operator:
    found = {}
    for name in _FIELDS:
        match = re.search(rf"\b{name}=(\[[^\]]*\]|[^,\s]*)", numbers)
        if match is None:
            raise InstanceError.missing(where, f"line {line}: {name}", "a number")
        texts = match[1].strip("[]").replace(";", ",").split(",")
        try:
            value = math.fsum(float(text) for text in texts)
        except (ValueError, OverflowError):
            value = math.nan
        if not is_amount(value):
            raise InstanceError.at(where, f"line {line}: {name}", match[1], AMOUNTS)
        found[name] = value
    forward, backward, activation, parameters = (found[name] for name in _FIELDS)
    return Operator(identity, (forward + backward) / 1e3, parameters, activation, name=description)


def write(instance: OperatorInstance) -> str:
    """The text of a profile that reads back as the instance, to rounding.

    All of an operator's time is forward: the instance has the sum alone, as PipeDream's own optimizer takes it.

    `InstanceError` if the format cannot say something: sizes other than parameters and outputs, tensors that are not
    their source's output there and back, ids that are no words, settings such as ``--stages``.
    """
    lines = [
        f"{each.id} -- {each.name} -- forward_compute_time={each.compute_s * 1e3!r}, backward_compute_time=0.0, "
        f"activation_size={each.activation_bytes!r}, parameter_size={each.parameter_bytes!r}"
        for each in instance.operators
    ]
    ids = [each.id for each in instance.operators]
    lines += [f"\t{ids[tensor.source]} -- {ids[target]}" for tensor in instance.tensors for target in tensor.targets]
    text = "\n".join(lines) + "\n"
    try:
        again = read(text, instance.name)
    except InstanceError as error:  # an id or a name that the format takes for something else
        raise InstanceError.at(instance.name, "operators", "written", f"what reads back; {error}") from None
    expect_same(instance, replace(again, name=instance.name), "PipeDream")
    return text
