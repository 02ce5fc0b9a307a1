"""Measure: cases x methods x seeds -> rows, as a table and as JSON lines."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from planner.backends import chosen, examined, fitted
from planner.bench.suites import EVERY, RELEASED, Case
from planner.comparison import sane
from planner.dispatch import named, pick
from planner.inputs.choices import split
from planner.inputs.files import plain
from planner.inputs.loading import family_of, load
from planner.run import solve
from planner.show.tables import as_json, number, percent
from planner.show.terminal import console
from planner.signals import noted
from planner.versions import machine, today, versions
from solvers.outcome import Limits


@dataclass(frozen=True)
class Row:
    """One method on one case with one seed: the median of ``all_seconds``, and the outcome of the last run.

    ``case`` is the file or catalog name that was named, ``instance`` what the instance is called;
    ``compile_seconds`` is the most that any run spent on compiling or loading kernels (not in ``seconds``);
    ``speedup`` is ``reference_s / seconds``; ``proved_by``: by whose means (`Result`), and ``solver``: the solver and
    its options where they were chosen, both absent in older rows.
    """

    case: str
    instance: str
    settings: Mapping[str, Any]
    method: str
    seed: int
    threads: int
    time_limit_s: float | None
    seconds: float
    all_seconds: tuple[float, ...]
    compile_seconds: float
    objective: float | None
    bound: float | None
    gap: float | None
    status: str
    stop: str
    unit: str
    reference_s: float | None
    date: str = ""
    machine: str = ""
    versions: Mapping[str, str] | None = None
    proved_by: str | None = None
    solver: Mapping[str, Any] | None = None
    signal: int | None = None

    @property
    def key(self) -> str:
        """What was measured, whatever came of it: two rows with one key can be compared."""
        own = [self.case, self.settings, self.method, self.seed, self.threads, self.time_limit_s]
        return as_json(own + ([self.solver] if self.solver else []))

    @property
    def speedup(self) -> float | None:
        """How many times less time than the reference."""
        return self.reference_s / self.seconds if self.reference_s and self.seconds else None

    def to_json(self) -> dict[str, Any]:
        """The JSON line, with date, machine and versions so that it can be compared later."""
        shown = {name: value for name, value in vars(self).items() if name != "signal"}
        return {**shown, "speedup": self.speedup}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Row:
        """The row of a JSON line; ``KeyError`` if a field is missing, ``TypeError`` if it is of another type."""
        late = ("signal", *_LATE)
        known = {each.name: content[each.name] for each in fields(cls) if each.name not in late}
        known |= {name: content.get(name) for name in _LATE}
        for name, value in known.items():
            _refuse_other_type(name, value)
        return cls(**{**known, "all_seconds": tuple(known["all_seconds"])})


#: Fields that older rows do not have.
_LATE = ("proved_by", "solver")
_NUMBER = (int, float)
#: The types of the fields that are not texts.
_TYPES: Mapping[str, tuple[type, ...]] = {
    "settings": (dict,),
    "seed": (int,),
    "threads": (int,),
    "seconds": _NUMBER,
    "all_seconds": (list,),
    "compile_seconds": _NUMBER,
    **dict.fromkeys(("time_limit_s", "objective", "bound", "gap", "reference_s"), (*_NUMBER, type(None))),
    "versions": (dict, type(None)),
    "proved_by": (str, type(None)),
    "solver": (dict, type(None)),
}


def _refuse_other_type(name: str, value: Any) -> None:
    if not isinstance(value, _TYPES.get(name, (str,))) or isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}")


def measure(
    found: Sequence[Case],
    limits: Limits,
    repeats: int,
    inputs: str | None,
    seeds: Sequence[int] | None = None,
    known: Collection[str] = (),
) -> Iterator[Row]:
    """Rows, one after the other; a signal ends the measurement with the row it interrupted.

    Parameters
    ----------
    seeds
        Every case is measured with each of them; default: the one of ``limits``.
    known
        Keys of rows that are there already and are not measured again.
    """
    for case in found:
        if noted() is not None:  # before the instance is read
            return
        overrides, options = split(case.settings)
        instance = load(case.instance, inputs=inputs, **overrides)
        methods = [named(family_of(instance), name) for name in _methods(case, instance, limits)]
        examined(methods, limits)
        for method in methods:
            for seed in seeds or (limits.seed,):
                own = replace(fitted(method, limits), seed=seed)
                planned = _Planned(replace(case, methods=(method.name,)), instance, options, own)
                if planned.key in known:
                    continue
                row = planned.row(repeats)
                yield row
                if row.signal:
                    return


@dataclass(frozen=True)
class _Planned:
    """A case with one method and one seed, not measured yet."""

    case: Case
    instance: Any
    options: Mapping[str, Any]
    limits: Limits

    @property
    def key(self) -> str:
        """As `Row.key`."""
        case, limits = self.case, self.limits
        settings = plain(case.settings)
        own = [case.instance, settings, case.methods[0], limits.seed, limits.threads, limits.time_s]
        return as_json(own + ([chosen(limits)] if chosen(limits) else []))

    def row(self, repeats: int) -> Row:
        """Measure it."""
        results = []
        for _ in range(repeats):
            method = self.case.methods[0]
            results.append(solve(self.instance, method=method, limits=self.limits, options=self.options))
            if results[-1].signal:
                break
        last = results[-1]
        times = tuple(result.seconds for result in results)
        compiling: list[Any] = [result.stats["compile_seconds"] for result in results]
        return Row(
            case=self.case.instance,
            instance=last.instance,
            settings=self.case.settings,
            method=last.method,
            seed=self.limits.seed,
            threads=self.limits.threads,
            time_limit_s=self.limits.time_s,
            seconds=statistics.median(times),
            all_seconds=times,
            compile_seconds=max(compiling),
            objective=last.objective,
            bound=last.bound,
            gap=last.gap,
            status=last.status.value,
            stop=last.stop.value,
            unit=last.unit,
            reference_s=self.case.reference_s,
            date=today(),
            machine=machine(),
            versions=versions(),
            proved_by=None if last.proved_by is None else str(last.proved_by),
            solver=chosen(self.limits) or None,
            signal=last.signal,
        )


def _methods(case: Case, instance: Any, limits: Limits) -> list[str]:
    """The case's methods by name, `EVERY` spelled out and ``auto`` resolved, so that a row can be found again."""
    family = family_of(instance)
    found: list[str] = []
    for name in case.methods:
        if name == EVERY:
            found += [method.name for method in sane(family, instance)]
        else:
            found.append(pick(family, instance, limits, name, False)[0].name)
    return list(dict.fromkeys(found))


def show_rows(rows: Sequence[Row]) -> None:
    """Print the table."""
    from rich.table import Table

    table = Table("instance", "settings", "method", "seconds", "objective", "bound", "gap", "status", box=None)
    referred = any(row.reference_s for row in rows)
    if referred:
        table.add_column("reference s")
        table.add_column("speed-up")
    for row in rows:
        settings = " ".join(
            f"{name}={value}" for name, value in row.settings.items() if (name, value) not in RELEASED.items()
        )
        cells = [row.instance, settings, row.method, f"{row.seconds:.4g}", number(row.objective), number(row.bound)]
        more = [number(row.reference_s), "-" if row.speedup is None else f"{row.speedup:.0f} x"] if referred else []
        table.add_row(*cells, percent(row.gap), row.status, *more)
    console().print(table)
