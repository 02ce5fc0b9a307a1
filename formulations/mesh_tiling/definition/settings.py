"""What an instance of mesh tiling is read from, and what a caller may change of it."""

from typing import Any

from instances.parameters import Setting, flag, parse_count
from instances.problems.mesh_tiling import MeshInstance

#: What is minimised.
MINIMISES = {"": "time of a training step"}
OVERRIDES = (
    Setting("tp-degree", parse_count, "tensor-parallel degree of every stage", metavar="T"),
    Setting("dp-degree", parse_count, "data-parallel degree of every stage", metavar="D"),
    flag("ordered", "count what each stage sends to the next"),
)


def describe(instance: MeshInstance) -> dict[str, Any]:
    """The key figures of an instance."""
    return {
        "mesh": f"{instance.rows} x {instance.columns}",
        "tile": f"{instance.tp_degree} x {instance.dp_degree}",
        "stages": instance.num_stages,
        "ordered": instance.ordered,
    }
