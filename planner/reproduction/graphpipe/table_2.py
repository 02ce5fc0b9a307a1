"""Table 2 against the exact minimum: how often it is too small or too large, and the smallest example of either.

Symbols as in `in_flight`. What the table says is rounded up to whole micro-batches, as nothing else can be in flight.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

from formulations.contract.family import lazy
from formulations.microbatch_schedule.definition.in_flight import Ratio, Successor, exact_for, rule, table2
from formulations.simulation.simulate_graph import PassGraph, kfkb
from instances.problems.microbatch_schedule import ScheduleEdge, ScheduleInstance, ScheduleStage
from solvers.outcome import Limits

#: The successor holds its k micro-batches in flight, and up to so many more.
_MORE = 4


@dataclass(frozen=True)
class Case:
    """A stage x, its successor y, samples in flight as the table, the rule and the exact procedure have them."""

    b_x: int
    k_x: int
    b_y: int
    k_y: int
    i_y: int
    row: int
    table: int
    rule: int
    exact: int

    @property
    def size(self) -> tuple[int, ...]:
        """What makes a case smaller than another: fewer samples in a block and in flight."""
        return (self.k_x * self.b_x + self.k_y * self.b_y + self.i_y, self.b_x, self.b_y, self.k_x, self.k_y)


def cases(ratio: Ratio, numbers: Sequence[int]) -> Iterator[Case]:
    """All micro-batches and k among the numbers, and four numbers of micro-batches in flight at the successor."""
    for b_y, k_y, b_x, k_x in product(numbers, repeat=4):
        flights = [(k_y + more) * b_y for more in range(_MORE)]
        needed = exact_for(flights, b_y, k_y, b_x, k_x, ratio)
        for i_y, least in zip(flights, needed, strict=True):
            y = Successor(i_y, b_y, k_y)
            row, found = table2(y, b_x, k_x)
            yield Case(b_x, k_x, b_y, k_y, i_y, row, -(-found // b_x) * b_x, rule([y], b_x, k_x, ratio), least)


@dataclass(frozen=True)
class Comparison:
    """Counts by row of the table, and the smallest cases where it is too small and too large."""

    rows: tuple[dict[str, int], ...]
    too_small: Case | None
    too_large: Case | None
    rule_wrong: int

    def total(self, name: str) -> int:
        """A count over all rows."""
        return sum(row[name] for row in self.rows)


def compare(ratio: Ratio, numbers: Sequence[int], note: Callable[[str], None]) -> Comparison:
    """Go through all cases; ``note`` is called with the progress."""
    counts: Counter[tuple[int, str]] = Counter()
    smallest: dict[str, Case] = {}
    rule_wrong = 0
    whole = _MORE * len(numbers) ** 4
    for done, case in enumerate(cases(ratio, numbers)):
        if done and done % 50_000 == 0:
            note(f"{done} of {whole} cases")
        kind = "equal" if case.table == case.exact else "too_small" if case.table < case.exact else "too_large"
        counts[case.row, kind] += 1
        rule_wrong += case.rule != case.exact
        if kind not in smallest or case.size < smallest[kind].size:
            smallest[kind] = case
    kinds = ("equal", "too_small", "too_large")
    rows = tuple(
        {"row": row, "cases": sum(counts[row, kind] for kind in kinds), **{kind: counts[row, kind] for kind in kinds}}
        for row in range(1, 11)
    )
    return Comparison(rows, smallest.get("too_small"), smallest.get("too_large"), rule_wrong)


def schedule_case(case: Case, ratio: Ratio, limits: Limits) -> dict[str, Any]:
    """The case on a finite iteration, by the exact scheduler.

    Both stages keep their kFkB orders: seconds of the iteration with the table's samples in flight, with the exact
    number, and with any number. And the fewest samples at x for the same iteration if x may run its passes in any order
    (``None``: not proved in time).
    """
    samples = case.b_x * case.k_x * case.b_y * case.k_y
    batch = samples * -(-4 * max(case.exact, case.table, case.i_y) // samples)
    free = _seconds(case, ratio, batch, batch, limits, pinned=True)
    fewest = None
    for held in range(case.b_x, case.exact + 1, case.b_x):
        seconds = _seconds(case, ratio, batch, held, limits, pinned=False)
        if seconds is not None and free is not None and seconds <= free:
            fewest = held
            break
    return {
        **asdict(case),
        "minibatch": batch,
        "iteration_s_with_table": _seconds(case, ratio, batch, case.table, limits, pinned=True),
        "iteration_s_with_exact": _seconds(case, ratio, batch, case.exact, limits, pinned=True),
        "iteration_s_with_all": free,
        "exact_in_any_order": fewest,
    }


def _seconds(case: Case, ratio: Ratio, batch: int, held: int, limits: Limits, *, pinned: bool) -> float | None:
    """The shortest iteration; ``None`` if there is none or it was not proved."""
    f, g = ratio
    stages = (ScheduleStage(f * case.b_x, g * case.b_x, case.b_x), ScheduleStage(f * case.b_y, g * case.b_y, case.b_y))
    instance = ScheduleInstance("table 2", batch, stages, (ScheduleEdge(0, 1),))
    graph = PassGraph(instance, (held // case.b_x, case.i_y // case.b_y))
    graph.pin(1, kfkb(graph.counts[1], graph.rooms[1], case.k_y))
    if pinned:
        graph.pin(0, kfkb(graph.counts[0], graph.rooms[0], case.k_x))
    found: float | None = lazy("formulations.microbatch_schedule.exact:proved_seconds")(graph, limits)
    return found
