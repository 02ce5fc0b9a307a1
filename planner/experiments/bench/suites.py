"""Suites of benchmark cases: built in (`SUITES`), or a file of JSON lines."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from instances.errors import InstanceError
from instances.files import read_lines
from planner.experiments.validation.sources import members
from planner.files.load import catalog, published_file
from planner.files.read import parse_json
from planner.files.write import as_json
from planner.plugins.method_names import AUTO
from planner.process.errors import UsageError

#: How Piper's published inputs are declared where its released program is compared.
RELEASED = {"cost_model": "released", "bandwidth": "25GiB/s"}
#: Stands for every method that supports the instance and whose predicted effort is within bounds.
EVERY = "*"


@dataclass(frozen=True)
class Case:
    """An instance, how it is declared, and the methods to measure.

    ``reference_s`` is another program's CPU time; ``plans`` are files of plans by the names of their rows.
    """

    instance: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    methods: tuple[str, ...] = (AUTO,)
    reference_s: float | None = None
    plans: Mapping[str, str] = field(default_factory=dict)


def cases(
    instances: Sequence[str],
    suite: str | None,
    methods: Sequence[str] | None,
    settings: Mapping[str, Any],
    inputs: str | None,
    plans: Mapping[str, str] = MappingProxyType({}),
    count: int | None = None,
    seed: int = 0,
) -> list[Case]:
    """The requested cases: every instance of the sources with the same settings, and those of the suite.

    ``instances``, ``count`` and ``seed`` are as for `planner.experiments.validation.sources.members`.

    ``suite`` is names of `SUITES` with commas, or a file of JSON lines ``{"instance", "settings", "methods"}``;
    ``methods``, if given, replace the suite's own; ``plans`` are entered in all of them.
    """
    given = {name: value for name, value in settings.items() if value is not None and value is not False}
    drawn = members(instances, count, seed, names_only=True)
    found = [Case(each.name, {**given, **each.overrides}, tuple(methods or (AUTO,))) for each in drawn]
    if suite is not None:
        built_in = set(names := suite.split(",")) <= SUITES.keys()
        of_suite = (case for name in names for case in SUITES[name](inputs)) if built_in else _read_suite(suite)
        found += [
            replace(case, settings={**case.settings, **given}, methods=tuple(methods or case.methods))
            for case in of_suite
        ]
    if not found:
        raise UsageError.at("bench", "nothing", "an INSTANCE or --suite")
    distinct = {as_json([case.instance, case.settings, case.methods]): case for case in found}
    return [replace(case, plans=plans) for case in distinct.values()]


def piper_suite(inputs: str | None) -> list[Case]:
    """Piper's published inputs at the sizes where speed is judged, with the released program's CPU time if known."""
    released = _released_times(inputs)
    return [replace(each, reference_s=released.get(_key(each.instance, each.settings))) for each in _own("piper")]


def whole_catalog(_inputs: str | None) -> list[Case]:
    """Every instance of the catalog as it is, with every method that fits it: no published inputs, no download.

    And some for the shortest iteration, which is no instance's own objective.
    """
    batch = {"problem": "flushed_partitioning", "memory": "80GB", "bandwidth": "100GB/s", "objective": "iteration"}
    return [
        *(Case(name, methods=(EVERY,)) for name in catalog()),
        Case("chain8-flushed", {"objective": "iteration"}, (EVERY,)),
        *(Case("gpt", {**batch, "devices": k, "microbatches": m}, ("best-first",)) for k, m in ((16, 128), (64, 64))),
        *(
            Case(name, {"devices": 8, "objective": "iteration"}, ("branch-and-bound", "graphpipe-plus"))
            for name in ("mmt-2", "candle-uno")
        ),
    ]


def models_suite(_inputs: str | None) -> list[Case]:
    """Declarative methods at the sizes where their strength is judged: root bounds, and what is proved in a minute."""
    return _own("models")


def scale_suite(_inputs: str | None) -> list[Case]:
    """Layers times devices times branches for the exact search of pipelines: effort grows without a step.

    Devices of a chain hold three times what its layers keep (some 13 GB each), and 80 GB at least.
    """
    chains = [
        Case(
            "bert", {"layers": n, "devices": k, "hidden_size": 8192, "memory": f"{max(80, 39 * n // k)}GB"}, ("exact",)
        )
        for n in (24, 64, 128, 256, 512, 1000)
        for k in (8, 64, 512, 4096, 16384)
    ]
    graphs = [
        Case(
            f"random-layers:layers={n},branches={branches}",
            {"devices": k, "microbatches": 4 * k, "memory": "32GiB"},
            ("exact",),
        )
        for branches, n, most in ((2, 24, 4096), (2, 64, 512), (2, 128, 64), (3, 24, 512), (3, 48, 64), (4, 24, 512))
        for k in (8, 64, 512, 4096)
        if k <= most
    ]
    return [*chains, *graphs]


#: The suites that are built in: what makes their cases, given the folder of published inputs.
SUITES: Mapping[str, Callable[[str | None], list[Case]]] = {
    "all": whole_catalog,
    "models": models_suite,
    "piper": piper_suite,
    "scale": scale_suite,
}


def _own(name: str) -> list[Case]:
    return list(_read_suite(str(Path(__file__).with_name(f"{name}.jsonl"))))


def _read_suite(path: str) -> Iterator[Case]:
    for count, line in enumerate(read_lines(Path(path)).splitlines(), start=1):
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
    rows = [json.loads(line) for line in read_lines(path).splitlines() if line.strip()]
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
