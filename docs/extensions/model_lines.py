"""The lines that build each group of a declarative model, found by building it, for the tables of its mathematics.

A table below ``### Rows of `METHOD` `` has a row for each group of constraints. Its last cell names the files that
build the group, and the site shows the lines there, with links to them (`sources`). They are those of the models of the
page's example and of its instances in ``variants.yaml``; a file that does not build the group ends the build.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import yaml

ROOT = Path(__file__).resolve().parents[2]
_ROOMS = str(ROOT / "formulations")

#: A part of a page: ``of`` or ``added by``, the methods, its text.
PART = re.compile(r"^### Rows (of|added by) ([^\n]*)\n(.*?)(?=^#|^<!--|\Z)", flags=re.MULTILINE | re.DOTALL)

#: A row: the group, its mathematics, the paper, where it is built.
ROW = re.compile(r"^\| `(\w+)` \| (\$[^|\n]*) \| ([^|\n]*) \| ([^|\n]*) \|$", flags=re.MULTILINE)


class Line(NamedTuple):
    """A line of a file, whose path begins at the repository's root."""

    path: str
    number: int


#: By kind (``variable`` or ``constraint``) and name of a group, the statements that build it.
Lines = Mapping[tuple[str, str], set[Line]]


@dataclass(frozen=True)
class Built:
    """A method's model of an instance: its groups, or why there is no model, and the lines that build them."""

    method: Any
    groups: tuple[Any, ...]
    refusal: str
    lines: Lines


def example(text: str, settings: str = "settings") -> tuple[Any, dict[str, Any]]:
    """The instance that a page's front matter names, and its settings of this name, or ``settings``."""
    front = yaml.safe_load(text.split("---\n")[1])
    return front["instance"], front.get(settings) or front.get("settings") or {}


def variants(text: str, family: str) -> list[tuple[Any, dict[str, Any]]]:
    """The instances of a page beside its example, each with its settings."""
    listed = yaml.safe_load((Path(__file__).parent / "variants.yaml").read_text()).get(family, [])
    return [(each.pop("instance", example(text)[0]), each) for each in listed]


def models(instance: Any, settings: dict[str, Any]) -> list[Built]:
    """The declarative models of an instance: a name of the catalog, or JSON."""
    return _models(yaml.safe_dump([instance, settings]))


@cache
def _models(declared: str) -> list[Built]:
    import planner
    from planner.files.load import family_of

    instance, settings = yaml.safe_load(declared)
    loaded = planner.load(instance, **settings)
    found = []
    for method in family_of(loaded).methods:
        if method.build is None or method.refusal(loaded) is not None:
            continue
        with watched() as lines:
            try:
                found.append(Built(method, planner.model(loaded, method.name).sizes().groups, "", lines))
            except planner.UsageError as error:  # its size is known once it is being built
                found.append(Built(method, (), str(error), lines))
    return found


@contextmanager
def watched() -> Iterator[Lines]:
    """The lines that name variables and constraints of CP-SAT and Pyomo from here on."""
    from ortools.sat.python import cp_model
    from pyomo.core.base.block import BlockData
    from pyomo.environ import Constraint, Var

    found: dict[tuple[str, str], set[Line]] = defaultdict(set)

    def note(kind: str, name: str) -> None:
        line = _naming(name.partition("[")[0])
        if line is not None:
            found[kind, name.partition("[")[0]].add(line)

    def naming(kind: str, made: Callable[..., Any]) -> Callable[..., Any]:
        def named(*arguments: Any, **others: Any) -> Any:
            note(kind, others.get("name", arguments[-1]))
            return made(*arguments, **others)

        return named

    def component(block: Any, name: str, added: Any) -> Any:
        for kind, of in (("variable", Var), ("constraint", Constraint)):
            if added.ctype is of:
                note(kind, name)
        return add_component(block, name, added)

    add_component = BlockData.add_component
    makers = dict.fromkeys(("new_bool_var", "new_int_var", "new_int_var_from_domain"), "variable")
    makers |= dict.fromkeys(("new_interval_var", "new_fixed_size_interval_var"), "constraint")
    with ExitStack() as patches:
        for name, kind in makers.items():
            made = naming(kind, getattr(cp_model.CpModel, name))
            patches.enter_context(mock.patch.object(cp_model.CpModel, name, made))
        named = naming("constraint", cp_model.Constraint.with_name)
        patches.enter_context(mock.patch.object(cp_model.Constraint, "with_name", named))
        patches.enter_context(mock.patch.object(BlockData, "add_component", component))
        yield found


def _naming(group: str) -> Line | None:
    """The innermost statement of a room that is being run and has the group's name in it, else the innermost."""
    frame, innermost = sys._getframe(2), None
    while frame is not None:
        if frame.f_code.co_filename.startswith(_ROOMS):
            line, has_name = _statement(frame.f_code.co_filename, frame.f_lineno, group)
            if has_name:
                return line
            innermost = innermost or line
        frame = frame.f_back  # type: ignore[assignment]
    return innermost


@cache
def _statement(path: str, number: int, group: str) -> tuple[Line, bool]:
    """The first line of the statement that a line belongs to, and whether the group's name is in it."""
    start, end = _statements(path).get(number, (number, number))
    text = "\n".join(Path(path).read_text().splitlines()[start - 1 : end])
    return Line(str(Path(path).relative_to(ROOT)), start), re.search(rf"\b{group}\b", text) is not None


@cache
def _statements(path: str) -> dict[int, tuple[int, int]]:
    """By line the first and the last line of the statement, if it has no others in it."""
    simple = [
        (node.lineno, node.end_lineno or node.lineno)
        for node in ast.walk(ast.parse(Path(path).read_text()))
        if isinstance(node, ast.stmt) and not hasattr(node, "body")
    ]
    return {number: span for span in simple for number in range(span[0], span[1] + 1)}


def label(path: str, family: str) -> str:
    """How a page of a family calls a file of models: by its name there, with the family's name before it elsewhere."""
    inside = path.removeprefix("formulations/").replace("/models/", "/")
    return inside.removeprefix(f"{family}/")


def linked(text: str, family: str) -> str:
    """A page with the lines in its tables; ``ValueError`` where a row names other files than those that build it."""
    built = [each for instance in (example(text, "models"), *variants(text, family)) for each in models(*instance)]
    defined = dict(re.findall(r"^\[([\w./]+)\]: (\S+)$", text, flags=re.MULTILINE))

    def part(found: re.Match[str]) -> str:
        methods = re.findall(r"`(.*?)`", found[2])

        def row(cells: re.Match[str]) -> str:
            lines = set().union(*(each.lines["constraint", cells[1]] for each in built if each.method.name in methods))
            files = sorted({label(line.path, family): f"../../{line.path}" for line in lines}.items())
            said = sorted((name, defined.get(name, "")) for name in re.findall(r"\[([\w./]+)\]", cells[4]))
            if not files or said != files:
                raise ValueError(f"{family}.md: row `{cells[1]}` of {found[2]} is {cells[4]!r}; expected {files}")
            return f"| `{cells[1]}` | {cells[2]} | {cells[3]} | {links(lines)} |"

        return found[0].replace(found[3], ROW.sub(row, found[3]))

    return PART.sub(part, text)


def links(lines: Iterable[Line]) -> str:
    """Links to the pages of source (`sources`) from the page of a problem."""
    return ", ".join(
        f'<a href="../sources/{line.path.removesuffix(".py")}.html#line-{line.number}" title="{line.path}">'
        f"<code>{line.path.rpartition('/')[2]}:{line.number}</code></a>"
        for line in sorted(lines)
    )
