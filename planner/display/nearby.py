"""Alternatives, fronts and sweeps over micro-batch sizes as tables a person reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from planner.analysis.alternatives import Alternatives
from planner.analysis.pareto import Front
from planner.analysis.sweep import SweepRow, time_per_sequence
from planner.display.terminal import console, table
from planner.results import texts
from planner.results.result import Result

if TYPE_CHECKING:
    from rich.table import Table


def show_nearby(found: Alternatives | Front, first: Result, strategies: Table | None = None) -> None:
    """Print plans beside the first, or the points of a front: in a table of their own, where there is one."""
    if isinstance(found, Front):
        show_front(found, strategies)
    else:
        show_alternatives(found, first, strategies)


def show_alternatives(found: Alternatives, first: Result, strategies: Table | None = None) -> None:
    """Print the plans, what each takes more than the first, and what is proved of all others."""
    out, best, rows = console(), first.objective or 0.0, []
    own = _differing([each["plan"] for each in found.plans])
    for place, each in enumerate(found.plans, 1):
        more = texts.percent(each["objective"] / best - 1 if best else 0.0)
        rows.append(
            (
                str(place),
                texts.number(each["objective"]),
                more,
                *(str(each["plan"][name]) for name in own),
                in_a_line(each["plan"]),
            )
        )
    out.print(f"alternatives: plans that differ in {found.sense}", highlight=False)
    out.print(strategies or table(("", f"objective, {first.unit}", "more", *own, _heading(first.plan)), rows))
    others = found.to_json()["bound_of_others"]
    if others is not None:
        words = f"no other plan is below {texts.with_unit(others, first.unit)}"
    elif found.is_complete:
        words = "there is no other plan" if found.plans else "there is no plan"
    else:
        words = "nothing is known of others"
    words = words if found.is_complete else f"incomplete; {words}"
    out.print(f"{words} ({found.effort.solved} solves)", highlight=False)


def show_front(found: Front, strategies: Table | None = None) -> None:
    """Print the points of a front."""
    out = console()
    names = [*found.axes, *(name for name in found.units if name not in found.axes)]
    heads = [f"{name}, {found.units[name]}".rstrip(", ") for name in names]
    own = _differing([each.plan for each in found.points])
    heads += [*own, _heading(found.points[0].plan if found.points else None)]
    rows = (
        [
            *(texts.number(each.amounts[name]) for name in names),
            *(str(each.plan[name]) for name in own),
            in_a_line(each.plan),
        ]
        for each in found.points
    )
    out.print(f"front of {', '.join(found.axes)}", highlight=False)
    out.print(strategies or table(heads, rows))
    words = "no plan beats any of these" if found.is_complete else "incomplete: points may be missing or be beaten"
    out.print(f"{words} ({found.effort.solved} solves)", highlight=False)


def show_sweep(rows: Sequence[SweepRow], unit: str) -> None:
    """Print the rows of a sweep over micro-batch sizes, best first."""
    heads = ("g", "b'", "N", "status", f"objective ({unit})", f"per sequence ({unit})", "gap", "seconds")
    shown = []
    for row in sorted(rows, key=time_per_sequence):
        numbers = ["" if value is None else f"{value:.6g}" for value in (row.objective, row.time_per_sequence)]
        numbers.append(texts.percent(row.gap))
        counts = (row.grad_accum, row.microbatch_size, row.microbatches)
        shown.append([*map(str, counts), row.status, *numbers, f"{row.seconds:.2f}"])
    console().print(table(heads, shown, title="gradient accumulation and micro-batch size", left=["status"]))


def _differing(plans: Sequence[Mapping[str, Any]]) -> list[str]:
    """The fields of plans, numbers or words, in which some differ."""
    plain = {name: own for name, own in (plans or [{}])[0].items() if isinstance(own, int | float | str)}
    return [name for name, own in plain.items() if any(each[name] != own for each in plans)]


def _heading(plan: Mapping[str, Any] | None) -> str:
    """What the parts of a plan show, in their order."""
    part = next(iter(_parts(plan or {})), None)
    return f"plan ({' / '.join(_plain_fields(part))})" if isinstance(part, Mapping) else "plan"


def in_a_line(plan: Mapping[str, Any]) -> str:
    """A plan without its choices inside stages.

    >>> in_a_line({"stages": [{"nodes": [0, 1], "d": 2, "tmpcs": {"0": "keep"}}, {"nodes": [2], "d": 1}]})
    '0, 1 / 2 | 2 / 1'
    >>> in_a_line({"lengths": [3, 4]})
    '3 | 4'
    """
    shown = (_plain_fields(part).values() if isinstance(part, Mapping) else [part] for part in _parts(plan))
    return " | ".join(" / ".join(map(texts.brief, values)) for values in shown)


def _parts(plan: Mapping[str, Any]) -> list[Any]:
    return next((part for part in plan.values() if isinstance(part, list)), [])


def _plain_fields(part: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if not isinstance(value, Mapping)}
