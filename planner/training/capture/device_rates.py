"""Rates that measurements show: least squares, with intervals and how far the fit is off. No torch here.

Seconds of a forward pass are taken as F / r + m / b: F operations of products at r per second, m bytes that other ops
move at b per second. Relative errors are minimised; intervals are two standard errors wide on either side.

Source: reconstructed (linear least squares).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from instances.errors import InstanceError
from instances.files import read_lines
from instances.units import parse_bytes, parse_time
from planner.files.tables import Numbers, rows_of
from planner.process.errors import UsageError

COLUMNS: Numbers = {"flops": (parse_bytes, 0.0), "moved_bytes": (parse_bytes, 0.0), "seconds": (parse_time, None)}
#: Fewer measurements than this say nothing of their spread.
_LEAST = 3


@dataclass(frozen=True)
class Rate:
    """A rate per second, and the ends of its interval (``None``: there is no upper end)."""

    value: float
    low: float
    high: float | None

    def over(self, peak: float) -> list[float | None]:
        """As shares of a peak."""
        return [self.value / peak, self.low / peak, None if self.high is None else self.high / peak]


@dataclass(frozen=True)
class Fit:
    """What was fitted: a rate is ``None`` where the measurements show nothing of it. Errors are relative."""

    products: Rate | None
    memory: Rate | None
    measurements: int
    median_error: float
    worst_error: float
    worst: str


def fit_rates(rows: Sequence[dict[str, Any]], where: str) -> Fit:
    """The rates that fit measurements best, none of them negative.

    ``rows``: with ``flops``, ``moved_bytes``, ``seconds`` and ``name``.
    `InstanceError` if there are fewer than three, one took no time, or none has operations or bytes.
    """
    if len(rows) < _LEAST:
        raise InstanceError.at(where, "measurements", len(rows), f"at least {_LEAST}")
    for row in rows:
        if not row["seconds"] > 0:
            raise InstanceError.at(where, f"seconds of {row['name'] or 'a line'}", row["seconds"], "a positive time")
    work = np.array([[row["flops"] / row["seconds"], row["moved_bytes"] / row["seconds"]] for row in rows])
    used = [column for column in (0, 1) if work[:, column].any()]
    if not used:
        raise InstanceError.at(where, "flops and moved_bytes", 0, "operations or bytes in some line")
    slowness, errors = _least_squares(work[:, used])
    while len(used) > 1 and slowness.min() <= 0:  # one that comes out negative is not shown by the measurements
        used.pop(int(slowness.argmin()))
        slowness, errors = _least_squares(work[:, used])
    pairs = zip(used, slowness.tolist(), errors.tolist(), strict=True)
    rates = {column: _rate(seconds, error) for column, seconds, error in pairs}
    misses = np.abs(work[:, used] @ slowness - 1)
    worst = int(misses.argmax())
    return Fit(
        rates.get(0),
        rates.get(1),
        len(rows),
        float(median(misses)),
        float(misses[worst]),
        rows[worst]["name"] or f"line {worst + 2}",
    )


def _least_squares(work: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Seconds for one unit of each kind of work, and their standard errors; the sides are all 1."""
    scale = np.abs(work).max(axis=0)
    scaled = work / scale
    slowness, *_ = np.linalg.lstsq(scaled, np.ones(len(work)), rcond=None)
    left = ((scaled @ slowness - 1) ** 2).sum() / max(1, len(work) - work.shape[1])
    errors = np.sqrt(left * np.diag(np.linalg.pinv(scaled.T @ scaled)))
    return slowness / scale, errors / scale


def _rate(slowness: float, error: float) -> Rate:
    quickest = slowness - 2 * error
    return Rate(1 / slowness, 1 / (slowness + 2 * error), 1 / quickest if quickest > 0 else None)


def calibrate(file: str) -> Fit:
    """The fit of a table of measurements; `InstanceError` for what breaks a rule, `UsageError` for no file."""
    if not Path(file).is_file():
        raise UsageError.at("MEASUREMENTS", file, "a file that is there")
    found = fit_rates(list(rows_of(read_lines(Path(file)), file, COLUMNS, ("name",)).values()), file)
    if not all(math.isfinite(each.value) for each in (found.products, found.memory) if each is not None):
        raise InstanceError.at(file, "rates", "infinite", "measurements that show one")
    return found
