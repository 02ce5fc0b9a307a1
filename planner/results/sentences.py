"""A result in sentences and one table: what is minimised, what is proved, the shape of the plan, and its stages.

Results (`planner.results.result.Result`) print themselves in these words, so they are not imported here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from instances.requirements import spoken
from instances.units import size
from planner.files.node_names import names_in_brief, names_of_nodes
from planner.results.texts import amount, brief, format_cell, format_loss, heading, number, percent, plural
from solvers.outcome import Status, Stop

if TYPE_CHECKING:
    from formulations.contract.clock import Clock
    from formulations.contract.figures.plan_figures import Breakdown

#: What is said of a search that did not end by itself.
_STOPPED = {
    Stop.TIME_LIMIT: " within the time limit",
    Stop.SIZE_LIMIT: ", without its model, which would be too large",
    Stop.INTERRUPTED: " so far",
}
#: More shapes of stages than this are shown by their ends.
_SHAPES = 4
#: Figures that the sentences have already.
SAID = ("bottleneck", "devices_used", "samples_per_s", "tokens_per_s", "memory_bytes", "slack_bytes")
#: Lists of nodes, which have names.
_NODES = ("nodes", "layers")
#: What depends on the place of a stage in its pipeline, as bytes do: neighbours that differ in no more are one row.
_BY_PLACE = "in_flight"


def sentences(result: Any, found: Breakdown | None, is_proved: bool = True, who: str = "") -> list[str]:
    """What is minimised, its value and what is proved of it; and the shape of the plan.

    ``found`` are the plan's figures. ``is_proved``: whether the result's loss, if it has one, is to a proved optimum.
    ``who``: of whom the sentences are; empty: of the instance.
    """
    said = f"{who or result.instance}: {verdict(result, found, is_proved, '' if who else f'by {result.method} ')}."
    return [said, *([] if found is None or not found.rows else [f"{shape(found)}."])]


def verdict(result: Any, found: Breakdown | None = None, is_proved: bool = True, whose: str = "") -> str:
    """The value of what is minimised, and what is proved of it; ``whose`` value it is if it is not known as least."""
    if result.own is not None:
        worth = (
            "" if result.objective is None else f"; the {result.minimised} is {amount(result.objective, result.unit)}"
        )
        return f"{_in_its_own_terms(**result.own)}{worth}"
    by = f"proved by {result.proved_by or 'search'}"
    if result.status is Status.INFEASIBLE:
        return f"there is no plan, {by}{_enough(result.stats)}"
    below = None if result.bound is None else f"no plan has less than {amount(result.bound, result.unit)}"
    if result.objective is None:
        return f"no plan was found ({result.stop}){'' if below is None else f'; {below}'}"
    value = amount(result.objective, result.unit) + rate(found)
    if result.status is Status.OPTIMAL:
        least = f"the least {result.minimised} is {value}, {by}"
        rules = () if result.of is None else result.of.requirements
        return f"of all plans with {spoken(rules)}, {least}" if rules else least
    said = f"{whose}the {result.minimised} is {value}{_STOPPED.get(result.stop, '')}"
    if result.loss is not None and is_proved:
        loss = format_loss(result.loss, is_proved)
        return f"{said}, which is {loss if loss == 'optimal' else f'{loss} above the optimum'}"
    return f"{said}; " + ("nothing is proved of others" if below is None else f"{below} (gap {percent(result.gap)})")


def _in_its_own_terms(
    objective: float | None,
    bound: float | None,
    unit: str,
    status: str,
    minimised: str = "",
    within: Sequence[str] = (),
) -> str:
    """What a changed model has found of what it minimises (`planner.model`), or another amount that is ``minimised``.

    >>> _in_its_own_terms(3.0, 3.0, "devices", "optimal"), _in_its_own_terms(None, None, "s", "infeasible")
    ('the least of the changed model is 3 devices', 'there is no plan with the rules that were added')
    >>> _in_its_own_terms(3.0, 3.0, "devices", "optimal", "devices", ["time <= 0.04 s"])
    'of all plans with time <= 0.04 s, the least takes 3 devices; that is proved'
    """
    if minimised:
        return _of_amount(objective, bound, unit, status, minimised, within)
    if status == Status.INFEASIBLE:
        return "there is no plan with the rules that were added"
    if objective is None:
        return "no plan of the changed model was found"
    if status == Status.OPTIMAL:
        return f"the least of the changed model is {amount(objective, unit)}"
    below = "" if bound is None else f"; no plan of it has less than {amount(bound, unit)}"
    return f"the changed model has a plan of {amount(objective, unit)}{below}"


def _of_amount(
    objective: float | None, bound: float | None, unit: str, status: str, minimised: str, within: Sequence[str]
) -> str:
    """What is known of the least devices, memory or time of plans within some bounds."""
    plans = f"plan{'s' * (status == Status.OPTIMAL)}{' with ' * bool(within)}{' and '.join(within)}"
    if status == Status.INFEASIBLE:
        return f"there is no {plans}, which is proved"
    least = f"no such plan takes less than {amount(bound or 0.0, unit)}"
    if objective is None:
        return f"no {plans} was found; {least}"
    taken = f"{amount(objective, unit)}{' of memory on its fullest device' * (minimised == 'memory')}"
    if status == Status.OPTIMAL:
        return f"of all {plans}, the least takes {taken}; that is proved"
    return f"a {plans} takes {taken}; {least}"


def _enough(stats: Mapping[str, Any]) -> str:
    """What would make the instance feasible, where the figures have it: sizes are rounded up."""
    least, count = stats.get("least_memory_bytes"), stats.get("fewest_devices")
    ways = [] if least is None else [f"{size(least, up=True)} a device"]
    ways += [] if count is None else [plural(int(count), "device")]
    return f"; {' or '.join(ways)} would be enough" if ways else ""


def rate(found: Breakdown | None) -> str:
    """What is done in a second, where the plan's figures have it."""
    figures = {} if found is None else found.figures
    for name, noun in (("tokens_per_s", "tokens/s"), ("samples_per_s", "samples/s")):
        if figures.get(name) is not None:
            return f" ({figures[name]:.4g} {noun}{' in a simulated iteration' if 'iteration_s' in figures else ''})"
    return ""


def both_clocks(clock: Clock) -> str:
    """What the objective is the time of, with the simulated iteration and the formula's value where both are known.

    >>> from formulations.contract.clock import Clock
    >>> both_clocks(Clock("formula", None, 64, lambda: 1.25, 1.0, "--objective iteration"))
    'a formula of a batch of 64 micro-batches: 1 s; simulated 1.25 s (minimise it: --objective iteration)'
    >>> both_clocks(Clock("iteration", None, 8, lambda: 1.25, 1.0, "--objective formula"))
    'an iteration of 8 micro-batches: 1.25 s; by the formula 1 s (minimise it: --objective formula)'
    >>> both_clocks(Clock("steady", "1f1b", 64, lambda: 1.25, 1.0))
    'a pipeline that is never flushed: 1 s for 64 micro-batches; simulated batch, 1F1B: 1.25 s'
    >>> both_clocks(Clock("steady", None, None, lambda: None))
    'a pipeline that is never flushed'
    """
    if clock.formula_s is None:
        return clock.says
    simulated = "too long to be simulated" if clock.iteration_s is None else f"{clock.iteration_s:.6g} s"
    formula = f"{clock.formula_s:.6g} s"
    if clock.kind == "iteration":
        said = f"{clock.says}: {simulated}; by the formula {formula}"
    elif clock.kind == "formula":
        said = f"{clock.says}: {formula}; simulated {simulated}"
    else:
        size = "a batch" if clock.microbatches is None else f"{clock.microbatches:,} micro-batches"
        said = f"{clock.says}: {formula} for {size}; simulated batch{clock.order}: {simulated}"
    return f"{said} (minimise it: {clock.other})" if clock.other else said


def shape(found: Breakdown) -> str:
    """How many stages there are and on what they run, which is the slowest, and how full the devices are.

    >>> from formulations.contract.figures.plan_figures import Breakdown
    >>> rows = [{"memory_bytes": 2.0**30, "slack_bytes": 2.0**30}] * 3
    >>> shape(Breakdown(rows, {"bottleneck": "stage 1"}, degrees=[(7, 1), (1, 2), (1, 2)]))
    '3 stages, the first with 7 replicas, 2 on 2 devices; stage 1 is the slowest; fullest 1 of 2 GiB'
    >>> shape(Breakdown(rows[:1], {}, degrees=[(1, 4)], devices=(4, 8)))
    '1 stage on 4 devices; 4 of 8 devices, fullest 1 of 2 GiB'
    """
    parts = [plural(len(found.rows), found.row) + _degrees(found.degrees)]
    if "bottleneck" in found.figures and len(found.rows) > 1:
        parts.append(f"{found.figures['bottleneck']} is the slowest")
    full = [] if found.devices is None else ["{} of {} devices".format(*found.devices)]
    if (held := fullest(found)) is not None:
        _, memory, limit = held
        full.append(f"{'memory' if 'memory_bytes' in found.figures else 'fullest'} {_of(memory, limit)}")
    return "; ".join([*parts, *([", ".join(full)] if full else [])])


def fullest(found: Breakdown) -> tuple[int, float, float] | None:
    """The row whose device is fullest, the bytes it holds and those it has; row 0 where the whole plan has them."""
    held = [
        (place, row["memory_bytes"], row["memory_bytes"] + row["slack_bytes"])
        for place, row in enumerate([found.figures] if "slack_bytes" in found.figures else found.rows)
        if "slack_bytes" in row
    ]
    return max((each for each in held if each[2] > 0), key=lambda each: each[1] / each[2], default=None)


def _of(part: float, whole: float) -> str:
    """Two sizes in the unit of the second: ``7.95 of 8 GiB``."""
    value, unit = size(whole).split()
    scale = {"GiB": 2.0**30, "MiB": 2.0**20, "KiB": 2.0**10, "B": 1.0}[unit]
    return f"{part / scale:.4g} of {value} {unit}"


def _degrees(degrees: Sequence[tuple[int, int]]) -> str:
    """On what stages run, in words that follow their number: of each, or how many of each shape."""
    counts = Counter(degrees)
    if not counts:
        return ""
    if len(counts) == 1:
        return f"{', each' if len(degrees) > 1 else ''} {_on(degrees[0])}"
    if len(counts) > _SHAPES:
        sizes = [r * d for r, d in degrees]
        return f" on {min(sizes)} to {plural(max(sizes), 'device')}"
    said = [f"{_who(degrees, pair) if count == 1 else count} {_on(pair)}" for pair, count in counts.items()]
    return f", {', '.join(said)}"


def _who(degrees: Sequence[tuple[int, int]], pair: tuple[int, int]) -> str:
    place = degrees.index(pair)
    return "the first" if place == 0 else "the last" if place == len(degrees) - 1 else f"number {place}"


def _on(pair: tuple[int, int]) -> str:
    replicas, devices = pair
    if replicas == 1:
        return f"on {plural(devices, 'device')}"
    return f"with {replicas} replicas{'' if devices == 1 else f' of {devices} devices'}"


def stage_rows(result: Any, found: Breakdown, *, full: bool = False) -> list[dict[str, str]]:
    """The table of a plan's stages: by heading what is in each, on what it runs, and its figures.

    Equal neighbours are one row, what depends on their place from the first to the last of them, unless it is ``full``.
    """
    names = {} if result.of is None else names_of_nodes(result.of)
    runs = groupby(range(len(found.rows)), key=lambda place: place if full else kind_of_row(found, place))
    return [_row(found, list(places), names) for _, places in runs]


def without_empty(rows: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Rows without the columns that have nothing but zeros; the first column stays.

    >>> without_empty([{"stage": "0", "sending": "0", "time": "1"}, {"stage": "1", "time": "2"}])
    [{'stage': '0', 'time': '1'}, {'stage': '1', 'time': '2'}]
    """
    shown = {
        name for row in rows for place, (name, cell) in enumerate(row.items()) if not place or cell not in ("", "0")
    }
    return [{name: cell for name, cell in row.items() if name in shown} for row in rows]


def kind_of_row(found: Breakdown, place: int) -> list[str]:
    """What stages have in common that are equal: neighbours of one kind are one row of the table."""
    cells = (format_cell(name, value, 6) for name, value in found.rows[place].items() if _is_compared(name, value))
    return [*cells, *(map(str, found.degrees[place]) if found.degrees else ())]


def _is_compared(name: str, value: object) -> bool:
    return not isinstance(value, list) and name != _BY_PLACE and not name.endswith("_bytes")


def _row(found: Breakdown, places: Sequence[int], names: Mapping[str, str]) -> dict[str, str]:
    first, last = places[0], places[-1]
    cells, figures = {found.row: _range(str(first), str(last), "-")}, {}
    for name, value in found.rows[first].items():
        if isinstance(value, list):
            inside = [each for place in places for each in found.rows[place][name]]
            cells[name] = brief(inside)
            if name in _NODES and any(str(each) in names for each in inside):
                cells["names"] = names_in_brief(inside, names)
        else:
            one, other = (format_cell(name, found.rows[place][name], 6) for place in (first, last))
            unit = one.partition(" ")[2]
            figures[heading(name)] = _range(one, other, " .. ", unit if unit == other.partition(" ")[2] else "")
    if found.degrees:
        replicas, devices = found.degrees[first]
        cells["replicas"] = str(replicas) if devices == 1 else f"{replicas} x {devices}"
    return {**cells, **figures}


def _range(first: str, last: str, between: str, unit: str = "") -> str:
    """From the first to the last; a ``unit`` of both stands once.

    >>> _range("3 GiB", "2 GiB", " .. ", "GiB"), _range("1", "1", "-")
    ('3 .. 2 GiB', '1')
    """
    return first if first == last else f"{first.removesuffix(f' {unit}')}{between}{last}"


def comparison_row(result: Any, is_proved: bool) -> dict[str, str]:
    """What a comparison, in which an optimum ``is_proved`` or not, shows of a result, by heading."""
    return {
        "instance": result.instance,
        "method": result.method,
        "loss": format_loss(result.loss, is_proved),
        "gap": percent(result.gap),
        "objective": number(result.objective),
        "bound": number(result.bound),
        "status": result.status,
        "stop": result.stop,
        "seconds": f"{result.seconds:.4g}",
        "proved by": result.proved_by or "-" if result.stop is Stop.PROVED else "-",
    }
