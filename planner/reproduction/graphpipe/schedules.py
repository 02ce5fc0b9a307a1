"""The claims of GraphPipe about schedules that can be examined here: how many samples a stage keeps in flight."""

from typing import Any

from instances.parameters import Setting, parse_count, parse_flag
from instances.problems.stage_graph import parse_ratio
from planner.reproduction.claim import Claim, Evidence, Note
from solvers.outcome import Limits

#: The smallest examples are small: the scheduler takes far less.
_LIMITS = Limits(time_s=60.0)
_LARGEST = 32


def _largest(value: Any) -> int:
    if parse_count(value) > _LARGEST:
        raise ValueError(f"an integer from 1 to {_LARGEST}")
    return parse_count(value)


def table_2(
    _inputs: str | None, note: Note, *, ratio: tuple[int, int] = (1, 2), max: int = 8, powers_of_two: bool = False
) -> Evidence:
    """Table 2 against the exact minimum for all micro-batches and k up to a number."""
    from planner.reproduction.graphpipe.table_2 import compare, schedule_case

    numbers = [1 << power for power in range(max.bit_length())] if powers_of_two else list(range(1, max + 1))
    found = compare(ratio, numbers, note)
    totals = {name: found.total(name) for name in ("cases", "equal", "too_small", "too_large")}
    checked = {
        kind: None if case is None else schedule_case(case, ratio, _LIMITS)
        for kind, case in (("too_small", found.too_small), ("too_large", found.too_large))
    }
    which = "powers of two" if powers_of_two else "integers"
    notes = [
        f"{totals['equal']} of {totals['cases']} cases are the exact minimum; the rule of one line misses "
        f"{found.rule_wrong}",
        *(_sentence(kind, case) for kind, case in checked.items() if case is not None),
    ]
    return Evidence(
        found.rows,
        f"k and micro-batches: {which} to {max}, successors with k to k + 3 micro-batches in flight, "
        f"forward to backward {ratio[0]}:{ratio[1]}",
        notes=tuple(notes),
        figures={
            "ratio": f"{ratio[0]}:{ratio[1]}",
            **totals,
            "rule_wrong": found.rule_wrong,
            "smallest": checked["too_small"] or checked["too_large"],
            "smallest_too_small": checked["too_small"],
            "smallest_too_large": checked["too_large"],
        },
    )


def _sentence(kind: str, case: dict[str, Any]) -> str:
    names = ", ".join(f"{name} = {case[name]}" for name in ("b_x", "k_x", "b_y", "k_y", "i_y"))
    text = f"smallest case where it is {kind.replace('_', ' ')}: {names}: {case['table']} (row {case['row']}) where "
    text += f"{case['exact']} are needed; scheduled exactly, an iteration of {case['minibatch']} samples takes "
    text += f"{case['iteration_s_with_table']:g} and {case['iteration_s_with_exact']:g}"
    return f"{text} (x in any order needs {case['exact_in_any_order']})"


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "graphpipe-table-2",
        "GraphPipe, Appendix A.1, Table 2",
        "samples that a stage keeps in flight: the table beside the exact minimum",
        table_2,
        (
            Setting("ratio", parse_ratio, "forward to backward time", metavar="F:G", default="1:2"),
            Setting("max", _largest, "largest micro-batch and k", metavar="N", default="8"),
            Setting("powers-of-two", parse_flag, "only powers of two", is_flag=True),
        ),
    ),
)
