"""Draw the findings' pictures, write their verdicts and the printed numbers: ``python docs/findings/make.py``.

Each shows numbers of its section of findings.md, which says how they were measured; a number that its section does not
have is an error, so that text and picture are one. Numbers that are called printed have their origin in printed.toml.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.display.plots import Chart, ranked, save
from planner.reproduction import CLAIMS
from planner.reproduction.verdicts import VERDICTS

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "findings.md"
#: Whose number it is, and so its colour: what is printed, claimed or heuristic; what is found or proved here.
THEIRS, OURS = 1, 0


@dataclass(frozen=True)
class Bar:
    """A number as its section has it, ``times`` what its unit there makes of it."""

    label: str
    number: str
    whose: int = OURS
    times: float = 1.0

    @property
    def value(self) -> float:
        """The number, in the unit of its picture."""
        return float(self.number.replace(",", "")) * self.times

    @property
    def said(self) -> str:
        """The number as the picture shows it."""
        return self.number if self.times == 1 else f"{self.value:,.0f}"


@dataclass(frozen=True)
class Finding:
    """A picture: the beginning of its section's heading, what it says, bars and their unit."""

    section: str
    says: str
    unit: str
    bars: tuple[Bar, ...]
    is_log: bool = False

    @property
    def file(self) -> str:
        """The picture's name, after its section's: "piper-table-1.svg"."""
        return re.sub(r"[^a-z0-9]+", "-", self.section.lower()).strip("-") + ".svg"

    @property
    def line(self) -> str:
        """The picture as the page has it, with all that it shows for those who do not see it."""
        shown = "; ".join(f"{bar.label} {bar.said}" for bar in self.bars)
        return f"![{self.says}: {shown} ({self.unit})](findings/{self.file})"


def theirs(label: str, number: str, times: float = 1.0) -> Bar:
    """What is printed, claimed or heuristic."""
    return Bar(label, number, THEIRS, times)


FINDINGS = (
    Finding(
        "Piper's released inputs",
        "31 edges carry the mask's size instead of a layer's",
        "bytes",
        (theirs("edges between layers", "16777216"), Bar("output of a layer", "31457280")),
    ),
    Finding(
        "Piper, Appendix C",
        "A missed knapsack can cost much, and the plan little",
        "% above the optimum, knapsacks at worst",
        (
            theirs("BERT-32, knapsack", "15.6"),
            theirs("BERT-32, plan", "0"),
            theirs("ResNet-50, units as published, knapsack", "23.6"),
            theirs("ResNet-50, plan", "2.5"),
            theirs("GNMT, knapsack", "12.0"),
            theirs("GNMT, plan", "0"),
        ),
    ),
    Finding(
        "Piper, Table 1",
        "The plan of a chain is not the plan of the graph",
        "ms per sample, Resnet50 on 32 devices of 1.5 GiB",
        (theirs("printed", "61.2086"), theirs("best of four orders", "53.497"), Bar("optimum of the graph", "50.977")),
    ),
    Finding(
        "Piper, Appendix F and section 5",
        "With the units right, a plan made without them takes half as long again",
        "ms per sample, Resnet50 on 8 devices of 8 GiB",
        (
            theirs("optimum, units as published", "63.44"),
            theirs("its plan, units right", "127.80"),
            Bar("optimum, units right", "82.40"),
        ),
    ),
    Finding(
        "Piper, section 4",
        "Two formulas for one synchronisation, far apart",
        "s per sample, BERT-32 on 64 devices",
        (theirs("the paper's formula", "0.0327709"), theirs("the released program's", "0.0209573")),
    ),
    Finding(
        "Piper, Figure 1",
        "Recomputation is required up to a number of devices",
        "devices that are enough without it",
        (Bar("of 10^9 bytes", "1,922"), Bar("of 1 GiB", "1,285")),
    ),
    Finding(
        "Piper, Figure 2",
        "No DP gains nothing beyond 22 devices, as printed",
        "devices",
        (theirs("printed", "22"), Bar("here, N = 512", "22"), Bar("here, N = 960", "22")),
    ),
    Finding(
        "Piper, the running time",
        "Updates grow as |V|² N K² with the devices, and slower with the layers",
        "updates of dp over |V|² N K²",
        (
            *(theirs(f"K = {K}", ratio) for K, ratio in ((32, "0.266"), (64, "0.278"), (128, "0.283"), (256, "0.285"))),
            theirs("twice the layers", "0.160"),
            theirs("four times", "0.085"),
        ),
    ),
    Finding(
        "Piper, Appendix D",
        "What memory and reach rule out saves most knapsacks",
        "knapsacks of one run, logarithmic",
        (
            theirs("formula, divisors of N", "3.69", 1e6),
            Bar("divisors, our run", "518,557"),
            Bar("divisors, with a cutoff", "34,623"),
            theirs("formula, any degree", "11.2", 1e6),
            Bar("any, our run", "3,916,910"),
            Bar("any, with a cutoff", "679,205"),
        ),
        True,
    ),
    Finding(
        "AMP",
        "Deciding with the all-reduce in mind saves 2 % in the model",
        "predicted s per step, heterogeneous cluster",
        (
            theirs("as released", "1.0859"),
            theirs("program corrected", "1.0846"),
            Bar("all-reduce in the objective", "1.0617"),
        ),
    ),
    Finding(
        "Piper, Appendix A: are",
        "With these degrees the room is too small for 1F1B",
        "% slower than the bottleneck",
        (
            theirs("1, 2: at once", "16.7"),
            theirs("1, 2: paced", "0"),
            theirs("1, 2, 1", "25.0"),
            theirs("2, 3, 1: at once", "16.7"),
            theirs("2, 3, 1: paced", "28.6"),
            Bar("1, 2, 1 in another order", "0"),
        ),
    ),
    Finding(
        "Piper, Figure 5",
        "Devices hold what the figure says, and no more",
        "micro-batches in flight on a device",
        tuple(
            bar
            for stage, held in enumerate("2321", 1)
            for bar in (theirs(f"stage {stage}, printed", held), Bar(f"stage {stage}, here", held))
        ),
    ),
    Finding(
        "Piper, Appendix E",
        "The optimum on machines is near the flat one at the outer bandwidth",
        "s per sample, bert32a100 on 8 x 8 devices of 2 GiB",
        (
            theirs("flat, inner bandwidth", "0.0257"),
            theirs("the first put on machines", "0.0801"),
            theirs("flat, outer bandwidth", "0.0397"),
            theirs("the second put on machines", "0.0743"),
            Bar("hierarchical optimum", "0.0411"),
        ),
    ),
    Finding(
        "Piper, Appendix A: gradient",
        "Accumulation never helps in this cost model",
        "s per sample",
        (Bar("g = 1", "0.0338"), Bar("g = 2", "0.0356"), Bar("g = 4", "0.0459"), Bar("g = 8", "0.0512")),
    ),
    Finding(
        "Piper, Figure 3",
        "Planning takes seconds here, on another machine than the paper's",
        "s of planning on 2,048 devices, at 8 GiB where nothing is said, logarithmic",
        (
            theirs("BERT-32 at 80 GB, published algorithm", "29.5"),
            Bar("BERT-32 at 80 GB, exact", "0.01"),
            theirs("BERT-32, published algorithm", "9.5"),
            Bar("BERT-32, exact", "0.02"),
            theirs("BERT-64, published algorithm", "85"),
            Bar("BERT-64, exact", "0.06"),
        ),
        True,
    ),
    Finding(
        "Piper, section 6",
        "Planned without flushes, priced with them",
        "% above the optimum with flushes by the formula (devices, micro-batches)",
        (
            theirs("8, 8", "13.5"),
            theirs("8, 64", "0.6"),
            theirs("32, 32", "72"),
            theirs("64, 64", "61"),
            theirs("64, 512", "51"),
            theirs("256, 1024", "10.2"),
            theirs("512, 512", "53"),
        ),
    ),
    Finding(
        "Piper's open question",
        "By columns and rows a block of GPT-2 loses time, and less at the same memory",
        "% longer than the fastest split found",
        (
            theirs("2 devices, any memory", "13.6"),
            theirs("2 devices, no more bytes", "5.4"),
            theirs("4 devices, any memory", "40.6"),
            theirs("4 devices, no more bytes", "12.5"),
        ),
    ),
    Finding(
        "GraphPipe, Table 2",
        "Where passes take equally long, Table 2 is exact for powers of two",
        "of 1,024 cases",
        (Bar("right at 1:1", "1024"), theirs("too small at 1:2", "112"), theirs("too large at 2:1", "144")),
    ),
    Finding(
        "GraphPipe, Equation 1",
        "Where memory is loose, the least bottleneck is not the most throughput",
        "samples/s, MMT on 8 devices of 15 GB",
        (theirs("b = 128, least bottleneck", "76.5"), Bar("b = 8", "134.2")),
    ),
    Finding(
        "GraphPipe, section 7.5",
        "A pipeline four stages deep lacks an edge, and gains less with it",
        "% gained by the shorter pipeline (64 samples, our choice)",
        (theirs("printed", "10"), theirs("four deep", "11.1"), Bar("with the edge", "8.0")),
    ),
    Finding(
        "GraphPipe, Figures 6, 7 and 9",
        "Near the memory limit the gain widens with the devices, as the paper says",
        "times PipeDream's throughput, MMT, memory 25 % above its least",
        (Bar("4 devices", "1.13"), Bar("8 devices", "1.16"), Bar("16 devices", "1.31"), Bar("32 devices", "1.54")),
    ),
    Finding(
        "GraphPipe, Table 1",
        "Topology alone can make what is printed, but not on DLRM",
        "times GraphPipe's search (printed: seconds; here: transitions)",
        (
            theirs("MMT, printed at least", "14.7"),
            Bar("MMT, here at most", "17.6"),
            theirs("DLRM, printed at least", "9.2"),
            Bar("DLRM, here at most", "2.4"),
            theirs("CANDLE-Uno, printed at least", "10.4"),
            Bar("CANDLE-Uno, here at most", "11.8"),
        ),
    ),
    Finding(
        "GraphPipe, the time complexity",
        "Twice the devices take five times the operations, whatever the bound says",
        "times as many for 16 to 32 devices, MMT with the paper's layers",
        (Bar("operations", "5.1"), Bar("loops of Algorithm 1", "4.1"), theirs("bound", "1.6")),
    ),
    Finding(
        "GraphPipe, section 5",
        "It depends on who owns the join",
        "ms per sample, MMT on 4 devices, b = 4",
        (theirs("the series alone", "19.52"), theirs("one branch may share it", "14.35"), Bar("optimum", "13.97")),
    ),
    Finding(
        "Parmesan, section 4",
        "Refinement regains part of what clustering loses",
        "% above the optimum, 21 cells",
        (
            theirs("clustering, at most", "10.2"),
            theirs("all steps, at most", "6.9"),
            theirs("all steps, on average", "1.6"),
        ),
    ),
    Finding(
        "Parmesan, section 5",
        "How far a search comes depends on an order that is not public",
        "ms of the slowest stage, torus2d 16 x 4",
        (
            theirs("consecutive", "37.61"),
            theirs("a stage at a time", "24.00"),
            theirs("longest rings first", "19.59"),
            Bar("optimum", "19.59"),
        ),
    ),
    Finding(
        "Parmesan, Figures 2 and 3",
        "Algorithm 1 finds most of what there is to gain on a network without structure",
        "times as fast as consecutive, uniform-dist 4 x 16",
        (theirs("Algorithm 1", "33.2"), theirs("longest rings first", "37.1"), Bar("proved optimum", "38.4")),
    ),
    Finding(
        "Parmesan, section 6",
        "Deciding in two phases costs a step nothing by p2p, and most by the sum",
        "% longer simulated step in phases, resnet50 on two-level",
        (theirs("p2p", "0"), theirs("allreduce", "0.4"), theirs("sum of both", "32.8")),
    ),
    Finding(
        "The clock: the formula",
        "What the formula's best plan takes more, in any order of its passes",
        "% above the shortest iteration (devices, micro-batches)",
        (
            theirs("gpt 16, 32", "4.3"),
            theirs("gpt 16, 128", "4.2"),
            theirs("gpt 64, 64", "18.2"),
            theirs("gpt 64, 256", "0.3"),
            theirs("bert 16, 32", "17.6"),
            theirs("bert 64, 64", "51.9"),
            theirs("bert 64, 256", "10.8"),
        ),
    ),
    Finding(
        "The clock: Equation 4",
        "What Equation 4's best strategy takes more: little, and less the larger the batch",
        "% above the shortest iteration (samples)",
        (
            theirs("GPT-2, equal nodes, 16", "0.31"),
            theirs("GPT-2, two kinds, 16", "1.43"),
            theirs("GPT-2, two kinds, 64", "0.45"),
            theirs("GPT-2, two kinds, 128", "0.74"),
            theirs("TransGAN, 16", "3.17"),
            theirs("TransGAN, 64", "0.63"),
            theirs("TransGAN, 256", "0.40"),
        ),
    ),
    Finding(
        "The clock: GraphPipe",
        "Equation 1's best plan is one micro-batch, and slow on the clock",
        "% longer than the shortest iteration (devices)",
        (
            theirs("case study 8", "75"),
            theirs("mmt-2 4", "162"),
            theirs("mmt-2 8", "156"),
            theirs("dlrm-8 4", "24"),
            theirs("candle-uno-8 4", "77"),
            theirs("candle-uno 8", "55"),
            theirs("candle-uno 16", "51"),
            theirs("candle-uno 32", "96"),
        ),
    ),
    Finding(
        "The clock: 1F1B",
        "1F1B is the best order at its memory; GPipe's order is not at its own",
        "% at most, 4 stages, 16 micro-batches, times within 2",
        (
            Bar("1F1B, at its memory", "0"),
            theirs("GPipe, all in flight", "14.7"),
            Bar("what 1F1B's memory costs", "10.7"),
        ),
    ),
    Finding(
        "The clock: ZB-H1",
        "ZB-H1 is the best order at its memory; ZB-V is where F, B and W take equally long",
        "% above the best order at the same memory, 8 devices, 16 micro-batches",
        (theirs("ZB-H1, any times", "0"), theirs("ZB-V, equal times", "0"), theirs("ZB-V, W twice as long", "4.4")),
    ),
    Finding(
        "The clock: what interleaving",
        "Two chunks gain as much at the memory of 1F1B",
        "% less than 1F1B, 4 devices, 8 micro-batches, two chunks",
        (theirs("interleaved order, 1.38 times the memory", "13.6"), Bar("best order, once the memory", "13.6")),
    ),
    Finding(
        "The clock: how far",
        "1F1B is as far as its bubble can shrink",
        "% that 1F1B takes more than the best order at its memory, 4 devices, 8 micro-batches, F, B and W equal",
        (theirs("one chunk", "11.1"), theirs("two chunks in a V", "17.6")),
    ),
    Finding(
        "Trainers",
        "One pair of degrees costs most where memory is short",
        "% above the optimum, bert32 on 64 devices",
        (
            theirs("Megatron-LM, 8 GiB", "59.7"),
            theirs("Megatron-LM, states shared", "54.5"),
            theirs("DeepSpeed, 8 GiB", "53.3"),
            theirs("DeepSpeed, states shared", "46.1"),
            theirs("all three, 80 GiB", "23.7"),
            theirs("all three, states shared", "20.5"),
        ),
    ),
    Finding(
        "Baselines: PipeDream",
        "A cut counts where it is taken, which Piper's costs punish",
        "% above the best of that space, bert on 128 devices",
        (
            theirs("PipeDream's recursion by Piper's costs", "512.6"),
            Bar("Piper's optimum by PipeDream's costs", "17.4"),
        ),
    ),
    Finding(
        "Baselines: zero bubble",
        "Optimal on equal stages, not on unequal ones at 1F1B's memory",
        "most % above the best order at the same memory",
        (
            theirs("equal stages", "0"),
            theirs("unequal, twice the memory", "1.85"),
            theirs("unequal, 1F1B's memory", "6.42"),
        ),
    ),
    Finding(
        "Baselines: Alpa",
        "What each decides well, and what it leaves out",
        "% above the shortest iteration",
        (
            theirs("alpa, gradients not counted", "3.47"),
            theirs("galvatron with one pair of degrees, 96 devices", "47.5"),
            theirs("uniap, sends as steps of their own", "2.43"),
            theirs("alpa, 405b on 16,384 devices", "4.00"),
        ),
    ),
    Finding(
        "Baselines: Tarnawski",
        "The program over all downsets misses nothing",
        "most % above the optimum, 36 settings",
        (theirs("max-load-dp", "0"), theirs("pipedream", "0.37"), theirs("parmesan", "6.95")),
    ),
    Finding(
        "Baselines: AMP",
        "What the ranking misses is mostly not among its first ten",
        "% above the shortest iteration, heterogeneous cluster",
        (
            theirs("one run, 32 samples", "4.27"),
            theirs("ten runs, 32 samples", "4.01"),
            theirs("one run, 256 samples", "0.12"),
        ),
    ),
    Finding(
        "Subproblems",
        "Best strategies by the layers they were given",
        "% that the best strategy loses",
        (
            theirs("amp, cluster", "2.15"),
            theirs("amp-released, cluster", "2.28"),
            theirs("amp, model", "0.51"),
            theirs("megatron, model", "15.4"),
        ),
    ),
    Finding(
        "Heuristics of a dozen lines",
        "On these knapsacks a dozen lines are optimal more often, and worse at worst",
        "optimal of 1,000 knapsacks",
        (theirs("Piper's heuristic", "822"), Bar("largest saving first", "991")),
    ),
    Finding(
        "Solvers",
        "On these models of ours the default presolve proves false optima",
        "complete models of small random instances",
        (Bar("solved", "300"), theirs("false optima", "49")),
    ),
)


def sections(text: str) -> dict[str, str]:
    """The page's sections by their headings."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def missing(finding: Finding, text: str) -> Iterator[str]:
    """What the page does not have: the one section, a number in it, or the picture."""
    own = [body for heading, body in sections(text).items() if heading.startswith(finding.section)]
    if len(own) != 1:
        yield f"{len(own)} sections begin with {finding.section!r}"
        return
    if finding.line not in own[0].splitlines():
        yield f"{finding.section}: no line {finding.line}"
    words = "\n".join(line for line in own[0].splitlines() if not line.startswith("!["))
    for bar in finding.bars:
        if not re.search(rf"(?<![\d.]){re.escape(bar.number)}(?!\d|[.,]\d)", words):
            yield f"{finding.section}: no number {bar.number} ({bar.label})"


#: Between these lines of the page stands the table.
_BEGIN, _END = "<!-- verdicts -->\n", "<!-- end of verdicts -->\n"


def with_verdicts(text: str) -> str:
    """The page with the table of verdicts above its sections."""
    papers = {claim.name: claim.paper for claim in CLAIMS}
    rows = ["| claim | verdict | effect | command |", "|---|---|---|---|"]
    for verdict in VERDICTS:
        (heading,) = (name for name in sections(text) if name.startswith(verdict.section))
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        paper = papers.get(verdict.name, re.split(r"[:(]", heading)[0].strip())
        rows.append(
            f"| [{paper}](#{anchor}): {verdict.claim} | {verdict.says} | {verdict.found} | `{verdict.command}` |"
        )
    before, _, rest = text.partition(_BEGIN)
    return before + _BEGIN + "\n".join(rows) + "\n" + _END + rest.partition(_END)[2]


def origins() -> list[dict[str, Any]]:
    """What printed.toml has: where a number is called printed, and where it comes from."""
    found: list[dict[str, Any]] = tomllib.loads((HERE / "printed.toml").read_text())["printed"]
    return found


def origin(record: dict[str, Any]) -> str:
    """A paper and its place, a release's function, or a command of ours."""
    named = ("paper", "release", "ours")
    if sum(name in record for name in named) != 1 or ("paper" in record) != ("place" in record):
        raise SystemExit(f"printed.toml, {record['where']}: one of {', '.join(named)}; a place for a paper alone")
    if "paper" in record:
        return f"{record['paper']}, {record['place']}"
    return f"its release: {record['release']}" if "release" in record else f"ours: {record['ours']}"


_PRINTED_PAGE = """# Printed numbers

Where each number comes from that a [finding](findings.md) or a claim of `planner reproduce` calls printed: the paper
and its place, or its release. A module of `planner/reproduction` has the numbers of a whole table in a constant.
Written by `python docs/findings/make.py` from `docs/findings/printed.toml`, which tests compare with texts and claims.

| where | numbers | from |
| --- | --- | --- |
"""


def page() -> str:
    """printed.toml as a page."""
    rows = []
    for record in origins():
        numbers = ", ".join(record.get("numbers", ())) or f"`{record['constant']}`"
        rows.append(f"| {'; '.join(record['where'])} | {numbers} | {origin(record)} |")
    return _PRINTED_PAGE + "\n".join(rows) + "\n"


def chart(finding: Finding) -> Chart:
    """Bars with their numbers as the section has them, and so without an axis."""
    rows = [{"name": bar.label, "value": bar.value, "said": bar.said, "colour": bar.whose} for bar in finding.bars]
    drawn = ranked(rows, finding.unit, finding.says)
    bars = drawn.spec["layer"][0]["encoding"]
    bars["x"]["axis"] = {"labels": False, "ticks": False, "grid": False}
    if finding.is_log:
        values = [bar.value for bar in finding.bars]
        bars["x"]["scale"] = {"type": "log", "domain": [min(values) / 3, 6 * max(values)], "nice": False}
        bars["x2"] = {"datum": min(values) / 3}
    return drawn


def main() -> None:
    """Write all pictures and tables; `SystemExit` with what the page lacks."""
    text = PAGE.read_text()
    lacks = [line for finding in FINDINGS for line in missing(finding, text)]
    if lacks:
        raise SystemExit("\n".join(lacks))
    for finding in FINDINGS:
        save([chart(finding)], str(HERE / finding.file), width=560)
    PAGE.write_text(with_verdicts(text))
    (HERE.parent / "printed-numbers.md").write_text(page())


if __name__ == "__main__":
    main()
