"""Where all stages together make the objective: what each of them adds to it, as stacked bars."""

from collections.abc import Mapping, Sequence

from formulations.contract.figures.plan_figures import Stack, Stage, slowest


def equation_4(
    times: Sequence[float],
    sending: Sequence[float],
    rings: Sequence[float],
    num_microbatches: int,
    stages: Sequence[Stage],
) -> Stack:
    """The slowest stage for all micro-batches but one, all stages and what they send once, the slowest all-reduce.

    ``times``, ``sending``, ``rings``: for each stage seconds of a micro-batch, of sending it on, and of an all-reduce.
    Source: AMP, Equation 4; the all-reduce is reconstructed.
    """
    decisive = slowest(times)
    parts = {
        "all other micro-batches": _alone(decisive, (num_microbatches - 1) * times[decisive], len(times)),
        "its first micro-batch": times,
        "transfer": sending,
        "synchronisation": _longest(rings),
    }
    return _stack("What each stage adds to a step", parts, "its first micro-batch", stages, "part of the step", "s")


def flush_parts(
    times: Sequence[float],
    rounds: float,
    filling: Sequence[float],
    rings: Sequence[float],
    stages: Sequence[Stage],
    what: str,
    unit: str,
) -> Stack | None:
    """The slowest stage for so many rounds, what all add while the pipeline fills and drains, the longest all-reduce.

    ``None`` where one stage, without any of the others, is all of it. ``what`` is the objective, such as "step".
    """
    decisive = slowest(times)
    parts = {
        "micro-batches": _alone(decisive, rounds * times[decisive], len(times)),
        "filling and draining": filling,
        "synchronisation": _longest(rings),
    }
    if not any(filling) and not any(rings):
        return None
    return _stack(f"What each stage adds to a {what}", parts, "micro-batches", stages, f"part of the {what}", unit)


def _alone(stage: int, value: float, count: int) -> list[float]:
    return [value if each == stage else 0.0 for each in range(count)]


def _longest(values: Sequence[float]) -> list[float]:
    """Only the longest counts."""
    return _alone(slowest(values), max(values), len(values))


def _stack(
    title: str, parts: Mapping[str, Sequence[float]], always: str, stages: Sequence[Stage], measure: str, unit: str
) -> Stack:
    counted = {name: values for name, values in parts.items() if name == always or any(values)}
    return Stack(title, stages, counted, measure, unit, adds_up=True)
