"""How far a plan was from a run of it, term by term: what `planner fidelity` shows. Nothing here needs torch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from instances.errors import InstanceError

_LISTS = ("bytes_sent", "bytes_planned", "held_bytes", "held_planned", "measured", "simulated")
#: Of runs with tensor parallelism alone, and of all but old ones.
_COLLECTIVES, _GRADIENTS = ("collective_bytes", "collective_planned"), ("gradient_bytes", "gradient_planned")


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
    gradients over replicas and stages; ``memory`` the most bytes that a
    process holds for backward passes; ``bubble`` the share of the iteration in which processes run no pass; ``waiting``
    seconds of the iteration beyond a simulated one with the measured passes, which moves tensors in no time;
    ``iteration`` seconds of all. The last two follow from others and are never the worst.

    Raises
    ------
    InstanceError
        If it is no such object.
    """
    _expect(run, where)
    measured, simulated = run["measured"], run["simulated"]
    processes = len(run["bytes_sent"])
    ends = [_end(simulated), _end(measured)]
    terms = [
        Term("forward", "s", _busy(simulated, "F"), _busy(measured, "F")),
        Term("backward", "s", _busy(simulated, "B"), _busy(measured, "B")),
        Term("transfer", "bytes", math.fsum(run["bytes_planned"]), math.fsum(run["bytes_sent"])),
        *_sums(run),
        Term("memory", "bytes", max(run["held_planned"]), max(run["held_bytes"])),
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


def _sums(run: Mapping[str, Any]) -> list[Term]:
    found = []
    for term, (measured, predicted) in (("collectives", _COLLECTIVES), ("gradients", _GRADIENTS)):
        if measured in run:
            found.append(Term(term, "bytes", math.fsum(run[predicted]), math.fsum(run[measured])))
    return found


def _sums_of(run: Mapping[str, Any]) -> list[str]:
    """The lists of sums that a run has, or should have beside the other one of a pair."""
    return [name for pair in (_COLLECTIVES, _GRADIENTS) if any(each in run for each in pair) for name in pair]


def _end(passes: Sequence[Any]) -> float:
    return max((each[4] for each in passes), default=0.0)


def _busy(passes: Sequence[Any], kinds: str) -> float:
    return math.fsum(each[4] - each[3] for each in passes if each[1] in kinds)


def _idle(passes: Sequence[Any], processes: int, end: float) -> float:
    return max(0.0, 1 - _busy(passes, "FB") / (processes * end)) if end else 0.0


def _expect(run: Mapping[str, Any], where: str) -> None:
    lists = (*_LISTS, *_sums_of(run))
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
                    isinstance(row, list) and len(row) == 5 and row[1] in ("F", "B") and _numbers([row[0], *row[2:]])
                )
            else:
                is_right = _numbers([row])
            if not is_right:
                rule = "[process, F or B, index, start, end]" if isinstance(row, list) else "a number"
                raise InstanceError.at(where, f"{name}[{number}]", row, rule)
    _expect_whole(run, where)


def _expect_whole(run: Mapping[str, Any], where: str) -> None:
    """A number for each process, and every simulated pass measured once: no list was cut."""
    count = run["processes"]
    if not isinstance(count, int):
        raise InstanceError.at(where, "processes", count, "a whole number")
    for name in ("bytes_sent", "bytes_planned", "held_bytes", "held_planned", *_sums_of(run)):
        if len(run[name]) != count:
            raise InstanceError.at(where, f"len({name})", len(run[name]), f"{count}, one for each process")
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
