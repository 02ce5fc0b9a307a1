"""Mesh tiling: pipeline stages as rectangles of devices that cover a mesh of nodes exactly (nouns only).

Source: AMP's supplement, section 6.3, Figure 5 and footnote 4; the cost of a tile is reconstructed.
"""

import random
from dataclasses import dataclass

from instances.errors import expect
from instances.exchange import in_files
from instances.rules import Amount, Bandwidth, Count, Flag, Identifier, Recorded

#: Devices of the largest mesh.
MAX_DEVICES = 2**16


@in_files(
    *("name", "rows", "tp_degree", "dp_degree", "num_microbatches", "compute_s", "tp_bytes", "dp_bytes", "stage_bytes"),
    *("ordered", "intra_bytes_per_s", "inter_bytes_per_s"),
    problem="mesh_tiling",
    absent={"name": "mesh"},
)
@dataclass(frozen=True)
class MeshInstance(Recorded):
    """A mesh of devices and the tiles that must cover it.

    Parameters
    ----------
    rows, intra_bytes_per_s, inter_bytes_per_s
        Devices of a node (a column of the mesh), and for each node the bandwidth between its devices and to others; two
        nodes communicate at the lower of their bandwidths. As many columns as nodes.
    tp_degree, dp_degree
        A stage's devices: one tile of tp x dp devices, upright (tp rows; tensor parallelism down a node, data
        parallelism across nodes) or lying (tp columns; the other way round).
    num_microbatches, compute_s
        Micro-batches of a stage in a step, and seconds that any stage computes for one of them.
    tp_bytes, dp_bytes, stage_bytes
        Sent by a tensor-parallel all-reduce for a micro-batch, by a data-parallel one for a step, and from a stage to
        the next for a micro-batch.
    ordered
        Whether the order of the stages counts: what they send to each other.
    """

    name: Identifier
    rows: Count
    intra_bytes_per_s: tuple[Bandwidth, ...]
    inter_bytes_per_s: tuple[Bandwidth, ...]
    tp_degree: Count
    dp_degree: Count
    num_microbatches: Count = 8
    compute_s: Amount = 0.0
    tp_bytes: Amount = 0.0
    dp_bytes: Amount = 0.0
    stage_bytes: Amount = 0.0
    ordered: Flag = False

    @property
    def columns(self) -> int:
        """Nodes."""
        return len(self.intra_bytes_per_s)

    @property
    def num_stages(self) -> int:
        """Tiles of an exact cover; rounded down where there is none."""
        return self.rows * self.columns // (self.tp_degree * self.dp_degree)

    def bandwidth(self, node: int, other: int) -> float:
        """Bytes per second between a device of one node and a device of another, or of the same."""
        if node == other:
            return self.intra_bytes_per_s[node]
        return min(self.inter_bytes_per_s[node], self.inter_bytes_per_s[other])


def check(instance: MeshInstance, where: str) -> None:
    """Rules between fields: two bandwidths for each node, and no more than ``MAX_DEVICES``; else `InstanceError`."""
    nodes, others = len(instance.intra_bytes_per_s), len(instance.inter_bytes_per_s)
    expect(nodes > 0, where, "intra_bytes_per_s", [], "a number for each node, at least one")
    expect(others == nodes, where, "len(inter_bytes_per_s)", others, f"{nodes}")
    devices = instance.rows * nodes
    expect(devices <= MAX_DEVICES, where, "rows x nodes", devices, f"at most {MAX_DEVICES} devices")


def generate(
    rows: int = 4, columns: int = 4, tp_degree: int = 2, dp_degree: int = 1, *, ordered: bool = False, seed: int = 0
) -> MeshInstance:
    """A random mesh of heterogeneous nodes; the same arguments give the same instance."""
    rng = random.Random(f"{rows} {columns} {tp_degree} {dp_degree} {seed}")
    intra = tuple(rng.choice([6e9, 20e9, 50e9, 150e9]) for _ in range(columns))
    inter = tuple(rng.choice([1.25e9, 3.1e9, 6.2e9, 12.5e9]) for _ in range(columns))
    return MeshInstance(
        f"mesh-{rows}x{columns}-{tp_degree}x{dp_degree}-{seed}",
        rows,
        intra,
        inter,
        tp_degree,
        dp_degree,
        tp_bytes=4e6,
        dp_bytes=80e6,
        stage_bytes=8e6,
        ordered=ordered,
    )
