"""Kinds of stages: equal stages have one colour, which no other kind of the same plan has.

Stages are equal if they are one row of the plan's table (`planner.results.sentences`): bytes and micro-batches in
flight, which change from place to place, apart. Where that makes more kinds than there are colours, stages that run on
as many replicas and devices are of one kind; where that says nothing either, two colours take turns.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from formulations.contract.figures.plan_figures import Breakdown, Heat, Picture, Stage, Tradeoff
from planner.display.palette import BOTTLENECK, STAGES
from planner.results.sentences import kind_of_row

#: Runs of stages of one kind that its name has at most; of more, the ends.
_NAMED = 4


def kinds(found: Breakdown) -> list[int]:
    """The kind of each row of a plan, numbered in the order in which they first occur."""
    equal = _numbers(tuple(kind_of_row(found, place)) for place in range(len(found.rows)))
    shapes = _numbers(found.degrees)
    return shapes if len({*equal}) > len(STAGES) and 1 < len({*shapes}) <= len(STAGES) else equal


def _numbers(of: Iterable[Hashable]) -> list[int]:
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(each, len(numbers)) for each in of]


def pictures(found: Breakdown) -> list[Picture]:
    """The pictures of a plan, whose stages know their kinds."""
    own = kinds(found)
    return [of_kinds(picture, own) for picture in found.pictures]


def of_kinds(picture: Any, own: Sequence[int]) -> Any:
    """A picture whose stages, if they are those of the rows, know their kinds."""
    if isinstance(picture, Heat | Tradeoff) or len(picture.stages) != len(own):
        return picture
    return replace(picture, stages=tuple(replace(s, kind=kind) for s, kind in zip(picture.stages, own, strict=True)))


def looks(stages: Sequence[Stage | int]) -> list[int]:
    """The number of each stage's colour; of an integer, itself is the kind.

    >>> looks([Stage("0", kind=0), Stage("1", kind=1), Stage("2", kind=0)]), looks([Stage("0"), Stage("1")])
    ([0, 1, 0], [0, 1])
    >>> looks(range(8))
    [0, 1, 0, 1, 0, 1, 0, 1]
    """
    known = [s if isinstance(s, int) else place if s.kind is None else s.kind for place, s in enumerate(stages)]
    return [kind % 2 for kind in known] if max(known, default=0) >= len(STAGES) else known


def kind_key(stages: Sequence[Stage]) -> list[tuple[str, str, float]]:
    """What the colours stand for, where several stages share one: its stages, and on what these run.

    >>> kind_key([Stage("0", "dp 2", kind=0), *(Stage(n, kind=1, is_bottleneck=n == "2") for n in "123")])
    [('stage 0 (dp 2)', '@stage0', 1.0), ('stages 1-3, ▼2', '@stage1', 1.0)]
    """
    own = [stage.kind for stage in stages]
    if None in own or own != looks(stages) or not 1 < len({*own}) < len(own):
        return []
    runs_on = {(stage.kind, stage.degrees) for stage in stages}
    says_degrees = len({degrees for _, degrees in runs_on}) > 1 and len(runs_on) == len({*own})
    key = []
    for kind in sorted({*looks(stages)}):
        of = [place for place, stage in enumerate(stages) if stage.kind == kind]
        runs = [[place for _, place in run] for _, run in groupby(enumerate(of), key=lambda each: each[1] - each[0])]
        names = [stages[run[0]].label + (f"-{stages[run[-1]].label}" if len(run) > 1 else "") for run in runs]
        named = ", ".join(names if len(names) <= _NAMED else (names[0], "...", names[-1]))
        degrees = f" ({stages[of[0]].degrees})" if says_degrees and stages[of[0]].degrees else ""
        slowest = [f", {BOTTLENECK}{stages[place].label}" for place in of if stages[place].is_bottleneck]
        key.append(
            (f"{'stage' if len(of) == 1 else 'stages'} {named}{degrees}{''.join(slowest)}", f"@stage{kind}", 1.0)
        )
    return key
