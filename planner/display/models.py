"""Show models: how large one is, with a line for each group of its constraints; and several of an instance compared."""

from collections.abc import Mapping
from typing import Any

from planner.analysis.compare_models import Formulations
from planner.display.plots.chart import Chart
from planner.display.plots.numbers import bars, gap_over_time
from planner.display.terminal import bold, console, grid, table
from planner.results.texts import number, percent, with_unit


def show_model(found: Mapping[str, Any]) -> None:
    """Print what ``planner model --json`` does (docs/interface/models.md)."""
    out = console()
    counts = found["variables"]
    if counts is None:
        out.print(bold(found["instance"]), f" {found['problem']}, {found['method']}: {found['reason']}")
        return
    kinds = ", ".join(f"{counts[kind]} {kind}" for kind in ("binary", "integer", "continuous") if counts[kind])
    out.print(bold(found["instance"]), f" {found['problem']}, {found['method']}")
    parts = (("matrix", "coefficients"), ("objective", "of the objective"), ("sides", "right-hand sides"))
    facts = [
        ("variables", f"{counts['total']} ({kinds})" if counts["total"] else "0"),
        ("constraints", f"{found['constraints']}, {found['nonzeros']} non-zeros ({_density(found)} of all)"),
        *((label, _magnitudes(found["coefficients"][name])) for name, label in parts),
        *(("required", requirement) for requirement in found["requirements"]),
    ]
    if found["root_seconds"] is not None:
        facts += [
            ("root bound", f"{with_unit(found['root_bound'], found['unit'])}{_ending(found)}"),
            ("solved in", f"{found['root_seconds']:.3g} s, {found['fractional']} variables fractional"),
        ]
    if found.get("root_left_out"):
        facts.append(("left out of it", ", ".join(found["root_left_out"])))
    out.print(grid([*facts, *(("written", path) for path in found["files"])]))
    groups = []
    for group in found["groups"]:
        says = f"{group['says']} ({group['source']})" if group["source"] else group["says"]
        groups.append((group["name"], group["kind"], str(group["count"]), says))
    out.print(table(("group", "kind", "count", "says"), groups))


def show_formulations(found: Formulations) -> None:
    """Print a line for the search beside the models and for each of them, and what is known of the optimum."""
    out = console()
    out.print(bold(found.instance), f" {found.problem}, optimum {with_unit(found.optimum, found.unit)}")
    cells = found.cells()
    out.print(table(cells[0], (line.values() for line in cells)))
    out.print("root: bound of the linear relaxation; 1st plan, 1 %, proof: seconds until there was one", style="dim")
    out.print("as solved: without what a known plan makes superfluous; complete: with it", style="dim")
    for row in found.lines:
        if row.reason and row.proof_s is None:
            out.print(f"{row.method}: {row.reason}")
    for sentence in found.report.contradictions:
        out.print(f"contradiction: {sentence}", style="bold red")


def panels_of_formulations(found: Formulations) -> list[Chart]:
    """The share of the optimum that each root bound has, and incumbents and bounds over time."""
    shares = {row.method: 100 * row.root_share for row in found.rows if row.root_share is not None}
    over = gap_over_time(found.events, found.unit)
    if not shares:
        return [over]
    ylabel = "bound of the relaxation, % of the optimum"
    return [bars(list(shares), list(shares.values()), ylabel, limit=100.0, xlabel="model", title="Root bounds"), over]


def _ending(found: Mapping[str, Any]) -> str:
    said = "infeasible" if found["root_infeasible"] else found["root_reason"]
    return f" {said}".rstrip()


def _density(found: Mapping[str, Any]) -> str:
    cells = found["variables"]["total"] * found["constraints"]
    return f"{found['nonzeros'] / cells:.2%}" if cells else "0 %"


def _magnitudes(values: Mapping[str, float]) -> str:
    return f"{values['least']:.3g} to {values['most']:.3g}" if values["most"] else "none"


def show_brought(found: Mapping[str, Any]) -> None:
    """Print what ``planner import --json`` does (docs/your-own-model.md)."""
    out = console()
    out.print(bold(found["instance"]), f" {found['problem']}")
    downsets = "more than 20,000" if found["downsets"] is None else number(found["downsets"])
    facts = [
        ("nodes", f"{found['nodes']}, {found['edges']} edges, {downsets} downsets"),
        ("parameters", f"{found['parameters'] / 1e9:.4g} G, {found['dtype']}"),
        ("forward pass", f"{found['forward_flops'] / 1e12:.4g} TFLOP of a micro-batch of {found['microbatch']}"),
        ("saved", f"{found['saved_bytes'] / 2**30:.4g} GiB of activations of a micro-batch"),
        *(("tied", f"{name} in nodes {', '.join(map(str, nodes))}") for name, nodes in found["tied"].items()),
        ("hardware", f"{found['hardware']} ({found['source']})"),
        ("written", found["out"]),
    ]
    out.print(grid(facts))


def show_profile(found: Mapping[str, Any]) -> None:
    """Print what ``planner profile --json`` does (docs/your-own-model.md)."""
    out = console()
    out.print(bold(found["instance"]), f" medians of {found['repeats']} runs on {found['device']}")
    rows = []
    for row in found["rows"]:
        rate = row["forward_flops"] / row["forward_s"] / 1e9 if row["forward_s"] else 0.0
        seconds = (with_unit(row[each], "s") for each in ("forward_s", "backward_s"))
        rows.append((row["name"], *seconds, percent(row["spread"]), f"{rate:.3g}"))
    out.print(table(("node", "forward", "backward", "spread", "GFLOP/s forward"), rows))
    if found["out"] is not None:
        out.print(f"written {found['out']}")


def show_fit(found: Mapping[str, Any]) -> None:
    """Print what ``planner calibrate --json`` does (docs/your-own-model.md)."""
    labels = {"flop_per_s": "products, FLOP/s", "memory_bytes_per_s": "memory, bytes/s"}
    labels |= {"efficiency": "--efficiency", "memory_efficiency": "--memory-efficiency"}
    labels |= {"product_start_s": "start of a product, s", "overlap": "hidden of the shorter"}
    for link in ("inner", "outer"):
        labels |= {f"{link}_latency_s": f"step of {link} links, s", f"{link}_bytes_per_s": f"{link} links, bytes/s"}
    fitted = {label: found[name] or [None, None, None] for name, label in labels.items() if name in found}
    rows = ([label, *("-" if each is None else f"{each:.3g}" for each in values)] for label, values in fitted.items())
    out = console()
    out.print(table(("rate", "fitted", "from", "to"), rows))
    errors = f"{percent(found['median_error'])} in the median, {percent(found['worst_error'])} for {found['worst']}"
    out.print(f"{found['measurements']} measurements; the fit is off by {errors}")
