"""From a partition of operators to the mapping of stages, by hand."""

import pytest

from formulations.device_mapping.definition.plan import Mapping
from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.pipeline_placement.definition.stages import mapping_of, step_seconds
from instances.generators.topologies import two_level
from instances.problems.operator_partitioning import Operator, OperatorInstance, Tensor

#: a -> b -> d and a -> c -> d; a's tensor goes to both.
GRAPH = OperatorInstance(
    "diamond",
    tuple(
        Operator(name, seconds, size) for name, seconds, size in (("a", 1, 4), ("b", 2, 0), ("c", 3, 8), ("d", 4, 2))
    ),
    (Tensor(0, (1, 2), 12.0), Tensor(1, (3,), 6.0), Tensor(2, (3,), 18.0)),
)
MATRIX = two_level(4, 2, 6.0, 2.0)


def test_stages_add_up_and_a_tensor_is_sent_to_a_stage_once() -> None:
    instance = mapping_of(GRAPH, OperatorPlan(((0,), (1, 2, 3)), (2, 2)), MATRIX, "full")
    assert [(stage.compute_s, stage.parameter_bytes) for stage in instance.stages] == [(1, 4), (9, 10)]
    assert [(edge.source, edge.target, edge.volume_bytes) for edge in instance.edges] == [(0, 1, 12.0)]
    assert (instance.objective, instance.replicas, instance.num_devices) == ("full", 2, 4)


def test_skip_connections_become_edges() -> None:
    instance = mapping_of(GRAPH, OperatorPlan(((0,), (1,), (2,), (3,)), (1,) * 4), MATRIX)
    assert {(edge.source, edge.target): edge.volume_bytes for edge in instance.edges} == {
        (0, 1): 12.0,
        (0, 2): 12.0,
        (1, 3): 6.0,
        (2, 3): 18.0,
    }
    assert instance.objective == "p2p"


def test_a_step_by_hand() -> None:
    instance = mapping_of(GRAPH, OperatorPlan(((0,), (1, 2, 3)), (2, 2)), MATRIX, "p2p")
    together, apart = Mapping(((0, 1), (2, 3))), Mapping(((0, 2), (1, 3)))
    assert step_seconds(instance, together) == pytest.approx((4 + 1) * (9 + 12 / 2) + 10 / 6)
    assert step_seconds(instance, apart) == pytest.approx((4 + 1) * (9 + 12 / 6) + 10 / 2)


def test_devices_must_fit() -> None:
    with pytest.raises(ValueError, match="4 devices for 1 stages of 2 replicas"):
        mapping_of(GRAPH, OperatorPlan(((0, 1, 2, 3),), (2,)), MATRIX)
