"""Small instances for searches: meshes of machines with bandwidths of their own, in whole numbers."""

from collections.abc import Mapping

from formulations.contract.instance_space import UNIFORM_LAYERS, Gene, Genes, Genome, InstanceSpace
from instances.problems.mesh_tiling import MeshInstance


def mining() -> InstanceSpace[MeshInstance]:
    """The limits, genes and domains of the problem."""
    return InstanceSpace({"nodes": 4, "rows": 4, "degree": 2, "microbatches": 4, "number": 9}, genes, (UNIFORM_LAYERS,))


def genes(limits: Mapping[str, int]) -> Genes[MeshInstance]:
    """Instances within limits: ``nodes`` are the machines; both degrees of a tile are at most ``degree``."""
    most = limits["number"]
    return Genes(
        limits["nodes"],
        (
            Gene("rows", limits["rows"], 1, "rows"),
            Gene("tensor-parallel degree", limits["degree"], 1),
            Gene("data-parallel degree", limits["degree"], 1),
            Gene("microbatches", limits["microbatches"], 1),
            Gene("ordered", 1),
            *(Gene(f"{name} bytes", most) for name in ("tensor-parallel", "data-parallel", "stage")),
        ),
        (Gene("inside", most, 1), Gene("between", most, 1)),
        None,
        _build,
    )


def _build(genome: Genome) -> MeshInstance:
    rows, tp, dp, microbatches, ordered, tp_bytes, dp_bytes, stage_bytes = genome.whole
    inside, between = zip(*genome.nodes, strict=True)
    return MeshInstance(
        "mined", rows, inside, between, tp, dp, microbatches, 0.0, tp_bytes, dp_bytes, stage_bytes, bool(ordered)
    )
