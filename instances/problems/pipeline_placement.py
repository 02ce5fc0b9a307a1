"""Pipeline placement: an operator graph, and the devices that its stages and their replicas will run on (nouns only).

Source: Parmesan, sections 3 to 5: both phases together.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from instances.errors import InstanceError, expect
from instances.exchange import FileOf, in_files
from instances.problems import operator_partitioning
from instances.problems.device_mapping import MICROBATCHES, RINGS, check_matrix
from instances.problems.device_mapping import OBJECTIVES as OF_MAPPING
from instances.problems.operator_partitioning import OperatorInstance
from instances.requirements import expect_none
from instances.rules import Amount, Count, Declared, one_of

#: Those of a device mapping, and a step of a pipeline that is flushed after it.
OBJECTIVES = (*OF_MAPPING, "step")


@in_files(
    *("objective", "ring", "microbatches", "operators", "bandwidth_bytes_per_s"),
    problem="pipeline_placement",
    reader="instances.readers.pipeline_placement_json:read",
    types={"operators": Annotated[Mapping[str, Any], FileOf(OperatorInstance)]},
)
@dataclass(frozen=True)
class PlacementInstance(Declared):
    """An operator graph to be cut into S stages with R replicas, on S x R devices with heterogeneous links.

    Parameters
    ----------
    operators
        The graph, S and R (both fixed), memory; its flat bandwidth is what the first phase alone assumes.
    bandwidth_bytes_per_s
        Symmetric, shape (S R, S R).
    objective, ring
        As in `DeviceMapping`: ``p2p``, ``allreduce`` or ``full``, or else ``step``; ``index`` or ``free``.
    microbatches
        Of a replica in a training step, for ``step`` and for the simulation.
    """

    operators: OperatorInstance
    bandwidth_bytes_per_s: tuple[tuple[Amount, ...], ...]
    objective: Annotated[str, one_of(*OBJECTIVES)] = "full"
    ring: Annotated[str, one_of(*RINGS)] = "index"
    microbatches: Count = MICROBATCHES
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The operator graph's."""
        return self.operators.name

    @property
    def num_stages(self) -> int:
        """S."""
        assert self.operators.num_stages is not None
        return self.operators.num_stages

    @property
    def weight_copies(self) -> float | None:
        """The operator graph's."""
        return self.operators.weight_copies

    @property
    def num_devices(self) -> int:
        """S x R."""
        return len(self.bandwidth_bytes_per_s)


def place_on(
    operators: OperatorInstance, matrix: tuple[tuple[float, ...], ...], where: str = "instance", **more: Any
) -> PlacementInstance:
    """The instance of a graph on the devices of a matrix.

    Raises
    ------
    InstanceError
        If the number of stages or of replicas is free, or S R is not the number of devices.
    """
    expect_none(operators, where, "operators")
    if operators.num_stages is None or operators.num_devices is not None:
        raise InstanceError.at(where, "num_stages", None, "stages and replicas that are both given")
    expect(not operators.flushed, where, "flushed", True, "false: the placement's objective says what is minimised")
    expect(not operators.at_most, where, "at_most", True, "false: every stage is placed")
    needed = operators.num_stages * operators.replicas
    rule = f"{needed}: {operators.num_stages} stages times {operators.replicas} replicas"
    expect(len(matrix) == needed, where, "devices", len(matrix), rule)
    return PlacementInstance(operators, matrix, **more)


def check(instance: PlacementInstance, where: str) -> None:
    """The rules of the operators and of the matrix, and those of `place_on`; `InstanceError` if one is broken."""
    check_matrix(instance.bandwidth_bytes_per_s, where, "bandwidth_bytes_per_s")
    operator_partitioning.check(instance.operators, f"{where}: operators")
    place_on(instance.operators, instance.bandwidth_bytes_per_s, where)
