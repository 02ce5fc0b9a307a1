"""Instances far larger than any method is made for: many layers, many micro-batches, many devices, wide graphs."""

from collections.abc import Callable, Mapping
from typing import Any

from instances.generators.stage_graphs import generate as mapping
from instances.problems.amp_strategy import AmpInstance, ModelLayer, Node
from instances.problems.device_mapping import DeviceMapping
from instances.problems.flushed_partitioning import flush_pipeline
from instances.problems.hierarchical_partitioning import on_machines
from instances.problems.layer_assignment import LayerAssignmentInstance
from instances.problems.mesh_tiling import MeshInstance
from instances.problems.microbatch_schedule import chain
from instances.problems.operator_partitioning import Operator, OperatorInstance, Tensor
from instances.problems.operator_strategies import generate as choices
from instances.problems.pipeline_placement import PlacementInstance
from instances.problems.serving_strategy import ServedLayer, ServingInstance
from instances.problems.stage_graph import AffineTime, OperatorEdge, StageGraph
from instances.problems.stage_graph import Operator as Branch
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc
from instances.problems.tmpc_knapsack import generate as knapsack
from instances.problems.training_strategy import Schedule, of_chain


def stages(count: int, rows: int, devices: int, microbatches: int) -> StageInstance:
    """``rows`` chains side by side."""
    tmpcs = (Tmpc("fast", 1.0, 1e6, 2e6, 4e6), Tmpc("light", 2.0, 1e6, 1e6, 4e6))
    nodes = tuple(Layer(v, {1: tmpcs, 2: tmpcs}) for v in range(count))
    edges = tuple(Edge(v - rows, v, 1e6) for v in range(rows, count))
    return StageInstance("absurd", nodes, edges, devices, 1e9, 1e9, microbatches)


def server(count: int, devices: int) -> ServingInstance:
    """Layers that all differ, on as many devices as heads allow."""
    own = tuple(ServedLayer(1e6 + place, 1e6 + place, 1e3) for place in range(count))
    return ServingInstance(
        "absurd", own, 2**10, 2**10, 1e3, 1e3, devices, 8, 1e15, 1e12, 1e12, 1e11, 1e10, 1_000, 1_000
    )


def operators(count: int, rows: int, num_stages: int, replicas: int = 1) -> OperatorInstance:
    """``rows`` chains side by side."""
    parts = tuple(Operator(v, 1e-3, 1e6, 1e6) for v in range(count))
    tensors = tuple(Tensor(v, (v + rows,), 1e6) for v in range(count - rows))
    return OperatorInstance(
        "absurd", parts, tensors, num_stages, replicas=replicas, bandwidth_bytes_per_s=1e9, memory_bytes=1e15
    )


def branches(count: int, rows: int, devices: int) -> StageGraph:
    """``rows`` chains side by side that end in one operator."""
    time = AffineTime(1e-4, 1e-4)
    parts = tuple(Branch(f"o{v}", time, time, 1e6, 1e6) for v in range(count))
    edges = tuple(OperatorEdge(v, min(v + rows, count - 1), 1e6) for v in range(count - 1))
    return StageGraph("absurd", parts, edges, devices, 1e15, 1e9, 0.0, 64)


def layers(count: int, num_stages: int, microbatches: int, *, all_reduce: bool = False) -> LayerAssignmentInstance:
    """Layers of a few kinds."""
    return LayerAssignmentInstance(
        "absurd",
        tuple(1e-3 * (1 + layer * layer % 97) for layer in range(count)),
        ((1e-4,),) * (count - 1),
        num_stages,
        microbatches,
        parameters=tuple(1e6 * (1 + layer % 89) for layer in range(count)),
        ring_s_per_parameter=(1e-9,) if all_reduce else (),
    )


def machines(count: int, rows: int, inner: int, outer: int, microbatches: int) -> Any:
    """Chains side by side on machines of devices."""
    return on_machines(stages(count, rows, inner * outer, microbatches), inner, outer, 1e9, 1e8)


def placement(count: int, num_stages: int, replicas: int) -> PlacementInstance:
    """A chain of operators on devices that are all linked."""
    devices = num_stages * replicas
    links = tuple(tuple(1e9 + i + j for j in range(devices)) for i in range(devices))
    return PlacementInstance(operators(count, 2, num_stages, replicas), links)


def network(num_stages: int, replicas: int) -> DeviceMapping:
    """Stages on machines of eight devices."""
    return mapping("two-level", num_stages, replicas, per_node=8)


def strategies(count: int, nodes: int, placements: str) -> AmpInstance:
    """Many layers on many nodes of eight devices."""
    own = tuple(ModelLayer({"G": dict.fromkeys((1, 2, 4, 8), 0.001)}, 1e6, 1e6) for _ in range(count))
    return AmpInstance("absurd", (Node("G", 1e11, 1e10),) * nodes, 8, own, 4096, placement=placements)


def mesh(rows: int, columns: int, ordered: bool) -> MeshInstance:
    """Tiles of 2 x 4 devices."""
    return MeshInstance(
        "absurd", rows, (1e11,) * columns, (1e10,) * columns, 2, 4, 8, 1e-3, 1e6, 1e6, 1e6, ordered=ordered
    )


#: Some of each family; each method meets those that it supports.
ABSURD: Mapping[str, tuple[Callable[[], Any], ...]] = {
    "stage_partitioning": (
        lambda: stages(5_000, 1, 1024, 1024),
        lambda: stages(400, 40, 1_000_000, 1_000_000),
        lambda: stages(300, 3, 2048, 2048),
    ),
    "flushed_partitioning": (
        lambda: flush_pipeline(stages(5_000, 1, 1024, 1024)),
        lambda: flush_pipeline(stages(300, 3, 1_000_000, 1_000_000)),
    ),
    "training_strategy": (
        lambda: of_chain(stages(5_000, 1, 1024, 1024)),
        lambda: of_chain(stages(300, 1, 4096, 4096)),
        lambda: of_chain(stages(500, 1, 1_000_000, 1_024), (Schedule.INTERLEAVED, Schedule.ZB_H1), 8),
    ),
    "serving_strategy": (lambda: server(3_000, 100_000), lambda: server(200, 1_000_000)),
    "hierarchical_partitioning": (
        lambda: machines(3_000, 1, 8, 64, 1024),
        lambda: machines(300, 3, 1000, 1000, 1_000_000),
    ),
    "tmpc_knapsack": (lambda: knapsack(2_000, 300), lambda: knapsack(100_000, 2)),
    "layer_assignment": (
        lambda: layers(20_000, 2_000, 64),
        lambda: layers(20_000, 19_000, 64, all_reduce=True),
        lambda: layers(3_000, 3_000, 2),
    ),
    "mesh_tiling": (lambda: mesh(256, 256, True), lambda: mesh(64, 64, True), lambda: mesh(256, 256, False)),
    "amp_strategy": (lambda: strategies(5_000, 512, "megatron"), lambda: strategies(300, 512, "oriented")),
    "operator_strategies": (lambda: choices(20_000, 4), lambda: choices(300, 60)),
    "microbatch_schedule": (lambda: chain(8, 12_000), lambda: chain(2_000, 50)),
    "operator_partitioning": (
        lambda: operators(20_000, 1, 64),
        lambda: operators(20_000, 4, 64),
        lambda: operators(2_000, 200, 1_000, 1_000),
    ),
    "stage_graph": (
        lambda: branches(20_000, 4, 8),
        lambda: branches(2_000, 4, 64),
        lambda: branches(400, 8, 10_000),
        lambda: branches(60, 20, 8),
    ),
    "device_mapping": (lambda: network(64, 32), lambda: network(8, 4)),
    "pipeline_placement": (lambda: placement(20_000, 8, 4), lambda: placement(500, 32, 16)),
}
