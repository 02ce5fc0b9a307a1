"""How many bytes a method may take: checked in one place before a large table is made.

Standard library only.
"""

import os
import time
from functools import lru_cache
from pathlib import Path

try:
    import resource
except ImportError:  # not on Windows, which has no such limits
    resource = None  # type: ignore[assignment]

#: The share of what is free that one table may take: there are others, and the solver's own.
_SHARE = 0.5
#: Seconds for which what is free counts as known: searches ask a thousand times a second, and asking takes 0.1 ms.
_FRESH_S = 0.1


class SizeError(Exception):
    """A method's tables do not fit; the message says what is too large."""


def demand(needed: float, what: str) -> None:
    """Raise `SizeError` if so many bytes are not available; ``what`` needs them."""
    most = room()
    if needed > most:
        raise SizeError(f"{what} would need {needed:.3g} bytes; expected at most {most:.3g}, half of what is free")


def room() -> float:
    """Bytes that a table may take: half of what this process may still allocate."""
    now = int(time.monotonic() / _FRESH_S)
    return _SHARE * min(_free_bytes(now), *(_process_allowance(*limit) for limit in _LIMITS))


@lru_cache(maxsize=1)
def _free_bytes(_now: int) -> float:
    """Bytes of memory that no process uses, at this tenth of a second."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(float(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):  # not Linux: half of the machine's
        return 0.5 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2.0**32


#: Limits of this process (``ulimit -v`` and ``-d``), and the pages that count against each, by their field in statm.
_LIMITS = (("RLIMIT_AS", 0), ("RLIMIT_DATA", 5))


def _process_allowance(name: str, field: int) -> float:
    """Bytes that a limit of the process leaves; infinite without one."""
    soft = -1 if resource is None else resource.getrlimit(getattr(resource, name))[0]
    if soft < 0:
        return float("inf")
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[field])
    except OSError:
        return float(soft)
    return max(0.0, soft - pages * os.sysconf("SC_PAGE_SIZE"))
