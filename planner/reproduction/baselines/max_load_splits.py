"""Max-load splits of Tarnawski et al. 2020, contiguous or not, as a problem in one file.

Every node goes to one of k devices; a device's load is the time of its nodes, of what it takes from others, and of what
leaves it, each output once. A device is contiguous if no path leaves it and comes back.

Source: msr-fiddle/dnn-partitioning (commit b207b6a), throughput-ip/ip.py, options ``contig`` and ``noncontig``; no line
of it is copied. Deviations: accelerators only, no CPUs; nodes of a colour class are one operator, with what runs
backward in it (`instances.readers.placement_json`), which may make more splits not contiguous; solved to a gap of 0
and not of 1 %; devices are numbered by their first operators.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from formulations.compiled.kernel_deadline import alarm
from formulations.contract.family import Answer
from formulations.contract.problem import Instance, Problem
from formulations.modelling.decision_model import cpsat
from formulations.modelling.solve_model import prove
from formulations.modelling.warm_start import First
from formulations.operator_partitioning.costs.downsets import all_downsets
from formulations.operator_partitioning.definition.problem import stage_of
from formulations.operator_partitioning.methods import MAX_DOWNSETS
from formulations.operator_partitioning.paper.parmesan import by_table
from instances.problems.operator_partitioning import Operator, OperatorInstance, Tensor, check
from instances.rules import Amount, Bandwidth, Count, Flag
from solvers.outcome import Limits, Watch
from solvers.scaling import cost_scale, size_scale


@dataclass(frozen=True, kw_only=True)
class Splits(Instance):
    """Operators in a topological order: ``compute_s`` and ``memory_bytes`` count. At most ``devices`` hold any."""

    operators: tuple[Operator, ...]
    tensors: tuple[Tensor, ...] = ()
    bandwidth_bytes_per_s: Bandwidth = 1.0
    devices: Count = 2
    memory_bytes: Amount | None = None
    contiguous: Flag = False

    def __post_init__(self) -> None:
        check(self.chained(), self.name)

    def chained(self) -> OperatorInstance:
        """The pipeline of at most as many stages, none of which feeds an earlier one."""
        return OperatorInstance(
            self.name, self.operators, self.tensors, num_stages=self.devices, at_most=True,
            bandwidth_bytes_per_s=self.bandwidth_bytes_per_s, memory_bytes=self.memory_bytes,
        )  # fmt: skip

    def send_s(self, tensor: Tensor) -> float:
        """Seconds of an output at either end."""
        return tensor.volume_bytes / self.bandwidth_bytes_per_s


@dataclass(frozen=True)
class Split:
    """``device_of[v]``: the device of operator v, no larger than v."""

    device_of: tuple[int, ...]


def splits(instance: OperatorInstance, *, contiguous: bool) -> Splits:
    """The problem of an operator graph with a number of stages; they are the devices."""
    return Splits(
        name=instance.name, operators=instance.operators, tensors=instance.tensors, memory_bytes=instance.memory_bytes,
        bandwidth_bytes_per_s=instance.bandwidth_bytes_per_s, devices=instance.num_stages or 1, contiguous=contiguous,
    )  # fmt: skip


def decisions(instance: Splits) -> dict[str, Any]:
    """A device for each operator."""
    return {"device_of": [range(min(v + 1, instance.devices)) for v in range(len(instance.operators))]}


def max_load(instance: Splits, plan: Split) -> float:
    """Time of the busiest device: its operators, what it takes and what leaves it, each output once."""
    home = plan.device_of
    loads: list[list[float]] = [[] for _ in range(instance.devices)]
    for device, operator in zip(home, instance.operators, strict=True):
        loads[device].append(operator.compute_s)
    for tensor in instance.tensors:
        others = {home[target] for target in tensor.targets} - {home[tensor.source]}
        for device in {*others, home[tensor.source]} if others else ():
            loads[device].append(instance.send_s(tensor))
    return max(map(math.fsum, loads))


def memory(instance: Splits, plan: Split) -> str | None:
    """Every device holds its operators."""
    for device in range(instance.devices if instance.memory_bytes is not None else 0):
        held = [
            each.memory_bytes for each, home in zip(instance.operators, plan.device_of, strict=True) if home == device
        ]
        if math.fsum(held) > (instance.memory_bytes or 0.0):
            return f"device {device} holds {math.fsum(held):g} bytes; expected at most {instance.memory_bytes:g}"
    return None


def contiguous(instance: Splits, plan: Split) -> str | None:
    """No path leaves a device and comes back, if that is a rule."""
    home = plan.device_of
    for device in range(instance.devices if instance.contiguous else 0):
        left = set[int]()  # operators of others behind some of this device: sources come before targets
        for source, target in instance.chained().edges:
            if home[target] == device and source in left:
                return f"a path leaves device {device} and comes back at operator {instance.operators[target].id}"
            if home[target] != device and (home[source] == device or source in left):
                left.add(target)
    return None


def least_load(instance: Splits) -> float:
    """A bound: the even share, and of the m longest operators the ceil(m / k) shortest: some device has as many."""
    seconds = sorted((each.compute_s for each in instance.operators), reverse=True)
    shares = (math.fsum(seconds[m + -m // instance.devices : m]) for m in range(1, len(seconds) + 1))
    return max(math.fsum(seconds) / instance.devices, *shares)


def rows(instance: Splits, model: Any) -> None:
    """The rows of ip.py, on accelerators."""
    operators, tensors = instance.operators, instance.tensors
    devices = range(min(instance.devices, len(operators)))
    total_s = math.fsum(each.compute_s for each in operators)
    most_s = total_s + math.fsum(instance.send_s(each) for each in tensors)
    least_s = least_load(instance)
    scale = cost_scale(least_s, len(operators) + len(tensors), most_s)
    found, takes = model.model, model.takes
    holds = {(v, d): takes.get(("device_of", v, d), 0) for v in range(len(operators)) for d in devices}
    index = [(t, d) for t in range(len(tensors)) for d in devices]
    into = found.booleans("into", index, "into[t,d]: device d takes tensor t from another one")
    out = found.booleans("out", index, "out[t,d]: tensor t leaves device d")
    ends = [(t, target, d) for t, d in index for target in tensors[t].targets]
    # Nothing but load keeps these variables down, so they need no upper rows.
    found.rows(
        "received",
        ends,
        lambda t, v, d: into[t, d] >= holds[v, d] - holds[tensors[t].source, d],
        "a device that holds a target of a tensor, and not its source, takes it: into[t,d] >= holds[v,d] - holds[u,d]",
    )
    found.rows(
        "left",
        ends,
        lambda t, v, d: out[t, d] >= holds[tensors[t].source, d] - holds[v, d],
        "a tensor with a target elsewhere leaves, once: out[t,d] >= holds[u,d] - holds[v,d]",
    )
    if instance.contiguous:
        before = found.booleans("before", list(holds), "before[v,d]: an operator of device d is v, or behind it")
        found.rows(
            "own", list(holds), lambda v, d: before[v, d] >= holds[v, d], "a device's operators are: before >= holds"
        )
        edges = [(u, v, d) for u, v in instance.chained().edges for d in devices]
        found.rows(
            "further",
            edges,
            lambda u, v, d: before[u, d] >= before[v, d],
            "and so is every operator in front of one that is: before[u,d] >= before[v,d]",
        )
        found.rows(
            "closed",
            edges,
            lambda u, v, d: before[v, d] <= holds[v, d] - holds[u, d] + 1,
            "what leaves the device does not come back to it: before[v,d] <= 1 + holds[v,d] - holds[u,d]",
        )
    if instance.memory_bytes is not None:
        sizes = [each.memory_bytes for each in operators]
        byte = size_scale(sizes, instance.memory_bytes, math.fsum(sizes))
        found.rows(
            "memory",
            devices,
            lambda d: (
                sum(byte.floor(each) * holds[v, d] for v, each in enumerate(sizes)) <= byte.floor(instance.memory_bytes)
            ),
            "every device holds its operators",
        )
    busiest = found.integer("busiest", scale.floor(least_s), scale.ceil(most_s), "load of the busiest device")
    found.rows(
        "load",
        devices,
        lambda d: (
            sum(scale.floor(each.compute_s) * holds[v, d] for v, each in enumerate(operators))
            + sum(scale.floor(instance.send_s(each)) * (into[t, d] + out[t, d]) for t, each in enumerate(tensors))
            <= busiest
        ),
        "no device takes longer than the busiest: its operators, what it takes and what leaves it",
    )
    model.minimise(busiest, scale)


def _first(instance: Splits, watch: Watch) -> None:
    """The best chain of downsets, by the dynamic program (`max-load-dp`), where these are few."""
    chained = instance.chained()
    bits = all_downsets(chained, MAX_DOWNSETS)
    with alarm(watch):
        plan = None if bits is None else by_table(chained, bits, watch).plan
    if plan is not None:
        home = stage_of(plan)
        order = {stage: device for device, stage in enumerate(dict.fromkeys(home[v] for v in range(len(home))))}
        found = Split(tuple(order[home[v]] for v in range(len(home))))
        watch.plan(found, max_load(instance, found))


_MODEL = cpsat(rows, "Tarnawski et al. 2020, the release's integer program, in CP-SAT")


def _solve(instance: Splits, limits: Limits, watch: Watch) -> Answer[Split]:
    """Its best split; the search begins with the one of the dynamic program."""
    family = PROBLEM.family
    first = First("max-load-dp", partial(_first, instance))

    def build() -> Any:
        assert _MODEL.build is not None  # it is a declarative model
        return _MODEL.build(instance, watch)

    return prove(instance, build, family.evaluate, family.violations, limits, watch, first=first)


PROBLEM = Problem(
    "max_load",
    Splits,
    Split,
    decisions,
    max_load,
    unit="s",
    rules={"memory": memory, "contiguous": contiguous},
    methods=(replace(_MODEL, solve=_solve),),
    examples=(
        Splits(
            name="there-and-back",
            operators=tuple(Operator(f"v{v}", float(seconds)) for v, seconds in enumerate((3, 4, 3, 2))),
            tensors=tuple(Tensor(v, (v + 1,), 0.5) for v in range(3)),
        ),
    ),
)
