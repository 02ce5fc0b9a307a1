"""Score published algorithms and heuristics on the library: ``python docs/leaderboard/make.py FOLDER [PROBLEM ...]``.

It goes on where it stopped in FOLDER, and writes here a file for each problem, of what was measured; the page (losses,
standings, profiles, beside what is best known then) is made of them when the site is built.
"""

from __future__ import annotations

import sys
from pathlib import Path

from formulations import FAMILIES
from formulations.contract.family import Claim
from planner.experiments.bench import folders
from planner.experiments.library.entries import best_known, select
from planner.experiments.library.score import score
from planner.files.write import as_json
from solvers.outcome import Limits

HERE = Path(__file__).resolve().parent
#: Wall time of each instance: nearly all heuristics end by themselves before it.
LIMITS = Limits(time_s=5.0)
#: Published algorithms that are exact, and what there is of ours where no heuristic is known.
ALSO = {
    "stage_partitioning": ("piper-exact-knapsack",),
    "hierarchical_partitioning": ("piper-hierarchical", "piper-levels-exact-knapsack"),
    "flushed_partitioning": ("labels", "best-first"),
    "device_mapping": ("parmesan-no-timeout",),
}
#: Heuristics that make no plan of their own.
NO_PLANS = ("bounds",)


def methods_of(problem: str) -> list[str]:
    """The methods that are compared on a problem."""
    family = next(each for each in FAMILIES if each.name == problem)
    own = [each.name for each in family.methods if each.claim is Claim.HEURISTIC and each.name not in NO_PLANS]
    return [*own, *ALSO.get(problem, ())]


def main(out: str, *problems: str) -> None:
    """Score the methods of these problems, or of all, and write what was measured."""
    for problem in problems or [family.name for family in FAMILIES]:
        folder = Path(out) / problem
        folder.mkdir(parents=True, exist_ok=True)
        found, ended = score(
            select(problem),
            methods_of(problem),
            LIMITS,
            best_known(),
            done=folders.read_rows(folder),
            keep=lambda row, folder=folder: folders.keep(folder, row),
        )
        if ended.lost or ended.signal:
            sys.exit(ended.lost or f"{problem}: interrupted")
        rows = found.measured().pop("rows")
        head = as_json({name: value for name, value in found.measured().items() if name != "rows"})
        lines = ",\n".join(map(as_json, rows))  # a line a run, so that what changed can be read
        (HERE / f"{problem}.json").write_text(f'{head[:-1]}, "rows": [\n{lines}\n]}}\n')
        print(problem, len(rows), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
