"""An explanation as a person reads it."""

from collections.abc import Iterator, Sequence

from planner.analysis.explain import TIGHT_SHARE, Explanation, Gain, Repair
from planner.display.terminal import say
from planner.results.texts import number
from solvers.outcome import OPTIMAL_GAP, Status, Stop

#: More layers of a conflict than this are counted.
_SHOWN_LAYERS = 8
#: More stages than this are named by the first ones.
_SHOWN_STAGES = 12


def show(found: Explanation) -> None:
    """Print what was found; of a trainer first what it does, and what other decisions would cost it."""
    if found.answer is not None and found.result is not None:
        from planner.display.trainer_answer import show_answer, show_others

        show_answer(found.answer, found.result)
        show_others(found)
    for line in _lines(found):
        say(line)


def _lines(found: Explanation) -> Iterator[str]:
    effort = f"{found.proofs} proofs by exact methods in {found.seconds:.1f} s"
    if found.status is Status.INFEASIBLE:
        yield f"{found.instance} ({found.problem}): {found.reason or 'there is no plan'}"
        yield from _conflict(found)
        yield from _repairs(found.repairs, found)
    elif found.result is not None:
        yield f"{found.instance} ({found.problem}): optimum {number(found.result.objective)} {found.unit}"
        yield from _binding(found)
        yield from (_gain(each, found) for each in found.gains)
    else:
        yield f"{found.instance} ({found.problem}): not known whether there is a plan"
    ended = "" if found.stop is Stop.PROVED else f"; ended early ({found.stop.value}), there may be more to say"
    yield f"{effort}{ended}"


def _conflict(found: Explanation) -> Iterator[str]:
    if not found.conflict:
        return
    least = "without any one of them there is one" if found.irreducible else "fewer may be enough: not all were tried"
    yield f"No plan keeps all of these; {least}:"
    others = [each for each in found.conflict if each.kind != "layer"]
    layers = [each for each in found.conflict if each.kind == "layer"][::-1]
    yield from (f"  {each.says}" for each in [*others, *layers[:_SHOWN_LAYERS]])
    if len(layers) > _SHOWN_LAYERS:
        rest = [str(each.name) for each in layers[_SHOWN_LAYERS:]]
        yield f"  and {len(rest)} more: {', '.join(rest)}"


def _repairs(repairs: Sequence[Repair], found: Explanation) -> Iterator[str]:
    if not repairs:
        if found.stop is Stop.PROVED:
            yield "No single change of those that are tried repairs it."
            yield from _untried_lines(found)
        return
    yield "Any one of these repairs it, each the smallest of its kind that is tried (solved again):"
    for each in repairs:
        worth = "" if each.objective is None else f": {number(each.objective)} {found.unit}"
        yield f"  {each.says}{worth}"
    yield from _untried_lines(found)


def _untried_lines(found: Explanation) -> Iterator[str]:
    if found.untried:
        yield f"Not tried: {'; '.join(found.untried)}."


def _binding(found: Explanation) -> Iterator[str]:
    yield f"slowest: {_stages(found.bottleneck)} of {len(found.rows)}"
    rows = [row for row in found.rows if row["memory_share"] is not None]
    if not rows:
        return
    tight = f"{_stages(found.tight)}" if found.tight else "no stage"
    yield f"memory filled to {TIGHT_SHARE:.0%} or more: {tight}"
    for row in sorted(rows, key=lambda row: -row["memory_share"])[:3]:
        yield (
            f"  stage {row['stage']}: {row['memory_share']:.1%} of a device's memory, "
            f"{row['time_share']:.1%} of the slowest stage's time"
        )


def _stages(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:_SHOWN_STAGES])) + (", ..." if len(numbers) > _SHOWN_STAGES else "")
    return f"stage{'s' * (len(numbers) > 1)} {shown}"


def _gain(gain: Gain, found: Explanation) -> str:
    unit = found.unit
    if gain.gain is not None and abs(gain.gain) > OPTIMAL_GAP:
        verb = "gains" if gain.gain > 0 else "loses"
        return f"{gain.says} {verb} {abs(gain.gain):.3%}: {number(gain.objective)} {unit}"
    worth = "gains nothing" if gain.objective is not None else "has no plan"
    if gain.next_amount is not None:
        return f"{gain.says} {worth}; the next that helps: {gain.next_says}, {number(gain.next_objective)} {unit}"
    return f"{gain.says} {worth}" + ("; no other amount helps" if gain.others_tried else "")
