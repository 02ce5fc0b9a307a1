"""Make the gallery of losses anew: ``python docs/gallery/make.py [--extend] [KEY...]`` (some 40 CPU minutes for all).

For each heuristic the smallest instance with a loss, and the worst loss with at most 2 to 10 nodes, by the commands
that the page shows; sizes of which a search takes more than a minute of CPU time are left out, and the page says so.
``--extend``: only the sizes that ``rows.json`` does not have. Writes instances, figures and ``rows.json`` beside this
file; the page is filled in from these when the site is built (docs/extensions/generated.py, `sections`).
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from planner.display.mining import percent
from planner.display.plots.chart import Chart
from planner.display.plots.files import save as save_picture
from planner.display.plots.numbers import curves
from planner.display.plots.panels import panels
from planner.experiments.mining.mine import Mined, mine
from planner.files.load import family_of, load
from planner.files.write import plain
from planner.results.save import save
from planner.solving.solve import solve
from solvers.outcome import Limits

HERE = Path(__file__).resolve().parent
ROWS = HERE / "rows.json"
SEEDS = (1, 2)
#: CPU seconds that a search may take.
MOST_S = 60.0


@dataclass(frozen=True)
class Entry:
    """A heuristic, what it is searched with, the loss that the smallest instance has at least, and the largest size."""

    method: str
    title: str
    problem: str
    against: str = "exact"
    most: tuple[tuple[str, int], ...] = ()
    domain: str = ""
    options: tuple[tuple[str, str], ...] = ()
    largest: int = 10
    count: int = 700

    def arguments(self, nodes: int | None) -> dict[str, Any]:
        """Those of `mine`; ``nodes`` is ``None`` where the smallest instance is searched for."""
        name, _, value = self.domain.partition("=")
        return {
            "problem": self.problem,
            "against": self.against,
            "most": {**dict(self.most), **({} if nodes is None else {"nodes": nodes})},
            "domains": {name: value or None} if name else {},
            "options": dict(self.options),
            "loss": 0.01 if nodes is None else None,
            "count": self.count,
        }

    def command(self, nodes: int | None, seed: int) -> str:
        """The same on the command line."""
        most = ",".join(f"{key}={value}" for key, value in self.arguments(nodes)["most"].items())
        parts = [
            f"planner mine {self.method} --problem {self.problem} --against {self.against}",
            *([f"--max {most}"] if most else []),
            *([f"--domain {self.domain}"] if self.domain else []),
            *(f"--{name} {value}" for name, value in self.options),
            *(["--loss 1%"] if nodes is None else []),
            f"--count {self.count} --seed {seed} --out FILE",
        ]
        return " ".join(parts)

    def search(self, nodes: int | None) -> tuple[Mined, int]:
        """The best that the seeds find: the smallest, or the worst; and its seed."""
        found = [(mine(self.method, limits=Limits(seed=seed), **self.arguments(nodes)), seed) for seed in SEEDS]
        having = [each for each in found if each[0].instance is not None]
        if not having:
            return found[0]
        if nodes is None:
            return min(having, key=lambda each: tuple((each[0].size or {}).values()))
        return max(having, key=lambda each: each[0].loss or 0.0)


_POSITIVE = {"domain": "positive-times"}
_TWICE = {"domain": "max-slowdown=2", "count": 200}
_FEWER = {"count": 200}
_SLOW = {"count": 60}
ENTRIES: dict[str, Entry] = {
    "piper": Entry(
        "piper",
        "Piper, one stage, recomputation costs a third",
        "stage_partitioning",
        most=(("devices", 1), ("microbatches", 1), ("tp", 1), ("number", 48)),
        domain="recompute",
        count=1000,
    ),
    "piper-stages": Entry(
        "piper",
        "Piper, two devices, TMPCs at most twice as slow",
        "stage_partitioning",
        most=(("devices", 2), ("microbatches", 2), ("number", 24)),
        domain="max-slowdown=2",
    ),
    "piper-knapsack": Entry("piper", "Piper's choice of TMPCs for one stage", "tmpc_knapsack", **_FEWER),
    "equi": Entry("equi", "Piper's equal groups of layers", "stage_partitioning", **_TWICE),
    "equi-no-tp": Entry(
        "equi-no-tp", "Piper's equal groups without tensor parallelism", "stage_partitioning", **_TWICE
    ),
    "pipedream-chain": Entry("pipedream", "PipeDream on a chain of layers", "stage_partitioning", **_TWICE),
    "amp-released": Entry("amp-released", "AMP's layer assignment as released", "layer_assignment", **_POSITIVE),
    "amp": Entry(
        "amp",
        "AMP's layer assignment, with an all-reduce that it leaves out",
        "layer_assignment",
        "exact-joint",
        most=(("ring", 6),),
        **_POSITIVE,
    ),
    "megatron": Entry("megatron", "Megatron's even split of layers", "layer_assignment", **_POSITIVE, **_FEWER),
    "amp-strategy": Entry("amp", "AMP's choice of degrees", "amp_strategy", "exhaustive", **_POSITIVE),
    "amp-strategy-released": Entry(
        "amp-released", "AMP's choice of degrees as released", "amp_strategy", "exhaustive", **_POSITIVE, **_SLOW
    ),
    "amp-sa": Entry(
        "amp-sa",
        "AMP with annealed placements",
        "amp_strategy",
        "exhaustive",
        most=(("nodes", 2),),
        **_POSITIVE,
        **_SLOW,
    ),
    "megatron-strategy": Entry(
        "megatron", "Megatron's placement and split", "amp_strategy", "exhaustive", **_POSITIVE, **_SLOW
    ),
    "graphpipe": Entry("graphpipe", "GraphPipe, default degrees", "stage_graph", **_POSITIVE),
    "pipedream-graph": Entry("pipedream", "PipeDream as GraphPipe describes it", "stage_graph", **_POSITIVE, **_FEWER),
    "parmesan": Entry(
        "parmesan",
        "Parmesan's flow on four clusters",
        "operator_partitioning",
        options=(("clusters", "4"),),
        **_POSITIVE,
    ),
    "parmesan-default": Entry("parmesan", "Parmesan's flow, default clusters", "operator_partitioning", **_POSITIVE),
    "dp": Entry(
        "dp",
        "Parmesan's dynamic program on four clusters, without refinement",
        "operator_partitioning",
        options=(("clusters", "4"),),
        **_POSITIVE,
        **_FEWER,
    ),
    "refine": Entry("refine", "Parmesan's refinement of the even cut", "operator_partitioning", **_POSITIVE, **_FEWER),
    "cluster": Entry("cluster", "Parmesan's clustering down to the stages", "operator_partitioning", **_POSITIVE),
    "pipedream": Entry("pipedream", "PipeDream on one order of the operators", "operator_partitioning", **_POSITIVE),
    "parmesan-mapping": Entry(
        "parmesan", "Parmesan's mapping of stages to devices", "device_mapping", largest=8, **_SLOW
    ),
    "consecutive": Entry(
        "consecutive", "Consecutive mapping, the replicas of a stage together", "device_mapping", **_SLOW
    ),
    "p2p-first": Entry(
        "consecutive-pipeline-first",
        "Consecutive mapping, the stages of a replica together",
        "device_mapping",
        largest=8,
        **_SLOW,
    ),
    "random-mapping": Entry(
        "random", "The best of random mappings", "device_mapping", most=(("nodes", 6),), largest=8, **_SLOW
    ),
    "placement": Entry(
        "parmesan", "Parmesan's two phases, one after the other", "pipeline_placement", "joint", **_POSITIVE, **_SLOW
    ),
    "1f1b": Entry("1f1b", "1F1B on graphs", "microbatch_schedule", count=500),
    "kfkb": Entry("kfkb", "kFkB on graphs", "microbatch_schedule", **_FEWER),
    "greedy": Entry("greedy", "GraphPipe's greedy schedule", "microbatch_schedule", count=500),
    "sa": Entry("sa", "AMP's annealing of placements", "mesh_tiling", "cpsat", count=60),
}


def make(key: str, known: dict[str, Any] | None) -> dict[str, Any]:
    """Search, write the instances and return the row; what is known of it is kept."""
    entry = ENTRIES[key]
    row = _begun(key, entry) if known is None else known
    rows = row["rows"]
    smallest = None if row["size"] is None else row["size"]["nodes"]
    for nodes in range(len(rows) + 2, entry.largest + 1):
        began = time.process_time()
        found, own = entry.search(nodes)
        if time.process_time() - began > MOST_S * len(SEEDS):
            row["over"] = nodes
            break
        by = (
            {name: rows[-1][name] for name in ("by_nodes", "by_seed")} if rows else {"by_nodes": 2, "by_seed": SEEDS[0]}
        )
        if smallest is not None and smallest <= nodes and row["worst"] is None:
            row["worst"], by = row["loss"], {"by_nodes": None, "by_seed": row["seed"]}  # that search has found one, too
        if found.instance is not None and (row["worst"] is None or (found.loss or 0) > row["worst"]):
            row["worst"], by = found.loss, {"by_nodes": nodes, "by_seed": own}
            save(found.instance, HERE / f"{key}-worst.json")
        rows.append({"nodes": nodes, "loss": row["worst"], **by})
        print(key, rows[-1], file=sys.stderr, flush=True)
    return row


def _begun(key: str, entry: Entry) -> dict[str, Any]:
    """The row with the smallest instance, which is the worst one so far."""
    smallest, seed = entry.search(None)
    for name in ("smallest", "worst") if smallest.instance is not None else ():
        save(smallest.instance, HERE / f"{key}-{name}.json")
    return {
        "title": entry.title,
        "method": entry.method,
        "problem": entry.problem,
        "against": entry.against,
        "options": dict(entry.options),
        "size": smallest.size,
        "loss": smallest.loss,
        "seed": seed,
        "worst": None,
        "rows": [],
    }


def draw(key: str, row: dict[str, Any]) -> None:
    """The two plans of the smallest instance on one scale, and the worst loss by size."""
    entry, instance = ENTRIES[key], load(HERE / f"{key}-smallest.json")
    family = family_of(instance)
    drawn: list[Chart] = []
    for title, method, options in ((entry.method, entry.method, dict(entry.options)), ("optimum", entry.against, {})):
        result = solve(instance, method=method, options=options)
        every = panels(instance, family.plan_from_json(instance, plain(result.plan)))
        chart = next((each for each in every if each.title.startswith("Time")), every[0])
        drawn.append(replace(chart, title=f"{title}: {result.objective:g} {result.unit}", is_wide=False))
    if len({chart.unit for chart in drawn}) == 1:
        most = max(chart.top or 0.0 for chart in drawn)
        drawn = [replace(chart, top=most or None) for chart in drawn]
    known = [(each["nodes"], 100 * each["loss"]) for each in row["rows"] if each["loss"] is not None]
    sizes = {"title": "nodes, at most", "axis": {"tickMinStep": 1}}
    worst = curves([("", known)], sizes, {"title": "worst loss found, %"}, title="worst loss by size")
    save_picture([*drawn, worst], str(HERE / f"{key}.svg"))


def by(column: dict[str, Any]) -> str:
    """Which command found the loss of a column."""
    return f"{column['by_nodes'] or 'the smallest'}, {column['by_seed']}"


def sections() -> str:
    """The page, after its head: a part for each heuristic of ``rows.json``."""
    return "\n".join(section(key, row) for key, row in json.loads(ROWS.read_text()).items())


def section(key: str, row: dict[str, Any]) -> str:
    """The part of the page on a heuristic."""
    entry = ENTRIES[key]
    lines = [f"## {entry.title}", ""]
    if row["size"] is None:
        tried = f"nor the worst with at most 2 to {row['rows'][-1]['nodes']} nodes"
        return "\n".join([*lines, f"Nothing found: `{entry.command(None, row['seed'])}`, {tried}.", ""])
    size = ", ".join(f"{name} {value}" for name, value in row["size"].items())
    lines += [
        f"Smallest instance with a loss of 1 % ([file](gallery/{key}-smallest.json)): {size};",
        f"it loses {percent(row['loss'])}. Worst found: {percent(row['worst'])} ([file](gallery/{key}-worst.json)).",
        "",
        f"![Both plans of the smallest instance, and the worst loss by size](gallery/{key}.svg)",
        "",
        "| nodes, at most | " + " | ".join(str(each["nodes"]) for each in row["rows"]) + " |",
        "|---" * (len(row["rows"]) + 1) + "|",
        "| worst loss found | " + " | ".join(percent(each["loss"]) for each in row["rows"]) + " |",
        "| by `nodes=`, `--seed` | " + " | ".join(map(by, row["rows"])) + " |",
        "",
        *_cut(row),
        "```console",
        f"$ {entry.command(None, row['seed'])}",
        f"$ {entry.command(row['rows'][-1]['by_nodes'], row['rows'][-1]['by_seed'])}",
        "```",
        "",
    ]
    return "\n".join(lines)


def _cut(row: dict[str, Any]) -> list[str]:
    """Why a table ends before 10 nodes."""
    last = row["rows"][-1]["nodes"]
    if "over" in row:
        return [f"From {row['over']} nodes on a search takes more than {MOST_S:.0f} s of CPU time.", ""]
    return [] if last >= 10 else ["Larger sizes were not searched: an evaluation takes tenths of a second there.", ""]


def main(arguments: list[str]) -> None:
    """Make these entries, or all."""
    extends, keys = "--extend" in arguments, [each for each in arguments if each != "--extend"]
    known = json.loads(ROWS.read_text()) if ROWS.exists() else {}
    for key in keys or ENTRIES:
        known[key] = make(key, known.get(key) if extends else None)
        if known[key]["size"] is not None:
            draw(key, known[key])
        ordered = {each: known[each] for each in ENTRIES if each in known}
        ROWS.write_text(json.dumps(ordered, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
