"""Compiled loops of the exact dynamic program over upsets (``levels.py``)."""

# mypy: disallow_untyped_decorators=False

from typing import Any

from formulations.compiled.numba_kernels import FLAG, FLOAT, FLOATS2, INTS, INTS2, SHORTS2, compile_kernels, kernel

#: More devices than any instance has.
NONE = 1 << 28


@kernel(FLOATS2, INTS2, FLOAT, INTS, SHORTS2, error_model="python")
def needed(tps: Any, room: Any, target: float, degrees: Any, need: Any) -> None:
    """``need[stage, i]``: fewest devices with which a stage keeps the target with i micro-batches in flight."""
    for stage in range(need.shape[0]):
        for i in range(need.shape[1]):
            need[stage, i] = NONE
        filled = 0
        for g in range(len(degrees)):  # ascending; a larger degree is of use only where it has more room
            if tps[stage, g] <= target and room[stage, g] > filled:
                for i in range(filled + 1, min(room[stage, g], need.shape[1] - 1) + 1):
                    need[stage, i] = degrees[g]
                filled = room[stage, g]


@kernel(INTS, INTS, INTS, SHORTS2, SHORTS2, SHORTS2, error_model="python")
def pack_levels(option_start: Any, group: Any, rest: Any, need: Any, pack: Any, choice: Any) -> None:
    """``pack[set, i]``: fewest devices for a set of operators on one level, as one stage or as several.

    Options of a set: a group of its components as one stage, and the rest, which comes earlier.
    """
    for s in range(need.shape[0]):
        for i in range(need.shape[1]):
            best = need[s, i]
            picked = -1
            for x in range(option_start[s], option_start[s + 1]):
                found = need[group[x], i] + pack[rest[x], i]
                if found < best:
                    best = found
                    picked = x
            pack[s, i] = best
            choice[s, i] = picked


@kernel(INTS, INTS, INTS, SHORTS2, SHORTS2, SHORTS2, FLAG, error_model="python")
def place_levels(start: Any, level: Any, after: Any, pack: Any, least: Any, pick: Any, flag: Any) -> bool:
    """``least[u, i]``: fewest devices for what is not in upset u, its last stages with i micro-batches in flight.

    Upsets are in descending order; transition x places the set ``level[x]`` and leads to the earlier upset
    ``after[x]``. False if stopped.
    """
    most = least.shape[1] - 1
    for i in range(most + 1):
        least[0, i] = 0
    for u in range(1, least.shape[0]):
        if flag[0]:
            return False
        for i in range(most + 1):
            least[u, i] = NONE
        for x in range(start[u], start[u + 1]):
            final = after[x] == 0
            for i in range(1, most + 1):
                more = pack[level[x], i]
                if not final:
                    more += least[after[x], i + 1] if i < most else NONE
                if more < least[u, i]:
                    least[u, i] = more
                    pick[u, i] = x
    return True


compile_kernels()
