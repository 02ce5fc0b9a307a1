"""The dynamic program's states and transitions, laid out once for all targets, micro-batch sizes and device counts.

A state is what is left to plan, with stages taken off from the end: a segment (a chain of components), or branches side
by side. How a state can go on does not depend on costs; which transitions are affordable does (`kernels.program`).

Kinds of transitions, for a state behind which j micro-batches are in flight:

- ``STAGE`` (stage, rest): the last stage, j + 1 in flight; the rest has these behind it.
- ``CHAIN`` (end, rest): the trailing branches end as a state of their own; the rest has their sources behind it.
- ``SPLIT`` (one, other): branches planned apart; both have j behind them.
- ``GROUP`` (stage, rest): several whole branches are one stage; the other branches have j behind them, too.
- ``FORK`` (end, rest, stage): what remains of the trailing branches; then a stage of their beginnings and of what is
  before them; then the rest.

With ``Reach.STRADDLE`` branches also go on by ``STAGE``: whole branches and the end of another are the last stage, and
the branches that remain, one of them cut short, all have it behind them. So a plan may walk along a chain of all
operators, as a sequential pipeline does, and leave it where branches are better planned apart.

Source: GraphPipe, Algorithm 1, lines 23 to 48; the last stages that reach into branches are choices of this project.
"""

import itertools
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from formulations.stage_graph.costs.series_parallel import Parallel, Segment, key_of, nodes_of, parallel
from solvers.outcome import Watch

STAGE, CHAIN, SPLIT, GROUP, FORK = range(5)
#: The state in which nothing is left.
EMPTY = 0


class Reach(StrEnum):
    """Which stages may leave the series-parallel structure.

    ``none``: a stage is made of whole components of a series, or of whole branches. ``owner``: an operator where
    branches join (or part) may share its stage with the end (or beginning) of one branch, as one child of a parallel
    node owns the terminal in the paper. ``straddle``: with any whole branches and a part of one.
    """

    NONE = "none"
    OWNER = "owner"
    STRADDLE = "straddle"


class TooLargeError(Exception):
    """More transitions than there is room or time for."""


@dataclass(frozen=True, eq=False)
class Branches:
    """What is left to plan: branches side by side (at least two)."""

    branches: tuple[Segment, ...]


#: What is left to plan.
Remainder = Segment | Branches


@dataclass(frozen=True, eq=False)
class Move:
    """A way to go on: kind, the stage as a bitset (0: none), and what is left (one or two remainders)."""

    kind: int
    nodes: int
    first: Remainder
    second: Remainder = ()


@dataclass(frozen=True)
class Transition:
    """A move between states: kind, stage as a bitset (0: none), and the states of its remainders."""

    kind: int
    nodes: int
    first: int
    second: int


@dataclass
class Program:
    """States and their transitions; state 0 is empty, and a state's transitions lead to earlier states only.

    Remainders that an exchange of equal branches maps onto each other are one state; its transitions hold the stages of
    the first of them (as bitsets), and ``moves`` lists those of any other in the same order.
    """

    reach: Reach
    limit: int
    watch: Watch
    transitions: list[list[Transition]] = field(default_factory=lambda: [[]])
    count: int = 0
    _whole: set[Hashable] = field(default_factory=set)
    _states: dict[Hashable, int] = field(default_factory=dict)

    def state(self, remainder: Remainder) -> int:
        """The state of a remainder, with all states it needs; `TooLargeError` if these are too many."""
        if isinstance(remainder, Branches):
            return self._enter(("branches", *map(key_of, remainder.branches)), remainder)
        key = ("segment", key_of(remainder))
        if not remainder or key in self._states:
            return self._states.get(key, EMPTY)
        for length in range(1, len(remainder)):  # short ones first: they are part of the long ones
            self._enter(("segment", key_of(remainder[:length])), remainder[:length])
        return self._enter(key, remainder)

    def _enter(self, key: Hashable, remainder: Remainder) -> int:
        if key in self._states:
            return self._states[key]
        found = []
        for move in self.moves(remainder):
            found.append(Transition(move.kind, move.nodes, self.state(move.first), self.state(move.second)))
            self.count += 1
            if self.count > self.limit:
                raise TooLargeError(f"more than {self.limit} transitions")
            if self.watch.stopped():
                raise TooLargeError("time was up before all transitions were known")
        state = self._states[key] = len(self.transitions)
        self.transitions.append(found)
        return state

    def moves(self, remainder: Remainder) -> Iterator[Move]:
        """All ways to go on with a remainder, in the order of its state's transitions."""
        if not isinstance(remainder, Branches):
            return self._segment_moves(remainder)
        if self.reach is not Reach.STRADDLE:
            return _branch_moves(remainder.branches)
        return itertools.chain(_branch_moves(remainder.branches), self._walks(remainder.branches))

    def _walks(self, branches: tuple[Segment, ...]) -> Iterator[Move]:
        """Stages of the end of a branch, with whole ones, that leave at most one branch cut short."""
        short = [branch for branch in branches if key_of(branch) not in self._whole]
        for branch in _distinct(list(branches)):
            others = list(branches)
            others.remove(branch)
            first = [other for other in short if other is not branch]
            rest = [other for other in others if other not in first]
            for whole, left in _same(rest):
                base = nodes_of(part for other in (*first, *whole) for part in other)
                for cut in range(1, len(branch)):
                    remainder = parallel([*left, branch[:cut]])
                    yield Move(STAGE, base | nodes_of(branch[cut:]), _as_remainder(remainder))

    def enter(self, segment: Segment) -> int:
        """The state of everything: its branches are whole."""
        self._note(segment)
        return self.state(segment)

    def visited(self, remainder: Remainder) -> Iterator[Remainder]:
        """A remainder and all that it leads to, an example of each state, those that are left last come first."""
        seen, stack = {EMPTY}, [remainder]
        while stack:
            found = stack.pop()
            if self.state(found) in seen:
                continue
            seen.add(self.state(found))
            yield found
            stack += [rest for move in self.moves(found) for rest in (move.first, move.second)]

    def _note(self, segment: Segment) -> None:
        for component in segment:
            if isinstance(component, Parallel):
                for branch in component.branches:
                    self._whole.add(key_of(branch))
                    self._note(branch)

    def _segment_moves(self, segment: Segment) -> Iterator[Move]:
        for nodes, rest in self._last_stages(segment):
            yield Move(STAGE, nodes, rest)
        last = segment[-1]
        if not isinstance(last, Parallel):
            return
        yield Move(CHAIN, 0, Branches(last.branches), segment[:-1])
        # Stages of the beginnings of trailing branches and of what is before them.
        for taken, end in self._parts(last, ends=False) if len(segment) > 1 else ():
            for nodes, rest in self._last_stages(segment[:-1]):
                yield Move(FORK, nodes | taken, end, rest)

    def _last_stages(self, segment: Segment) -> Iterator[tuple[int, Segment]]:
        """Stages that take whole components from the end, and perhaps ends of branches before these."""
        nodes = 0
        for start in range(len(segment) - 1, -1, -1):
            nodes |= segment[start].nodes
            yield nodes, segment[:start]
            before = segment[start - 1] if start else None
            if isinstance(before, Parallel):
                for taken, rest in self._parts(before, ends=True):
                    yield nodes | taken, segment[: start - 1] + rest

    def _parts(self, component: Parallel, *, ends: bool) -> Iterator[tuple[int, Segment]]:
        """What a stage next to branches can take of them: the operators, and the segment that remains.

        ``ends``: the stage is behind the branches and takes their ends, else it is before them.
        """
        if self.reach is Reach.NONE:
            return
        for whole, rest in _choices(component.branches):
            if whole and self.reach is Reach.OWNER:
                break
            base = nodes_of(part for branch in whole for part in branch)
            if whole and rest:
                yield base, parallel(rest)
            for branch in _distinct(rest):
                others = list(rest)
                others.remove(branch)
                for cut in range(1, len(branch)):
                    taken, left = (branch[cut:], branch[:cut]) if ends else (branch[:cut], branch[cut:])
                    yield base | nodes_of(taken), parallel([*others, left])


def _branch_moves(branches: tuple[Segment, ...]) -> Iterator[Move]:
    first, others = branches[0], branches[1:]
    yield Move(SPLIT, 0, first, others[0] if len(others) == 1 else Branches(others))
    for whole, rest in _choices(others):
        if whole:
            left: Remainder = Branches(tuple(rest)) if len(rest) > 1 else rest[0] if rest else ()
            yield Move(GROUP, nodes_of(part for branch in (first, *whole) for part in branch), left)


def _as_remainder(segment: Segment) -> Remainder:
    """Branches as such, where nothing else is left."""
    only = segment[0] if len(segment) == 1 else None
    return Branches(only.branches) if isinstance(only, Parallel) else segment


def _same(branches: list[Segment]) -> Iterator[tuple[list[Segment], list[Segment]]]:
    """No whole branch, or some of one kind, and the others."""
    yield [], branches
    for example in _distinct(branches):
        equal = [branch for branch in branches if key_of(branch) == key_of(example)]
        others = [branch for branch in branches if key_of(branch) != key_of(example)]
        for taken in range(1, len(equal) + 1):
            yield equal[:taken], others + equal[taken:]


#: More groups of branches than this are not tried; then only branches that stand next to each other are grouped.
_MAX_CHOICES = 512


def _choices(branches: tuple[Segment, ...]) -> Iterator[tuple[list[Segment], list[Segment]]]:
    """Sets of whole branches and the others, none first; equal branches are exchangeable."""
    groups: dict[Hashable, list[Segment]] = {}
    for branch in branches:
        groups.setdefault(key_of(branch), []).append(branch)
    classes = list(groups.values())
    count = 1
    for group in classes:
        count *= len(group) + 1
    if count > _MAX_CHOICES:
        for taken in range(len(branches) + 1):
            yield list(branches[:taken]), list(branches[taken:])
        return
    for counts in itertools.product(*(range(len(group) + 1) for group in classes)):
        whole = [branch for taken, group in zip(counts, classes, strict=True) for branch in group[:taken]]
        rest = [branch for taken, group in zip(counts, classes, strict=True) for branch in group[taken:]]
        yield whole, rest


def _distinct(branches: list[Segment]) -> list[Segment]:
    """One example of each kind of branch."""
    return list({key_of(branch): branch for branch in reversed(branches)}.values())
