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
#: Machines of two networks, for hierarchical partitioning.
MACHINES = {
    "problem": "hierarchical_partitioning",
    "devices_per_machine": 8,
    "num_machines": 8,
    "inner_bandwidth": "300GB/s",
    "outer_bandwidth": "25GB/s",
}
FEW_MACHINES = {**MACHINES, "devices_per_machine": 4, "num_machines": 2}
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

    ``suite`` is a name of `SUITES` or a file of JSON lines ``{"instance", "settings", "methods"}``; ``methods``, if
    given, replace the suite's own; ``plans`` are entered in all of them.
    """
    given = {name: value for name, value in settings.items() if value is not None and value is not False}
    drawn = members(instances, count, seed, names_only=True)
    found = [Case(each.name, {**given, **each.overrides}, tuple(methods or (AUTO,))) for each in drawn]
    if suite is not None:
        of_suite = SUITES[suite](inputs) if suite in SUITES else list(_read_suite(suite))
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
    return [Case(name, {**RELEASED, **size}, methods, released.get(_key(name, size))) for name, size, methods in sized]


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
    bert = {"layers": 32, "memory": "8GiB"}
    flushed = {"problem": "flushed_partitioning", "objective": "formula"}
    return [
        Case("bert32", {"layers": 8, "devices": 8}, ("cpsat",)),
        Case("bert32", {"layers": 16, "devices": 16}, ("cpsat", "milp")),
        *(Case("bert32", {"layers": n, "devices": 8}, ("milp",)) for n in (2, 4, 8, 12)),
        *(Case("bert32", {**bert, "first": n, "devices": k}, ("cpsat", "milp")) for n, k in ((12, 8), (16, 16))),
        Case("bert32", {"layers": 32, "devices": 64}, ("cpsat-columns", "milp-columns")),
        *(Case("bert32", {**bert, "devices": k}, ("cpsat-columns", "milp-columns")) for k in (32, 64)),
        Case("bert32", {**bert, "devices": 512, "microbatches": 1920}, ("cpsat-columns", "milp-columns")),
        Case("layers", {"layers": 100, "stages": 16}, ("cpsat", "milp")),
        Case("layers", {"layers": 400, "stages": 64}, ("cpsat", "milp")),
        *(Case(name, {"devices": 8}, ("cpsat", "milp-columns")) for name in ("mmt", "dlrm", "candle-uno")),
        *(
            Case(name, {"stages": 4, "replicas": r, "objective": "full"}, ("cpsat", "milp"))
            for name, replicas in (("dgx1", (2, 4, 8)), ("torus2d", (2, 4)))
            for r in replicas
        ),
        *(Case("chain8-flushed", {"devices": k}, ("cpsat", "cpsat-columns", "milp-columns")) for k in (4, 8)),
        *(
            Case("bert32", {**flushed, "layers": n, "devices": k}, methods)
            for n, k, methods in (
                (4, 8, ("cpsat", "milp")),
                (8, 8, ("cpsat-columns", "milp-columns")),
                (16, 16, ("cpsat-columns", "milp-columns")),
            )
        ),
        *(
            Case("bert32", {**bert, **flushed, "first": n, "devices": n}, methods)
            for n, methods in ((8, ("milp", "milp-columns")), (16, ("cpsat-columns", "milp-columns")))
        ),
        Case("chain8-machines", {}, ("cpsat", "cpsat-columns", "milp-columns")),
        Case("bert32", {**FEW_MACHINES, "layers": 8}, ("cpsat", "cpsat-columns", "milp-columns")),
        Case("bert32", {**FEW_MACHINES, "layers": 16}, ("cpsat", "cpsat-columns", "milp-columns")),
        *(Case("bert32", {**bert, **MACHINES, "first": n}, ("cpsat-columns", "milp-columns")) for n in (16, 32)),
        Case("bert32", {**MACHINES, "layers": 32}, ("cpsat-columns", "milp-columns")),
        Case("placement", {}, ("joint", "milp")),
        Case("mesh", {}, ("cpsat", "milp")),
        Case("mesh", {"rows": 8, "columns": 8, "tp_degree": 4, "ordered": True}, ("cpsat", "milp")),
        *(Case(name, {}, ("cpsat", "milp")) for name in ("schedule-chain", "schedule-figure-5")),
        *(Case("schedule", {"stages": 12, "minibatch": b}, ("cpsat", "milp")) for b in (8, 16, 32)),
        *(Case(name, {}, ("cpsat", "milp")) for name in ("amp-homogeneous", "amp-het-cluster", "amp-het-model")),
    ]


def scale_suite(_inputs: str | None) -> list[Case]:
    """Layers times devices for the exact search of pipelines: effort grows without a step (two minutes on one core)."""
    layers, devices = (24, 64, 128, 256, 384, 512), (64, 256, 1024, 4096)
    sizes = [{"layers": n, "devices": k, "hidden_size": 8192} for n in layers for k in devices]
    return [Case("bert", size, ("exact",)) for size in sizes]


#: The suites that are built in: what makes their cases, given the folder of published inputs.
SUITES: Mapping[str, Callable[[str | None], list[Case]]] = {
    "all": whole_catalog,
    "models": models_suite,
    "piper": piper_suite,
    "scale": scale_suite,
}


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
