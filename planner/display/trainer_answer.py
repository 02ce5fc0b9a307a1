"""Show what a trainer does with its best strategy, in six lines, and with others, a row for each."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

from formulations.stage_partitioning.definition.trainers import recomputed_part
from planner.display.terminal import bold, console, grid, printable, table
from planner.results.texts import brief, percent, plural, short, short_amount, unit_for
from solvers.outcome import Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.table import Table

    from formulations.training_strategy.definition.plan import StrategyPlan
    from planner.analysis.explain import Explanation
    from planner.analysis.trainer_answer import TrainerAnswer
    from planner.results.result import Result

#: More ranks than this are shown as those that hold most and least.
_SHOWN_RANKS = 16
#: Strategies that read the same are shown by so many chunks in which they differ.
_SHOWN_CHUNKS = 2
#: Shares of a step below this are rounding of sums.
_DUST = 1e-9
#: A bound of other degrees that is nearer than this to their best plan is not worth a word.
_NEAR = 0.01
#: Degrees that a strategy in short says, whatever they are; the schedule that it does not say.
_ALWAYS, _USUAL = ("pp", "tp", "dp"), "1f1b"
#: What replicas share, by the level of sharding.
_SHARED = ("nothing", "optimizer states", "optimizer states and gradients", "states, gradients and weights")
_SHARED_IN_SHORT = ("nothing", "states", "states and gradients", "all")


def show_answer(found: TrainerAnswer, result: Result) -> None:
    """Print the strategy on a line, then its rates, its step in parts, its memory, and the command that exports it."""
    out, degrees = console(), _degrees(found.plan)
    again = f"{found.recomputed} of {plural(found.layers, 'layer')} recomputed{_in_part(found)}"
    parts = [_batch(found), str(found.plan.schedule), again]
    parts += [f"{_SHARED[found.sharding]} shared"] if found.sharding else []
    parts += ["sequences shared"] if found.sequences else []
    out.print(bold(found.trainer), printable(f"{degrees}, {', '.join(parts)}"))
    rows = {"best": _proof(result), "next": _next(found), "rates": _rates(found), "step": _step(found)}
    rows = {name: words for name, words in {**rows, "memory": _memory(found)}.items() if words}
    out.print(grid(rows.items()))
    out.print(printable(f"export  {found.export}"))  # on a line of its own length, to be copied


def strategies(answers: Sequence[TrainerAnswer]) -> Table | None:
    """A table of strategies, each with how much longer it takes than the fastest; ``None`` of none."""
    least = min((each.step for each in answers), default=0.0)
    more = (percent(each.step / least - 1 if least else 0.0, 3) for each in answers)
    rows = [(str(place), *each) for place, each in enumerate(zip(more, answers, strict=True), 1)]
    return _strategies(("", "longer"), rows) if rows else None


def show_others(found: Explanation) -> None:
    """Print what other decisions cost, each with the best of everything else, beside the best strategy."""
    now = found.answer.step
    rows: list[tuple[str, str, TrainerAnswer | None]] = [("best", "", found.answer)]
    for each in found.others:
        more, least = each.more(now)
        is_near = least is not None and more is not None and more - least <= _NEAR
        known = [] if more is None else [percent(more, 2)]
        known += [f"at least {percent(least, 2)}"] if least and not is_near else []
        words = "no plan" if each.result.status is Status.INFEASIBLE else ", ".join(known) or "not known"
        plans = [(own, None if one is None else one.plan) for _, own, one in rows[1:]]
        key = words, None if each.answer is None else each.answer.plan
        if key in plans and each.answer is not None:
            place = plans.index(key) + 1
            rows[place] = (f"{rows[place][0]} or {each.requirement}", *rows[place][1:])
        else:
            rows.append((each.requirement, words, each.answer))
    console().print(_strategies(("with", "longer"), rows))


def _strategies(heads: Sequence[str], rows: Sequence[tuple[str, str, TrainerAnswer | None]]) -> Table:
    """A table of strategies with their steps in parts; ``None`` has none."""
    answers = [each for *_, each in rows if each is not None]
    factor, unit = unit_for(answers[0].unit, answers[0].step)
    size, size_unit = unit_for("bytes", answers[0].memory_limit)
    used = [name for name in answers[0].parts if any(each.parts[name] > _DUST * each.step for each in answers)]
    tokens = ["tokens/s"] if all(each.tokens_per_s_per_device is not None for each in answers) else []

    short_words = _in_short_apart(answers)

    def cells(each: TrainerAnswer) -> list[str]:
        dust = _DUST * each.step
        parts = [f"{short(part / factor if part > dust else 0.0)}" for name, part in each.parts.items() if name in used]
        rates = [f"{each.tokens_per_s_per_device:,.0f}"] if tokens else []
        return [f"{short(each.step / factor, 4)}", *parts, *rates, f"{max(each.memory) / size:.3g}", next(short_words)]

    shown = [(first, more, *([] if each is None else cells(each))) for first, more, each in rows]
    return table((*heads, f"step, {unit}", *used, *tokens, size_unit, "strategy"), shown, left=[heads[0], "strategy"])


def _in_short_apart(answers: Sequence[TrainerAnswer]) -> Iterator[str]:
    """Strategies in short, in order; those that read the same with the first few chunks in which they differ."""
    same = defaultdict[str, list[list[str]]](list)
    for each in answers:
        ways = each.plan.tmpcs
        same[_in_short(each)].append([brief({v: ways[v] for v in chunk}) for chunk in each.plan.chunks])
    for each in answers:
        words = _in_short(each)
        chunks = list(zip(*same[words], strict=True))
        apart = [place for place, own in enumerate(chunks) if len(set(own)) > 1][:_SHOWN_CHUNKS]
        own = same[words][0]
        same[words].append(same[words].pop(0))
        yield ", ".join([words, *(f"chunk {place}: {own[place]}" for place in apart)])


def _in_short(found: TrainerAnswer) -> str:
    plan = found.plan
    words = [f"{name} {degree}" for name, degree in plan.parallelism.items() if degree > 1 or name in _ALWAYS]
    words += [f"{plan.virtual_stages} chunks"] if plan.virtual_stages > 1 else []
    words += [] if plan.schedule == _USUAL else [str(plan.schedule)]
    words += [f"{_SHARED_IN_SHORT[found.sharding]} shared"] if found.sharding else []
    words += [f"in {plan.shard_groups} groups"] if plan.shard_groups > 1 else []
    words += ["sequences shared"] if found.sequences else []
    words += [f"{found.recomputed} recomputed{_in_part(found)}"] if found.recomputed else []
    return ", ".join([*words, *(["replicas outermost"] if plan.dp_outermost else [])])


def _in_part(found: TrainerAnswer) -> str:
    part = next(filter(None, map(recomputed_part, found.plan.tmpcs.values())), "")
    return f" ({part} alone)" if part else ""


def _degrees(plan: StrategyPlan) -> str:
    chunks = f" x {plan.virtual_stages} chunks" if plan.virtual_stages > 1 else ""
    degrees = f"pipeline {plan.pp_degree}{chunks} x tensor {plan.tp_degree} x data {plan.dp_degree}"
    degrees += f" x context {plan.cp_degree}" if plan.cp_degree > 1 else ""
    degrees += ", replicas outermost" if plan.dp_outermost else ""
    degrees += f" in {plan.shard_groups} groups that share" if plan.shard_groups > 1 else ""
    return degrees + (f", experts on {plan.ep_degree}" if plan.ep_degree > 1 else "")


def _next(found: TrainerAnswer) -> str:
    least = found.behind_least
    if found.next_plan is None or found.behind is None:
        if least is None or not least:
            return ""
        return (
            "no other degrees have a plan"
            if math.isinf(least)
            else f"other degrees take {percent(least, 2)} longer at least"
        )
    words = f"{_degrees(found.next_plan)} takes {percent(found.behind, 2)} longer"
    is_near = least is not None and found.behind - least <= _NEAR
    if is_near:
        return words
    return f"{words}; others {percent(least, 2)} at least" if least else f"{words}; others may be nearer"


def _batch(found: TrainerAnswer) -> str:
    count = f"{found.microbatches} micro-batch{'es' if found.microbatches > 1 else ''}"
    each = "of unknown size" if found.samples is None else f"of {plural(found.samples, 'sample')}"
    tokens = "" if found.tokens is None else f" of {found.tokens:,} tokens"
    used = "" if found.devices == found.num_devices else f" (on {found.devices} of {found.num_devices} devices)"
    return f"{count} {each}{tokens} on each replica{used}"


def _proof(result: Result) -> str:
    if result.gap is not None and result.status.value == "optimal":
        return "proved, among all degrees, cuts and recomputations that it can run"
    left = "no bound" if result.gap is None else f"none is better by more than {percent(result.gap, 2)}"
    return f"not proved ({result.stop.value}): {left}"


def _rates(found: TrainerAnswer) -> str:
    known = []
    if (rate := found.tokens_per_s_per_device) is not None:
        known.append(f"{rate:,.{0 if rate >= 1000 else 1}f} tokens/s per device")
    elif found.samples_per_s is not None:
        known.append(f"{found.samples_per_s / found.num_devices:,.4g} samples/s per device")
    known.append(f"MFU {percent(found.mfu, 2)}" if found.mfu is not None else "MFU unknown: no operations or no peak")
    beside = (
        [] if found.measured is None else ["published runs: {:.2f} to {:.2f} of predictions".format(*found.measured)]
    )
    return "; ".join([", ".join(known), *filter(None, [*beside, found.rates])])


def _step(found: TrainerAnswer) -> str:
    factor, unit = unit_for(found.unit, found.step)
    hidden = f"; {short(found.hidden / factor)} more hidden" if found.hidden > _DUST * found.step else ""
    has_both = found.gradients > _DUST * found.step or hidden
    said = {"communication": f" (gradients {short(found.gradients / factor)}{hidden})" if has_both else ""}
    parts = " + ".join(
        f"{name} {short(part / factor)}{said.get(name, '')}"
        for name, part in found.parts.items()
        if part > _DUST * found.step or (said.get(name) and hidden)
    )
    return f"{short(found.step / factor, 4)} {unit} = {parts}"


def _memory(found: TrainerAnswer) -> str:
    factor, unit = unit_for("bytes", found.memory_limit)
    most, least = max(found.memory), min(found.memory)
    head = f"{most / factor:.3g} of {found.memory_limit / factor:.3g} {unit} at most"
    if len(found.memory) > _SHOWN_RANKS:
        return f"{head}, on rank {found.memory.index(most)}; {short_amount(least, 'bytes')} at least"
    return f"{head}; by rank {', '.join(f'{held / factor:.3g}' for held in found.memory)}"
