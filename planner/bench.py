"""Measure: cases x methods x repeats -> rows, as a table and as JSON lines."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from instances.errors import InstanceError
from planner.dispatch import AUTO
from planner.errors import UsageError
from planner.loading import load, published_file
from planner.options import split
from planner.reading import parse_json, read_text
from planner.report import console, number, percent
from planner.run import solve
from planner.versions import versions
from solvers.outcome import Limits

_RELEASED = {"cost_model": "released", "bandwidth": "25GiB/s"}


@dataclass(frozen=True)
class Case:
    """An instance, how it is declared, and the methods to measure; ``reference_s`` is another program's CPU time."""

    instance: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    methods: tuple[str, ...] = (AUTO,)
    reference_s: float | None = None


@dataclass(frozen=True)
class Row:
    """One method on one case: the median of ``all_seconds``, and the outcome of the last run.

    ``compile_seconds`` is the most that any run spent on compiling or loading kernels (not in ``seconds``);
    ``speedup`` is ``reference_s / seconds``.
    """

    instance: str
    settings: Mapping[str, Any]
    method: str
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
    signal: int | None = None

    @property
    def speedup(self) -> float | None:
        """How many times less time than the reference."""
        return self.reference_s / self.seconds if self.reference_s and self.seconds else None

    def to_json(self) -> dict[str, Any]:
        """The JSON line, with versions so that it can be compared later."""
        shown = {name: value for name, value in vars(self).items() if name != "signal"}
        return {**shown, "speedup": self.speedup, "versions": versions()}


def cases(
    instances: Sequence[str],
    suite: str | None,
    methods: Sequence[str] | None,
    settings: Mapping[str, Any],
    inputs: str | None,
) -> list[Case]:
    """The cases asked for: every instance with the same settings, and those of the suite.

    ``suite`` is ``"piper"`` or a file of JSON lines ``{"instance", "settings", "methods"}``; ``methods``, if given,
    replace the suite's own.
    """
    given = {name: value for name, value in settings.items() if value is not None and value is not False}
    found = [Case(name, given, tuple(methods or (AUTO,))) for name in instances]
    if suite is not None:
        of_suite = piper_suite(inputs) if suite == "piper" else list(_read_suite(suite))
        found += [
            replace(case, settings={**case.settings, **given}, methods=tuple(methods or case.methods))
            for case in of_suite
        ]
    if not found:
        raise UsageError.at("bench", "nothing", "an INSTANCE or --suite")
    return found


def piper_suite(inputs: str | None) -> list[Case]:
    """Piper's published inputs at the sizes where speed is judged, with the released program's CPU time if known."""
    both, exact = ("exact", "piper"), ("exact",)
    bert, resnet, gnmt = "bert32a100.json", "resnet.json", "gnmt.json"
    sized = [
        (bert, {"devices": 64, "memory": "8GiB", "microbatches": 512}, both),
        (bert, {"devices": 512, "memory": "8GiB", "microbatches": 1920}, both),
        (bert, {"devices": 2048, "memory": "8GiB", "microbatches": 1920}, exact),
        (bert, {"devices": 2048, "memory": "8GiB", "microbatches": 512, "layers": 64}, exact),
        (bert, {"devices": 4096, "memory": "8GiB", "microbatches": 2048, "layers": 64}, exact),
        (bert, {"devices": 4096, "memory": "8GiB", "microbatches": 2048, "layers": 96}, exact),
        (resnet, {"devices": 32, "memory": "2GiB", "microbatches": 7680}, both),
        (resnet, {"devices": 128, "memory": "1GiB", "microbatches": 7680}, both),
        (resnet, {"devices": 128, "memory": "2GiB", "microbatches": 7680}, both),
        (gnmt, {"devices": 8, "memory": "1.2GiB"}, exact),
        (gnmt, {"devices": 2, "memory": "2.5GiB"}, exact),
    ]
    released = _released_times(inputs)
    return [Case(name, {**_RELEASED, **size}, methods, released.get(_key(name, size))) for name, size, methods in sized]


def measure(found: Sequence[Case], limits: Limits, repeats: int, inputs: str | None) -> Iterator[Row]:
    """Rows, one after the other; a signal ends the measurement with the row it interrupted."""
    for case in found:
        overrides, options = split(case.settings)
        instance = load(case.instance, inputs=inputs, **overrides)
        for method in case.methods:
            row = _row(case, instance, method, options, limits, repeats)
            yield row
            if row.signal:
                return


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
            f"{name}={value}" for name, value in row.settings.items() if (name, value) not in _RELEASED.items()
        )
        cells = [row.instance, settings, row.method, f"{row.seconds:.4g}", number(row.objective), number(row.bound)]
        more = [number(row.reference_s), "-" if row.speedup is None else f"{row.speedup:.0f} x"] if referred else []
        table.add_row(*cells, percent(row.gap), row.status, *more)
    console().print(table)


def _row(case: Case, instance: Any, method: str, options: Mapping[str, Any], limits: Limits, repeats: int) -> Row:
    results = []
    for _ in range(repeats):
        results.append(solve(instance, method=method, limits=limits, options=options))
        if results[-1].signal:
            break
    last = results[-1]
    times = tuple(result.seconds for result in results)
    return Row(
        instance=last.instance,
        settings=case.settings,
        method=last.method,
        seconds=statistics.median(times),
        all_seconds=times,
        compile_seconds=max(result.stats["compile_seconds"] for result in results),
        objective=last.objective,
        bound=last.bound,
        gap=last.gap,
        status=last.status.value,
        stop=last.stop.value,
        unit=last.unit,
        reference_s=case.reference_s,
        signal=last.signal,
    )


def _read_suite(path: str) -> Iterator[Case]:
    for count, line in enumerate(read_text(Path(path)).splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{path}: line {count}"
        content = parse_json(line, where)
        if not isinstance(content, dict) or not isinstance(content.get("instance"), str):
            raise InstanceError.at(where, "case", line, 'an object with "instance"')
        settings, methods = content.get("settings", {}), content.get("methods", [AUTO])
        if not isinstance(settings, dict):
            raise InstanceError.at(where, "settings", settings, "an object")
        if not isinstance(methods, list) or not methods or not all(isinstance(name, str) for name in methods):
            raise InstanceError.at(where, "methods", methods, "a list of names")
        yield Case(
            content["instance"], {name.replace("-", "_"): value for name, value in settings.items()}, tuple(methods)
        )


def _released_times(inputs: str | None) -> dict[tuple[Any, ...], float]:
    """CPU seconds of the released program by size, where the published measurements are to be had."""
    path = published_file("released_results.jsonl", inputs)
    if path is None:
        return {}
    rows = [json.loads(line) for line in read_text(path).splitlines() if line.strip()]
    return {
        (
            f"{row['instance']}.json",
            row["num_devices"],
            f"{row['memory_gib']}GiB",
            row["num_microbatches"],
            row["transformer_layers"] or 32,
        ): row["released_cpu_s"]
        for row in rows
        if row["mode"] == "full"
    }


def _key(name: str, size: Mapping[str, Any]) -> tuple[Any, ...]:
    return (name, size["devices"], size["memory"], size.get("microbatches"), size.get("layers", 32))
