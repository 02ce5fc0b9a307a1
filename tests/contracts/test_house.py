"""The house stays small: ``house.toml`` limits rooms, floors and arrows of its folders, and nothing is circular.

A room is a file or a folder, an arrow an import from one room to another (those for typing and inside functions count),
a floor stands on all that its rooms import. A package's ``__init__.py`` is no room.
"""

import dataclasses
import re
import tomllib
from functools import cache
from pathlib import Path

import grimp
import networkx as nx
import pytest
from paths import ROOT, of_a_checkout

from formulations.contract.family import Family
from planner.cli.app import main

pytestmark = of_a_checkout

PACKAGES = ("planner", "formulations", "solvers", "instances")
LIMITS = tomllib.loads(Path(__file__).with_name("house.toml").read_text())


@cache
def imports() -> nx.DiGraph:
    """Modules by their dotted names, and which of them import which."""
    found = grimp.build_graph(*PACKAGES, cache_dir=None)
    modules = [name for name in found.modules if not (ROOT / name.replace(".", "/")).is_dir()]
    graph = nx.DiGraph((name, other) for name in modules for other in found.find_modules_directly_imported_by(name))
    graph.add_nodes_from(modules)
    return graph.subgraph(modules)


def rooms_of(folder: str) -> nx.DiGraph:
    """The rooms of a folder, and which of them import which."""
    prefix = folder.replace("/", ".") + "."
    graph = nx.DiGraph()
    for name in imports():
        if name.startswith(prefix):
            graph.add_node(name.removeprefix(prefix).split(".")[0])
    for one, other in imports().edges:
        if one.startswith(prefix) and other.startswith(prefix):
            ends = [name.removeprefix(prefix).split(".")[0] for name in (one, other)]
            graph.add_edges_from([ends] if ends[0] != ends[1] else [])
    return graph


def test_no_modules_import_each_other() -> None:
    circles = [sorted(circle) for circle in nx.strongly_connected_components(imports()) if len(circle) > 1]
    assert circles == []


def test_folders_keep_their_limits() -> None:
    """All of them in one test: the modules are parsed once."""
    over = []
    for folder, most in LIMITS["folders"].items():
        graph = rooms_of(folder)
        assert nx.is_directed_acyclic_graph(graph), list(nx.simple_cycles(graph))[:3]
        found = {
            "rooms": len(graph),
            "floors": nx.dag_longest_path_length(graph) + 1,
            "arrows": graph.number_of_edges(),
        }
        over += [
            f"{folder}: {count} {what}; at most {most[what]}" for what, count in found.items() if count > most[what]
        ]
    assert not over


def test_all_of_it_keeps_its_limits(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    texts = {path: path.read_text() for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    apart = [ROOT / "planner" / name for name in ("training", "reproduction")]
    assert main(["--help"]) == 0
    page = capsys.readouterr().out.splitlines()
    found = {
        "lines": sum(
            text.count("\n") for path, text in texts.items() if not any(path.is_relative_to(to) for to in apart)
        ),
        "family_fields": len(dataclasses.fields(Family)),
        "lazy_names": sum(text.count("lazy(") for text in texts.values()),
        "help_rows": len(page),
        "tests_lines": sum(path.read_text().count("\n") for path in (ROOT / "tests").rglob("*.py")),
    }
    over = {
        what: f"{count}; at most {LIMITS['most'][what]}"
        for what, count in found.items()
        if count > LIMITS["most"][what]
    }
    assert not over
    assert max(map(len, page)) <= 80


def test_every_step_of_the_checks_has_a_budget() -> None:
    readme = (ROOT / "README.md").read_text()
    plain, torch = (
        re.findall(rf"^{start}.*$", readme, re.M) for start in ("python3.11 -m venv .venv-test", r"\.venv-test/bin/pip")
    )
    names = [{Path(step.split()[0]).name for step in lines[0].split(" && ")} for lines in (plain, torch)]
    assert LIMITS["seconds"].keys() == names[0] | {f"torch {name}" for name in names[1]}
