"""What a plan decides."""

from dataclasses import dataclass
from typing import Annotated, Any

from formulations.contract.plan_exchange import exchange
from instances.errors import closest, expect
from instances.problems.stage_graph import StageGraph
from instances.rules import NodeId, Rule, Whole


@dataclass(frozen=True)
class Stage:
    """Operators that run together, in replicas, with one schedule.

    ``nodes``: indices of the operators.
    ``devices``: all of the stage: r replicas of t devices each.
    ``microbatch``, ``k``, ``in_flight``: b samples of a micro-batch; k of the kFkB schedule; i samples that the
    schedule keeps in flight at most.
    ``device_ids``: the devices themselves where the instance has a device graph, else empty.
    ``tp_degree``: t, the devices that share each replica (tensor parallelism).
    """

    nodes: tuple[int, ...]
    devices: int
    microbatch: int
    in_flight: int
    k: int = 1
    device_ids: tuple[int, ...] = ()
    tp_degree: int = 1

    @property
    def replicas(self) -> int:
        """r, the data-parallel degree."""
        return self.devices // self.tp_degree


@dataclass(frozen=True)
class StagePlan:
    """Stages, the order between them, and the devices that stay idle.

    ``edges`` are pairs of stages: the first goes before the second in forward passes. They hold at least every pair
    with a tensor between them; a sequential pipeline orders more.
    """

    stages: tuple[Stage, ...]
    edges: tuple[tuple[int, int], ...]
    idle_devices: int = 0


#: How many devices, or which ones where the instance has a device graph.
_Devices = Annotated[Whole | tuple[Whole, ...], Rule("an integer, or a list of integers where there is a device graph")]


@dataclass(frozen=True)
class _Declared:
    """A stage as files have it: ids of operators."""

    nodes: tuple[NodeId, ...]
    devices: _Devices
    microbatch: Whole
    in_flight: Whole
    k: Whole = 1
    tp_degree: Whole = 1


@dataclass(frozen=True)
class _DeclaredPlan:
    """A plan as files have it."""

    stages: tuple[_Declared, ...]
    edges: tuple[tuple[Whole, Whole], ...]
    idle_devices: Whole = 0


def _read(instance: StageGraph, declared: _DeclaredPlan, where: str) -> StagePlan:
    stages = tuple(_stage(instance, stage, f"stages[{i}]", where) for i, stage in enumerate(declared.stages))
    return StagePlan(stages, declared.edges, declared.idle_devices)


def _stage(instance: StageGraph, declared: _Declared, field: str, where: str) -> Stage:
    for number, node in enumerate(declared.nodes):
        rule = f"the id of an operator{closest(node, instance.index)}"
        expect(node in instance.index, where, f"{field}.nodes[{number}]", node, rule)
    devices = declared.devices
    are_named = isinstance(devices, tuple)
    rule = "an integer" if instance.device_graph is None else "a list of integers"
    expect(are_named == (instance.device_graph is not None), where, f"{field}.devices", devices, rule)
    count, ids = (len(devices), devices) if isinstance(devices, tuple) else (devices, ())
    nodes = tuple(instance.index[node] for node in declared.nodes)
    return Stage(nodes, count, declared.microbatch, declared.in_flight, declared.k, ids, declared.tp_degree)


def _write(instance: StageGraph, plan: StagePlan) -> dict[str, Any]:
    stages = [
        {
            "nodes": [instance.id_of(node) for node in stage.nodes],
            "devices": stage.devices if instance.device_graph is None else stage.device_ids,
            "microbatch": stage.microbatch,
            "k": stage.k,
            "in_flight": stage.in_flight,
            **({"tp_degree": stage.tp_degree} if stage.tp_degree != 1 else {}),
        }
        for stage in plan.stages
    ]
    return {"stages": stages, "edges": plan.edges, "idle_devices": plan.idle_devices}


plan_from_json, plan_to_json = exchange(
    '``{"stages": [{"nodes", "devices", "microbatch", "k", "in_flight"}], "edges": [[i, j]], "idle_devices": n}``: '
    "``devices`` is a number, or a list of devices where the instance has a device graph; ``tp_degree`` is left out "
    "where it is 1.",
    _DeclaredPlan,
    _read,
    _write,
)
