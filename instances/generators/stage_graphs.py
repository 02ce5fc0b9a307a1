"""Device mappings made from a kind of stage graph and a kind of network.

Source: Parmesan, section 7 (SemanticFPN, whose stages have more skip connections than a chain). Its volumes are not
public: reconstructed from what a convolutional network looks like, large tensors first and large weights last.
"""

import random
from collections.abc import Mapping
from typing import Any

from instances.generators.topologies import Matrix, topology
from instances.problems.device_mapping import AUTO, DeviceMapping, MappingEdge, MappingStage, with_objective

MB = 1e6
GRAPHS = ("chain", "skip")
#: Bytes of a tensor between two stages at the input and at the output side, and of a skip connection.
FIRST_TENSOR, LAST_TENSOR, SKIP_TENSOR = 40 * MB, 12 * MB, 12 * MB
#: Bytes of the parameters of the first and the last of eight stages; more stages share them.
FIRST_WEIGHTS, LAST_WEIGHTS = 20 * MB, 120 * MB
COMPUTE_S = 0.010


def stage_graph(graph: str, num_stages: int, seed: int = 0) -> tuple[tuple[MappingStage, ...], tuple[MappingEdge, ...]]:
    """Stages like those of a convolutional network, in a chain or with skip connections.

    ``skip`` adds edges from a quarter and from half of the way to the last stage, and from behind the quarter to the
    stage before the last, where they join stages that are no neighbours.
    """
    if graph not in GRAPHS:
        raise ValueError(f"no stage graph {graph}; expected one of {', '.join(GRAPHS)}")
    rng = random.Random(f"stages {num_stages} {seed}")
    span = max(1, num_stages - 1)
    stages = tuple(
        MappingStage(
            COMPUTE_S * rng.uniform(0.9, 1.1),
            (FIRST_WEIGHTS + (LAST_WEIGHTS - FIRST_WEIGHTS) * stage / span) * 8 / num_stages * rng.uniform(0.85, 1.15),
        )
        for stage in range(num_stages)
    )
    edges = [
        MappingEdge(
            stage, stage + 1, (FIRST_TENSOR + (LAST_TENSOR - FIRST_TENSOR) * stage / span) * rng.uniform(0.85, 1.15)
        )
        for stage in range(num_stages - 1)
    ]
    if graph == "skip":
        quarter, last = num_stages // 4, num_stages - 1
        for source, target in dict.fromkeys([(quarter, last), (num_stages // 2, last), (quarter + 1, last - 1)]):
            if target - source >= 2:
                edges.append(MappingEdge(source, target, SKIP_TENSOR))
    return stages, tuple(edges)


def generate(
    kind: str = "torus2d",
    stages: int = 8,
    replicas: int = 4,
    graph: str = "chain",
    seed: int = 0,
    matrix: Matrix | None = None,
    options: Mapping[str, Any] | None = None,
    **sizes: Any,
) -> DeviceMapping:
    """A device mapping: a stage graph on a kind of network (see ``topology``) or on a matrix of bandwidths.

    `ValueError` if there is no such graph or network of ``stages`` x ``replicas`` devices.
    """
    if matrix is None:
        matrix = topology(kind, stages * replicas, seed=seed, **sizes)
    elif len(matrix) != stages * replicas:
        raise ValueError(f"{len(matrix)} devices for {stages} stages of {replicas} replicas")
    made, edges = stage_graph(graph, stages, seed)
    name = f"{kind}-{stages}x{replicas}-{graph}-{seed}"
    return with_objective(DeviceMapping(name, made, edges, replicas, matrix, options=options or {}), AUTO)


def figure_2() -> DeviceMapping:
    """Four stages on two machines of two devices (Parmesan, Figure 2): consecutive mapping takes 1.4 times as long.

    The volumes are inferred: they give the printed factor for the sum of all link times, and 4.333 against 2.333 ms for
    the slowest stage.
    """
    stages = (MappingStage(0.0, MB),) * 4
    edges = tuple(MappingEdge(stage, stage + 1, volume * MB) for stage, volume in enumerate((1, 4, 1)))
    return with_objective(DeviceMapping("fig2", stages, edges, 1, topology("fig2", 4)), AUTO)
