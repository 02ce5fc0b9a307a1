"""Catalog entries of device mapping: a stage graph on each kind of network, and on a given matrix."""

from functools import partial
from typing import Any

from instances.catalog.entry import SEED, Entry
from instances.errors import InstanceError
from instances.generators import topologies
from instances.generators.stage_graphs import GRAPHS, figure_2, generate
from instances.parameters import Setting, choice, one_of, parse_count, within
from instances.problems.device_mapping import DeviceMapping
from instances.units import parse_bandwidth

#: Devices of the largest network that is made; as many as can be read.
MAX_DEVICES = 2048


def _sides(value: Any) -> tuple[int, ...]:
    """The sides of a grid: "4x8" is (4, 8)."""
    parts = value.split("x") if isinstance(value, str) else value
    try:
        return tuple(parse_count(part) for part in parts)
    except (ValueError, TypeError):
        raise ValueError("the sides of a grid such as 4x8 or 4x4x4") from None


_BANDWIDTH = within(parse_bandwidth, 1.0)
_SIZES = {
    "per_node": Setting("per-node", parse_count, "two-level: devices of a machine", "4", metavar="G"),
    "intra": Setting("intra", _BANDWIDTH, "two-level: bandwidth inside a machine", "12GB/s", metavar="B"),
    "inter": Setting("inter", _BANDWIDTH, "two-level: bandwidth between machines", "1.5GB/s", metavar="B"),
    "sides": Setting("sides", _sides, "sides of a mesh or torus", "the squarest", metavar="AxB[xC]"),
    "block": Setting("block", parse_count, "random-blk-1: devices of a block", "8", metavar="G"),
}
_STAGES = (
    Setting("stages", parse_count, "number of pipeline stages", "8", metavar="S"),
    Setting("replicas", parse_count, "replicas of each stage", "4", metavar="R"),
    choice("graph", GRAPHS, "a chain of stages, or one with skip connections", "chain"),
    SEED,
)
_TEXTS = {
    "two-level": "machines of a few devices, fast inside and slow between them",
    "dgx1": "DGX-1 machines with eight V100s in a hybrid cube mesh, Ethernet between them",
    "mesh2d": "a two-dimensional mesh; bandwidth falls with the number of links between two devices",
    "mesh3d": "a three-dimensional mesh",
    "torus2d": "a two-dimensional torus",
    "torus3d": "a three-dimensional torus",
    "random-blk-1": "random bandwidths, fast inside blocks of eight devices",
    "random-blk-2": "random bandwidths, blocks of different sizes, devices numbered at random",
    "uniform-dist": "random bandwidths, each between 0.1 and 10 GB/s",
}
_SOURCE = "Parmesan, section 7; numbers reconstructed (instances/generators/topologies.py)"


def _make(kind: str, **given: Any) -> DeviceMapping:
    """The instance; what is given is recorded in its options."""
    devices = given.get("stages", 8) * given.get("replicas", 4)
    if devices > MAX_DEVICES:
        raise InstanceError.at(kind, "stages x replicas", devices, f"at most {MAX_DEVICES}")
    options = {name.replace("_", "-"): value for name, value in given.items() if name != "matrix"}
    try:
        return generate(kind, options=options, **given)
    except ValueError as error:
        raise InstanceError(f"{kind}: {error}") from None


def _topology(kind: str = "torus2d", matrix: str | None = None, **given: Any) -> DeviceMapping:
    """A kind that is named, or a matrix from a file."""
    if matrix is None:
        return _make(kind, **given)
    from instances.readers import bandwidth_csv  # pydantic is imported for files alone

    return _make("matrix", **given, matrix=bandwidth_csv.read(matrix))


ENTRIES = (
    Entry(
        "topology",
        "device_mapping",
        _topology,
        "a stage graph on a network of any kind, or on a matrix of bandwidths in CSV",
        _SOURCE,
        (
            Setting("kind", one_of(*_TEXTS), "kind of network", "torus2d", metavar="KIND"),
            Setting("matrix", str, "bandwidths in CSV instead of a kind of network", metavar="FILE.csv"),
            *_STAGES,
            *_SIZES.values(),
        ),
    ),
    *(
        Entry(kind, "device_mapping", partial(_make, kind), text, _SOURCE, (*_STAGES, *sizes))
        for kind, text in _TEXTS.items()
        for sizes in [[_SIZES[name] for name in topologies.ARGUMENTS.get(kind, ()) if name in _SIZES]]
    ),
    Entry(
        "fig2",
        "device_mapping",
        figure_2,
        "four stages on two machines of two devices",
        "Parmesan, Figure 2; volumes inferred from the factor it prints",
    ),
)
