"""Show a model: how large it is, and a line for each group of its variables and constraints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.show.tables import number, with_unit
from planner.show.terminal import bold, console


def show_model(found: Mapping[str, Any]) -> None:
    """Print what ``planner model --json`` does (docs/interface.md)."""
    from rich.table import Table

    out = console()
    counts = found["variables"]
    kinds = ", ".join(f"{counts[kind]} {kind}" for kind in ("binary", "integer", "continuous") if counts[kind])
    out.print(bold(found["instance"]), f" {found['problem']}, {found['method']}")
    facts = Table.grid(padding=(0, 2))
    facts.add_row("variables", f"{counts['total']} ({kinds})" if counts["total"] else "0")
    facts.add_row("constraints", f"{found['constraints']}, {found['nonzeros']} non-zeros ({_density(found)} of all)")
    for name, label in (("matrix", "coefficients"), ("objective", "of the objective"), ("sides", "right-hand sides")):
        facts.add_row(label, _magnitudes(found["coefficients"][name]))
    for requirement in found["requirements"]:
        facts.add_row("required", requirement)
    if "root_bound" in found:
        facts.add_row("root bound", f"{with_unit(found['root_bound'], found['unit'])}{_ending(found)}")
    for path in found.get("files", ()):
        facts.add_row("written", path)
    out.print(facts)
    groups = Table("group", "kind", "count", "says", box=None)
    for group in found["groups"]:
        says = f"{group['says']} ({group['source']})" if group["source"] else group["says"]
        groups.add_row(group["name"], group["kind"], str(group["count"]), says)
    out.print(groups)


def _ending(found: Mapping[str, Any]) -> str:
    said = "infeasible" if found["root_infeasible"] else found["root_reason"]
    return f" {said}".rstrip() + f" ({number(found['root_seconds'])} s, {found['fractional']} fractional)"


def _density(found: Mapping[str, Any]) -> str:
    cells = found["variables"]["total"] * found["constraints"]
    return f"{found['nonzeros'] / cells:.2%}" if cells else "0 %"


def _magnitudes(values: Mapping[str, float]) -> str:
    return f"{values['least']:.3g} to {values['most']:.3g}" if values["most"] else "none"
