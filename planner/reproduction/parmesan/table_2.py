"""Table 2: the mapping against consecutive mapping on grids and random networks, with SemanticFPN.

The table's networks and the profile of SemanticFPN are not public: the model is generated at operator level and cut by
Parmesan's first phase, or stands in as a chain with skip connections; networks are reconstructed
(instances/generators/topologies.py).
"""

from typing import Any

from planner.files.load import load
from planner.reproduction.claim import Evidence, Note
from planner.reproduction.parmesan.cells import TIME_LIMIT_S, cell, count_proved, speedups
from planner.reproduction.parmesan.models import map_partition, partition_model

#: SemanticFPN cut into stages, or a chain with skip connections and volumes like a convolutional network's.
GRAPHS = ("semantic-fpn", "skip")
SHAPES = ((4, 16), (8, 8), (16, 4), (4, 64), (8, 32), (16, 16), (4, 128), (8, 64), (16, 32))
#: Printed speedups over consecutive mapping; ``None``: so many devices form no such grid.
PRINTED: dict[str, tuple[float | None, ...]] = {
    "mesh2d": (1.1, 1.0, 2.7, 5.6, 2.5, 1.4, None, None, None),
    "torus2d": (1.1, 1.0, 2.6, 1.6, 1.5, 1.0, None, None, None),
    "mesh3d": (1.0, 1.1, 1.1, None, None, None, 1.3, 1.8, 1.2),
    "torus3d": (1.0, 1.1, 1.0, None, None, None, 1.1, 1.0, 2.6),
    "random-blk-1": (1.5, 1.8, 1.5, 1.1, 1.4, 1.9, 1.1, 1.7, 1.9),
    "random-blk-2": (2.1, 1.6, 3.0, 1.4, 1.3, 3.7, 1.5, 1.6, 4.5),
    "uniform-dist": (33.5, 11.4, 6.7, 8.1, 5.1, 7.2, 23.3, 8.9, 5.5),
}


def run(
    _inputs: str | None,
    note: Note,
    time_limit: float = TIME_LIMIT_S,
    objective: str = "auto",
    devices: tuple[int, ...] = (),
    topologies: tuple[str, ...] = (),
    graph: str = GRAPHS[0],
) -> Evidence:
    """All cells of the table, or those with so many devices and on these networks."""
    rows: list[dict[str, Any]] = []
    for kind, printed in PRINTED.items():
        for (stages, replicas), paper in zip(SHAPES, printed, strict=True):
            left_out = (devices and stages * replicas not in devices) or (topologies and kind not in topologies)
            if paper is None or left_out:
                continue
            instance = instance_of(graph, kind, stages, replicas, objective, time_limit)
            row = cell(kind, instance, time_limit, note)
            rows.append({**row, "paper_speedup": paper, **speedups(row)})
    notes = (
        f"seconds of the slowest stage; {time_limit:g} s for each method and cell; no mapping exceeds bound_speedup",
        "networks and volumes are reconstructed, so printed and found speedups are comparable in kind only",
    )
    return Evidence(tuple(rows), f"stage graphs: {graph}; networks of seed 0", notes=(*notes, count_proved(rows)))


def instance_of(graph: str, kind: str, stages: int, replicas: int, objective: str, time_limit: float) -> Any:
    """A cell's instance, of a stage graph of `GRAPHS`."""
    if graph == "skip":
        return load(kind, stages=stages, replicas=replicas, graph=graph, objective=objective)
    return map_partition(*partition_model(graph, "parmesan", stages, replicas, time_limit), replicas, kind, objective)
