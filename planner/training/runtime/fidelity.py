"""How far a plan was from a run of it, term by term: what `planner fidelity` shows. Nothing here needs torch."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from instances.errors import InstanceError

#: Bytes of all that a process has, where they were measured.
_MEMORY = ("peak_bytes", "memory_planned")
_LISTS = ("bytes_sent", "bytes_planned", "held_bytes", "held_planned", "measured", "simulated")
#: Of runs with tensor parallelism alone, and of all but old ones.
_COLLECTIVES, _GRADIENTS = ("collective_bytes", "collective_planned"), ("gradient_bytes", "gradient_planned")
#: Of runs in which replicas share the optimizer's states, and make a step.
_STATES = ("state_bytes", "state_planned")


@dataclass(frozen=True)
class Term:
    """A part of the model: what it predicts and what was measured, in ``unit``; ``ratio`` is measured to predicted."""

    term: str
    unit: str
    predicted: float
    measured: float

    @property
    def ratio(self) -> float | None:
        """``None`` where nothing was predicted."""
        return self.measured / self.predicted if self.predicted else None

    @property
    def error(self) -> float:
        """How wrong it is: the logarithm of the ratio without its sign; infinite where one of both is 0."""
        if self.predicted == self.measured:
            return 0.0
        return abs(math.log(self.measured / self.predicted)) if min(self.predicted, self.measured) > 0 else math.inf


@dataclass(frozen=True)
class Fidelity:
    """The terms of a run, and the name of the one that is most wrong; ``None``: all are right."""

    instance: str
    terms: tuple[Term, ...]
    worst: str | None

    def to_json(self) -> dict[str, Any]:
        """The object that ``planner fidelity --json`` prints."""
        rows = [{**vars(term), "ratio": term.ratio} for term in self.terms]
        return {"instance": self.instance, "terms": rows, "worst": self.worst}


def fidelity(run: Mapping[str, Any], where: str = "run") -> Fidelity:
    """Compare the terms of a run, as ``planner run --out`` writes it.

    ``forward`` and ``backward`` are seconds of all passes; ``transfer`` bytes sent; ``collectives``, where stages are
    tensor-parallel, bytes sent to sum tensors within replicas; ``gradients`` those sent to sum
    gradients over replicas and stages; ``memory`` the most bytes that a process holds for backward passes (of several
    stages the most of each, in sum); ``states``, where replicas share the optimizer's, the most that one holds of
    them; ``all memory`` all bytes of the process on a GPU that has most beside the planned; ``bubble`` the share of
    the iteration in which processes run no pass; ``waiting`` seconds of the iteration beyond a simulated one with the
    measured passes, which moves tensors in no time; ``iteration`` seconds of all. The last two follow from others and
    are never the worst.

    `InstanceError` if it is no such object.
    """
    _expect(run, where)
    measured, simulated = run["measured"], run["simulated"]
    processes = run["processes"]
    ends = [_end(simulated), _end(measured)]
    terms = [
        Term("forward", "s", _busy(simulated, "F"), _busy(measured, "F")),
        Term("backward", "s", _busy(simulated, "BW"), _busy(measured, "BW")),
        Term("transfer", "bytes", math.fsum(run["bytes_planned"]), math.fsum(run["bytes_sent"])),
        *_sums(run),
        Term("memory", "bytes", *(_most(run, name) for name in ("held_planned", "held_bytes"))),
        *([Term("states", "bytes", _most(run, _STATES[1]), _most(run, _STATES[0]))] if _STATES[0] in run else []),
        *_all_memory(run),
        Term(
            "bubble",
            "share",
            *(_idle(each, processes, end) for each, end in zip((simulated, measured), ends, strict=True)),
        ),
    ]
    worst = max(terms, key=lambda term: term.error)
    terms.append(Term("waiting", "s", 0.0, ends[1] - run["resimulated_s"]))
    terms.append(Term("iteration", "s", *ends))
    return Fidelity(str(run["instance"]), tuple(terms), worst.term if worst.error else None)


@dataclass(frozen=True)
class PlanTimes:
    """The iteration of a run: seconds that its plan predicts, and those that were measured."""

    run: str
    predicted_s: float
    measured_s: float

    @property
    def ratio(self) -> float:
        """Measured to predicted."""
        return self.measured_s / self.predicted_s


@dataclass(frozen=True)
class OrderFidelity:
    """How several plans of one instance were predicted, and how they ran on one device.

    ``spearman`` is the correlation of their ranks by predicted and by measured iteration: 1 if the order is the same;
    ``None`` where all are equal. Errors are of predictions relative to measurements, without their signs; ``regret`` is
    by how much the plan that is predicted to be the fastest was slower than the one that was.
    """

    instance: str
    device: str | None
    plans: tuple[PlanTimes, ...]
    spearman: float | None
    median_error: float
    worst_error: float
    regret: float

    def to_json(self) -> dict[str, Any]:
        """The object that ``planner fidelity --json`` prints for several runs."""
        rows = [{**vars(each), "ratio": each.ratio} for each in self.plans]
        figures = ("spearman", "median_error", "worst_error", "regret")
        head = {"instance": self.instance, "device": self.device, "plans": rows}
        return {**head, **{name: getattr(self, name) for name in figures}}


def order_fidelity(runs: Mapping[str, Mapping[str, Any]]) -> OrderFidelity:
    """Compare the order of plans that is predicted with the one that was measured.

    ``runs``: by a name of each, as ``planner run --out`` writes them; at least two.
    `InstanceError` if one is no such object, an iteration takes no time, or they are of several instances or devices.
    """
    plans, first = [], next(iter(runs.values()))
    for where, run in runs.items():
        _expect(run, where)
        for name in ("instance", "device"):
            if run.get(name) != first.get(name):
                raise InstanceError.at(where, name, run.get(name), f"{first.get(name)}, as of the other runs")
        plans.append(PlanTimes(where, _end(run["simulated"]), _end(run["measured"])))
        for name in ("predicted_s", "measured_s"):
            if not getattr(plans[-1], name) > 0:
                raise InstanceError.at(where, name, getattr(plans[-1], name), "a positive time of an iteration")
    predicted, measured = [each.predicted_s for each in plans], [each.measured_s for each in plans]
    errors = [abs(each.predicted_s / each.measured_s - 1) for each in plans]
    order = spearman(predicted, measured)
    regret = min(plans, key=lambda each: each.predicted_s).measured_s / min(measured) - 1
    known = None if math.isnan(order) else order
    return OrderFidelity(
        str(first["instance"]), first.get("device"), tuple(plans), known, median(errors), max(errors), regret
    )


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Rank correlation; ties get their mean rank. NaN if one of the two is constant."""
    ranks = [_ranks(values) for values in (first, second)]
    means = [sum(each) / len(each) for each in ranks]
    spread = [[rank - mean for rank in each] for each, mean in zip(ranks, means, strict=True)]
    norm = (sum(x * x for x in spread[0]) * sum(y * y for y in spread[1])) ** 0.5
    return sum(x * y for x, y in zip(*spread, strict=True)) / norm if norm else float("nan")


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) - 1) / 2 for value in values]


def _sums(run: Mapping[str, Any]) -> list[Term]:
    found = []
    for term, (measured, predicted) in (("collectives", _COLLECTIVES), ("gradients", _GRADIENTS)):
        if measured in run:
            found.append(Term(term, "bytes", math.fsum(run[predicted]), math.fsum(run[measured])))
    return found


def _most(run: Mapping[str, Any], name: str) -> float:
    """The most that a process has: rows say whose they are, or those of one are as far apart as there are processes."""
    count, rows = run["processes"], run.get("rows", [])
    found = dict.fromkeys(range(count), 0.0)
    for number, each in enumerate(run[name]):
        found[rows[number].get("process", number) if number < len(rows) else number % count] += each
    return max(found.values())


def _all_memory(run: Mapping[str, Any]) -> list[Term]:
    """The most bytes of a process on a GPU: of the process whose share of the planned ones is largest."""
    if _MEMORY[0] not in run:
        return []
    pairs = zip(run["memory_planned"], run["peak_bytes"], strict=True)
    planned, peak = max(pairs, key=lambda pair: pair[1] / pair[0] if pair[0] else math.inf)
    return [Term("all memory", "bytes", planned, peak)]


def _pairs_of(run: Mapping[str, Any]) -> list[str]:
    """The lists that some runs have, or should have beside the other one of a pair."""
    pairs = (_COLLECTIVES, _GRADIENTS, _STATES, _MEMORY)
    return [name for pair in pairs if any(each in run for each in pair) for name in pair]


def _end(passes: Sequence[Any]) -> float:
    return max((each[4] for each in passes), default=0.0)


def _busy(passes: Sequence[Any], kinds: str) -> float:
    return math.fsum(each[4] - each[3] for each in passes if each[1] in kinds)


def _idle(passes: Sequence[Any], processes: int, end: float) -> float:
    return max(0.0, 1 - _busy(passes, "FBW") / (processes * end)) if end else 0.0


def _expect(run: Mapping[str, Any], where: str) -> None:
    lists = (*_LISTS, *_pairs_of(run))
    for name in ("instance", "resimulated_s", "processes", *lists):
        if name not in run:
            raise InstanceError.missing(where, name, "a run, as planner run --out writes it")
    if not isinstance(run["resimulated_s"], int | float):
        raise InstanceError.at(where, "resimulated_s", run["resimulated_s"], "seconds")
    for name in lists:
        rows = run[name]
        if not isinstance(rows, list) or not rows:
            raise InstanceError.at(where, name, rows, "a list that is not empty")
        for number, row in enumerate(rows):
            if name in ("measured", "simulated"):
                is_right = (
                    isinstance(row, list)
                    and len(row) == 5
                    and row[1] in ("F", "B", "W")
                    and _numbers([row[0], *row[2:]])
                )
            else:
                is_right = _numbers([row])
            if not is_right:
                rule = "[row, F, B or W, index, start, end]" if isinstance(row, list) else "a number"
                raise InstanceError.at(where, f"{name}[{number}]", row, rule)
    _expect_whole(run, where)


def _expect_whole(run: Mapping[str, Any], where: str) -> None:
    """A number for each process (or each of its stages), and every simulated pass measured once: no list was cut."""
    processes, count = run["processes"], len(run["bytes_sent"])
    if not isinstance(processes, int) or processes < 1:
        raise InstanceError.at(where, "processes", processes, "a whole number from 1 on")
    if count % processes:
        raise InstanceError.at(where, "len(bytes_sent)", count, f"{processes}, one for each process, or a multiple")
    for name in ("bytes_planned", "held_bytes", "held_planned", *_pairs_of(run)):
        if len(run[name]) != count:
            raise InstanceError.at(where, f"len({name})", len(run[name]), f"{count}, as bytes_sent has")
    passes = {name: Counter(tuple(row[:3]) for row in run[name]) for name in ("measured", "simulated")}
    for name, other in (("measured", "simulated"), ("simulated", "measured")):
        more = passes[other] - passes[name]
        if more:
            process, kind, index = min(more)
            rule = f"{len(run[other])} passes, as in {other}, {kind}{index} of process {process} among them"
            raise InstanceError.at(where, f"len({name})", len(run[name]), rule)
    without = set(range(count)) - {process for process, _, _ in passes["measured"]}
    if without:
        raise InstanceError.at(where, "measured", f"without process {min(without)}", "passes of every process")


def _numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(each, int | float) and math.isfinite(each) for each in values)
