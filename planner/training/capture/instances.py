"""Captured models as instances of stage partitioning, operator partitioning and stage graphs."""

from collections.abc import Mapping

from instances.generators.hardware import Hardware
from instances.problems.operator_partitioning import Operator, OperatorInstance, Tensor, TrainingMemory
from instances.problems.stage_graph import AffineTime, OperatorEdge, Shard, StageGraph
from instances.problems.stage_graph import Operator as Vertex
from instances.problems.stage_partitioning import CostModel, Edge, Layer, StageInstance, TiedWeights
from instances.rules import Fact
from planner.training.capture.captured import Captured, edge_bytes, kept_tensors, shared_tensors
from planner.training.capture.choices import WORKING_SET, Choices, Work
from planner.training.capture.configurations import Configurations
from planner.training.capture.found_splits import FoundConfigurations


def bandwidth_between(hardware: Hardware, devices: int, efficiency: float) -> float:
    """Bytes per second between two devices of a flat network: the links of a server where one holds all of them.

    In one direction, as formulas of operators count what is sent.
    """
    inside = devices <= hardware.devices_per_machine
    return (hardware.inner_bandwidth_bytes_per_s if inside else hardware.outer_bandwidth_bytes_per_s) * efficiency


def stage_partitioning(
    captured: Captured, hardware: Hardware, devices: int, work: Work, choices: Choices, facts: Mapping[str, Fact]
) -> StageInstance:
    """The nodes with their configurations, and how they are tied.

    ``devices``: K, all of ``hardware``.
    ``facts``: how the instance was made, for its ``options``.
    Returns: times in seconds for a micro-batch; data-parallel synchronisation once in a batch (the released cost
    model), as trainers do it.
    """
    kind = FoundConfigurations if choices.found_splits else Configurations
    offered = kind(captured, hardware, work, choices)
    ways = [offered.of(node) for node in captured.nodes]
    layers = tuple(
        Layer(node.id, own, node.name, node.module, node.role, offered.weight_times(node, own), offered.sources(node))
        for node, own in zip(captured.nodes, ways, strict=True)
    )
    sizes = {each.name: each.size for node in captured.nodes for each in node.parameters}
    return StageInstance(
        name=captured.name,
        layers=layers,
        edges=tuple(Edge(*pair, size) for pair, size in sorted(edge_bytes(captured).items())),
        num_devices=devices,
        memory_bytes=hardware.memory_bytes - offered.reserve,
        # Costs of layers add up what is sent and what is received.
        bandwidth=2 * bandwidth_between(hardware, devices, choices.link_efficiency),
        num_microbatches=work.num_microbatches,
        cost_model=CostModel.RELEASED,
        options={**facts, WORKING_SET: offered.reserve},
        warnings=captured.warnings,
        tied=tuple(TiedWeights(name, nodes, sizes[name]) for name, nodes in captured.tied.items()),
        shared=shared_tensors(captured),
        kept=kept_tensors(captured),
    )


def operator_partitioning(
    captured: Captured, hardware: Hardware, devices: int, work: Work, choices: Choices, facts: Mapping[str, Fact]
) -> OperatorInstance:
    """The nodes on one device each, stages and replicas free; stages keep their inputs and compute the rest again.

    An operator's ``memory_bytes`` is what it keeps of the micro-batch that is computed again; ``facts`` are the
    instance's ``origin``.
    """
    costs = Configurations(captured, hardware, work, choices)
    leaving = _leaving(captured)
    operators = []
    for node in captured.nodes:
        share = costs.alone(node)
        seconds = 2 * share.forward_s + share.backward_s
        sizes = share.parameter_bytes, leaving[node.id], share.inside_bytes
        operators.append(Operator(node.id, seconds, *sizes, node.name))
    tensors = tuple(
        Tensor(each.source, each.targets, each.size * (2.0 if each.gradient else 1.0)) for each in captured.transfers
    )
    return OperatorInstance(
        name=captured.name,
        operators=tuple(operators),
        tensors=tensors,
        num_stages=None,
        num_devices=devices,
        bandwidth_bytes_per_s=bandwidth_between(hardware, devices, choices.link_efficiency),
        memory_bytes=hardware.memory_bytes,
        training=TrainingMemory(costs.states_per_byte(), work.num_microbatches, "1f1b", recompute=True),
        step_microbatches=work.num_microbatches,
        origin=dict(facts),
    )


def stage_graph(
    captured: Captured, hardware: Hardware, devices: int, work: Work, choices: Choices, facts: Mapping[str, Fact]
) -> StageGraph:
    """The nodes on one device each, with times that grow with the samples; what a node hands on counts as kept.

    Degrees above 1 that ``choices`` names are tensor-parallel ones, by columns and rows without recomputation; times
    contain what the devices all-reduce. Minimised is the iteration of a batch. ``facts`` are the instance's ``origin``.
    """
    costs = Configurations(captured, hardware, work, choices)
    leaving, b = _leaving(captured), work.microbatch
    vertices = []
    for node in captured.nodes:
        share = costs.alone(node)
        times = AffineTime(0.0, share.forward_s / b), AffineTime(0.0, share.backward_s / b)
        kept = (share.inside_bytes + leaving[node.id]) / b
        shards = []
        for t in (degree for degree in choices.degrees if degree > 1):
            own = costs.split(node, t)
            forward, backward = own.forward_s + own.again_link_s, own.backward_s + own.link_s - own.again_link_s
            each = AffineTime(0.0, forward / b), AffineTime(0.0, backward / b)
            shards.append(Shard(t, *each, own.parameter_bytes, (own.inside_bytes + leaving[node.id]) / b))
        vertices.append(Vertex(node.name, *times, share.parameter_bytes, kept, tuple(shards)))
    return StageGraph(
        name=captured.name,
        operators=tuple(vertices),
        edges=tuple(OperatorEdge(*pair, size / b) for pair, size in sorted(edge_bytes(captured).items())),
        num_devices=devices,
        memory_bytes=hardware.memory_bytes,
        bandwidth_bytes_per_s=bandwidth_between(hardware, devices, choices.link_efficiency),
        latency_s=0.0,
        minibatch=b * work.num_microbatches,
        inner_bandwidth_bytes_per_s=hardware.inner_bandwidth_bytes_per_s * choices.link_efficiency,
        devices_per_node=hardware.devices_per_machine,
        weight_copies=costs.states_per_byte(),
        objective="iteration",  # trainers flush after a batch, and this is what one takes
        origin=dict(facts),
    )


def _leaving(captured: Captured) -> dict[int, float]:
    """Bytes that every node hands to others."""
    found = dict.fromkeys(range(len(captured.nodes)), 0.0)
    for transfer in captured.transfers:
        found[transfer.source] += transfer.size
    return found
