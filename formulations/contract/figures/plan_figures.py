"""The figures of a plan, as plain data: figures of every stage and of the whole, and pictures.

Each room makes its own (``definition/plan_figures.py``), from its definition alone; `planner` draws them. Pictures
hold numbers and names, and no colours: what a stage looks like is decided once, in `planner.display.palette`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Stage:
    """What every picture says of a stage; its kind decides its colour.

    ``label``: short, such as "0".
    ``degrees``: such as "dp 2 x tp 4"; empty if it has none.
    ``replicas``: how many times it is there (the height of its strip).
    ``is_bottleneck``: whether the objective waits for it. At most one stage of a picture is the bottleneck.
    ``kind``: equal stages are of one kind, numbered from 0 on; ``None``: not known, each is a kind of its own.
    """

    label: str
    degrees: str = ""
    replicas: int = 1
    is_bottleneck: bool = False
    kind: int | None = None


def stages_of(times: Sequence[float], degrees: Sequence[str] = (), replicas: Sequence[int] = ()) -> tuple[Stage, ...]:
    """Stages numbered from 0 on; the slowest one is the bottleneck.

    >>> [stage.is_bottleneck for stage in stages_of([1.0, 3.0, 3.0])]
    [False, True, False]
    """
    most = slowest(times) if times else -1
    return tuple(
        Stage(str(i), degrees[i] if degrees else "", replicas[i] if replicas else 1, i == most)
        for i in range(len(times))
    )


@dataclass(frozen=True)
class Item:
    """A layer or operator of a strip.

    ``name``: what the instance calls it.
    ``stage``: its stage's position; ``None``: in none.
    ``size``: its share of the strip, in the strip's ``measure``; not negative.
    ``pattern``: the TMPC chosen for it, or its role; empty where there is no choice.
    ``figures``: more to say of it: names that end in their unit, and values.
    """

    name: str
    stage: int | None
    size: float
    pattern: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Strip:
    """Layers from the input side on, each in its stage; widths are sizes, in ``measure`` ("time per sample, ms")."""

    title: str
    items: Sequence[Item]
    stages: Sequence[Stage]
    measure: str


@dataclass(frozen=True)
class Stack:
    """A stacked bar for each stage.

    ``parts``: by what it is spent on, from the bottom up: a value for each stage. They sum up to the definition's
    number.
    ``measure``, ``unit``: what the sum is ("time per sample", "memory of a device"), and its unit ("s", "ms", "bytes").
    ``limits``: for each stage what its sum may be at most; what is left is slack. ``None``: no limit.
    ``beside``: what happens at the same time, by its name: a value for each stage, which counts where it takes longer.
    ``adds_up``: whether all bars together make the objective, so that no bar alone is waited for.
    ``note``: what is to say of the parts, in a sentence.
    """

    title: str
    stages: Sequence[Stage]
    parts: Mapping[str, Sequence[float]]
    measure: str
    unit: str
    limits: Sequence[float] | None = None
    beside: Mapping[str, Sequence[float]] = field(default_factory=dict)
    adds_up: bool = False
    note: str = ""

    def total(self, stage: int) -> float:
        """The stage's number: the sum of its parts, or what happens beside them and takes longer."""
        return max(
            math.fsum(part[stage] for part in self.parts.values()), 0.0, *(part[stage] for part in self.beside.values())
        )


def states(weights: Sequence[float], copies: float) -> dict[str, list[float]]:
    """Weights, gradients and the optimiser's states of instances that count so many copies of the weights of a stage.

    The first copy is the weights, the second one their gradients, and the others are the optimiser's.

    >>> states([10.0], 4.0), states([10.0], 1.5)
    ({'weights': [10.0], 'gradients': [10.0], 'optimiser': [20.0]}, {'weights': [10.0], 'gradients': [5.0]})
    """
    shares = {"weights": min(copies, 1.0), "gradients": min(copies - 1, 1.0), "optimiser": copies - 2}
    return {name: [share * each for each in weights] for name, share in shares.items() if share > 0}


class Task(NamedTuple):
    """A pass of a micro-batch on a replica of a stage: "F" or "B", from start to end."""

    stage: int
    kind: str
    microbatch: int
    start: float
    end: float
    replica: int = 0


@dataclass(frozen=True)
class Passes:
    """Which pass runs when; ``bubble_share`` is the part of all stages' time in which they wait.

    ``note`` says what the passes show and the objective does not count, or the other way round; each ``{}`` in it
    stands for one of ``amounts``, in ``unit``. ``end`` is when the last pass ends, shown or not; ``None`` where later
    micro-batches were not simulated.
    """

    title: str
    tasks: Sequence[Task]
    stages: Sequence[Stage]
    bubble_share: float
    unit: str = "s"
    note: str = ""
    amounts: Sequence[float] = ()
    end: float | None = None


@dataclass(frozen=True)
class Node:
    """A vertex of a graph: an operator, a chain of ``count`` operators in one stage, or a whole stage.

    ``stage`` is a position among the picture's stages (``None``: in none); ``text`` goes into its box below the name.
    """

    id: int
    name: str
    stage: int | None
    text: str = ""
    count: int = 1
    figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Arc:
    """An edge between two nodes by their ids, with the bytes it carries; ``is_cut``: from one stage to another."""

    source: int
    target: int
    bytes: float = 0.0
    is_cut: bool = False


@dataclass(frozen=True)
class Graph:
    """An acyclic graph, drawn in layers from the input side on."""

    title: str
    nodes: Sequence[Node]
    arcs: Sequence[Arc]
    stages: Sequence[Stage]


@dataclass(frozen=True)
class Place:
    """A device where it stands: x and y in steps of one device, its machine, its stage's position and replica."""

    device: int
    x: float
    y: float
    machine: int
    stage: int | None
    replica: int = 0


@dataclass(frozen=True)
class Link:
    """A link that a plan uses: bytes it carries in ``seconds``; ``is_slowest``: the objective waits for it."""

    a: int
    b: int
    load_bytes: float
    capacity_bytes_per_s: float
    is_slowest: bool = False

    @property
    def seconds(self) -> float:
        """How long the load takes on the link."""
        return self.load_bytes / self.capacity_bytes_per_s


@dataclass(frozen=True)
class Network:
    """Devices where they stand, and the links between them with the load that the plan puts on them.

    ``machines`` are what the machines are called, by their numbers; empty: nothing is known of machines.
    """

    title: str
    places: Sequence[Place]
    links: Sequence[Link]
    stages: Sequence[Stage]
    machines: Sequence[str] = ()


@dataclass(frozen=True)
class Matrix:
    """Bandwidths in bytes per second (by device numbers), with the devices of each stage in the order of stages."""

    title: str
    devices: Sequence[Sequence[int]]
    bandwidth_bytes_per_s: Sequence[Sequence[float]]
    stages: Sequence[Stage]


@dataclass(frozen=True)
class Tile:
    """Where a stage lies on a mesh."""

    stage: int
    row: int
    column: int
    rows: int
    columns: int


@dataclass(frozen=True)
class Tiles:
    """Stages as rectangles on a mesh: a column is a machine, its rows are the machine's devices."""

    title: str
    rows: int
    columns: int
    tiles: Sequence[Tile]
    stages: Sequence[Stage]


@dataclass(frozen=True)
class Option:
    """One way to run a node."""

    id: str
    time: float
    memory_bytes: float


@dataclass(frozen=True)
class Options:
    """A node's options, and the positions of the one that the plan chooses and of the one that a heuristic does."""

    node: str
    options: Sequence[Option]
    chosen: int
    heuristic: int | None = None


@dataclass(frozen=True)
class Total:
    """What a choice for all nodes costs together."""

    name: str
    time: float
    memory_bytes: float


@dataclass(frozen=True)
class Tradeoff:
    """Time against memory: each node's options, totals of whole choices, and choices that no other one dominates.

    ``totals`` are the plan's (the first) and those it is compared with; ``frontier`` are choices from the least memory
    on, on the lower hull of all choices.
    """

    title: str
    nodes: Sequence[Options]
    totals: Sequence[Total]
    frontier: Sequence[Total]
    capacity_bytes: float
    unit: str = ""


@dataclass(frozen=True)
class Heat:
    """A value for each pair of two settings; less is better.

    ``values[row][column]`` belongs to ``ys[row]`` and ``xs[column]``; ``None``: what ``empty`` says.
    ``measure``, ``unit``: what the values are ("time per sample"), and their unit.
    ``best``, ``here``: the (row, column) of the least value, and of the instance's own settings.
    ``xunit``, ``yunit``: of the settings; "bytes" are shown as sizes.
    ``empty``: what is to say of pairs without a value.
    """

    title: str
    xs: Sequence[float]
    ys: Sequence[float]
    values: Sequence[Sequence[float | None]]
    xlabel: str
    ylabel: str
    measure: str
    best: tuple[int, int] | None = None
    unit: str = ""
    here: tuple[int, int] | None = None
    xunit: str = ""
    yunit: str = ""
    empty: str = "infeasible"


def least_of(values: Sequence[Sequence[float | None]]) -> tuple[int, int] | None:
    """The (row, column) of the least value, the first one of equal ones; ``None``: there is no value.

    >>> least_of([[None, 3.0], [2.0, 2.0]])
    (1, 0)
    """
    known = ((value, r, c) for r, row in enumerate(values) for c, value in enumerate(row) if value is not None)
    found = min(known, default=None)
    return None if found is None else found[1:]


Picture = Strip | Stack | Passes | Graph | Network | Matrix | Tiles | Tradeoff | Heat


@dataclass(frozen=True)
class Breakdown:
    """A plan in figures.

    ``rows`` has one entry for each stage, or whatever ``row`` says, all with the same names; ``figures`` are of the
    whole plan. Names end in their unit (``_s``, ``_bytes``, ``_share``), or say that the instance's own time unit is
    meant.
    Lists of a row name what is in it, such as the layers of a stage.
    ``draw`` makes the pictures, and ``strip`` the strip of layers alone, for families whose plans have one.
    ``degrees`` are for each row its replicas and the devices of each; empty: not known. ``devices`` are how many the
    plan uses, and how many there are.
    """

    rows: tuple[Mapping[str, Any], ...] = ()
    figures: Mapping[str, Any] = field(default_factory=dict)
    draw: Callable[[], tuple[Picture, ...]] = tuple
    strip: Callable[[], Strip] | None = None
    row: str = "stage"
    degrees: Sequence[tuple[int, int]] = ()
    devices: tuple[int, int] | None = None

    @cached_property
    def pictures(self) -> tuple[Picture, ...]:
        """The pictures, which are made when they are first looked at."""
        return self.draw()


def slowest(times: Sequence[float]) -> int:
    """The position of the bottleneck: the first of the slowest."""
    return max(range(len(times)), key=lambda stage: times[stage])


def idle_share(times: Sequence[float], devices: Sequence[int], num_devices: int) -> float:
    """The part of all devices' time in a steady state in which they wait for the slowest stage, or have no stage.

    >>> idle_share([1.0, 2.0], [1, 1], 4)
    0.625
    """
    busy = sum(time * count for time, count in zip(times, devices, strict=True))
    return 1 - busy / (max(times) * num_devices) if max(times) > 0 else 1.0
