"""A study of sensitivity as a person reads it."""

from collections.abc import Iterator, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context

from formulations.contract.rounding import amount_text, exactly
from planner.analysis.sensitivity import LEAST, MOST, Interval, Noise, Scenarios, Sensitivity
from planner.display.terminal import say
from planner.results.texts import number
from solvers.outcome import Status, Stop


def show(found: Sensitivity) -> None:
    """Print what was found."""
    for line in _lines(found):
        say(line)


def _lines(found: Sensitivity) -> Iterator[str]:
    if found.status is Status.INFEASIBLE:
        yield f"{found.instance} ({found.problem}): there is no plan (planner explain shows why)"
    elif found.result is None:
        yield f"{found.instance} ({found.problem}): the optimum is not known"
    else:
        yield f"{found.instance} ({found.problem}): optimum {number(found.result.objective)} {found.unit}"
        if found.intervals:
            yield "The plan stays optimal while one number alone is so many times what is declared:"
            yield from (f"  {line}" for line in _intervals(found.intervals))
        if found.noise is not None:
            yield _noise(found.noise)
        if found.scenarios is not None:
            yield from _scenarios(found.scenarios)
    ended = "" if found.stop is Stop.PROVED else f"; ended early ({found.stop.value}), there is more to find"
    yield f"{found.proofs} proofs by exact methods in {found.seconds:.1f} s{ended}"


def _intervals(found: Sequence[Interval]) -> Iterator[str]:
    width = max(len(each.parameter) for each in found)
    for each in found:
        sure = "proved" if each.proved else f"ends proved, {each.points} points between"
        yield f"{each.parameter:{width}}  {_range(each)}  ({sure})"


def _range(found: Interval) -> str:
    low, high = inner(found.low, ROUND_CEILING), inner(found.high, ROUND_FLOOR)
    if found.low_amount is not None:
        most = "any" if found.high_amount is None else _amount(found.high_amount)
        return f"{low or 'any'} to {high or 'any'}: {_amount(found.low_amount)} to {most} bytes"
    return f"{low or f'{LEAST:g} or less'} to {high or f'{MOST:g} or more'}"


def inner(factor: float | None, rounding: str) -> str:
    """An end of an interval in six digits, which lie inside it; empty if it has none.

    >>> inner(0.50335649, ROUND_CEILING), inner(2.0333299, ROUND_FLOOR), inner(1.0, ROUND_FLOOR)
    ('0.503357', '2.03332', '1')
    """
    return "" if factor is None else f"{Context(prec=6, rounding=rounding).create_decimal_from_float(factor):g}"


def _amount(amount: float) -> str:
    """An amount that may be the declared one, which need not be rounded."""
    text = amount_text(amount)
    return text if float(text) == amount else exactly(amount)


def _noise(found: Noise) -> str:
    return (
        f"Times and bandwidth off by up to {100 * found.share:.3g} %, {found.samples} samples (seed {found.seed}): "
        f"the plan loses {found.mean_loss:.2%} on average, {found.p95_loss:.2%} at the 95th percentile, "
        f"{found.worst_loss:.2%} at worst; it is optimal in {found.optimal:.0%} of them"
    )


def _scenarios(found: Scenarios) -> Iterator[str]:
    feasible = [name for place, name in enumerate(found.names) if place not in found.infeasible]
    if found.infeasible:
        yield f"no plan at all: scenarios {', '.join(map(str, found.infeasible))}"
    yield f"Candidates: the optimum of the instance and of {len(feasible)} scenarios; their worst losses:"
    origins = ["instance", *(f"scenario {n}" for n in range(len(found.names)) if n not in found.infeasible)]
    for place, origin in enumerate(origins):
        worst = found.worst(place)
        mark = "  <- best in the worst case, among these candidates only" if place == found.best else ""
        yield f"  {origin}: {'breaks a rule in some scenario' if worst == float('inf') else f'{worst:.2%}'}{mark}"
