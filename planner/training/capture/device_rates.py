"""Rates that measurements show: least squares, with intervals and how far the fit is off. No torch here.

Seconds of a forward pass are taken as c s + F / r + m / b: c products that take s to start, F operations of products at
r per second, m bytes that other ops move at b per second. So a product of F operations runs at r F / (F + s r): the
efficiency by size. Seconds of a collective on links of one level are k a + n / b: k steps of latency a, n bytes that a
device sends at b per second (`SENDS`: by rings). Relative errors are minimised; intervals are two standard errors wide
on either side.

Source: reconstructed (linear least squares).
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import numpy as np

from instances.errors import InstanceError
from instances.files import read_lines
from instances.generators.hardware import HARDWARE
from instances.parameters import MAX_COUNT
from instances.units import parse_bytes, parse_time
from planner.files.tables import Numbers, rows_of
from planner.process.errors import UsageError

COLUMNS: Numbers = {
    "flops": (parse_bytes, 0.0),
    "moved_bytes": (parse_bytes, 0.0),
    "products": (parse_bytes, 0.0),
    "devices": (parse_bytes, 0.0),
    "bytes": (parse_bytes, 0.0),
    "compute_seconds": (parse_time, 0.0),
    "sending_seconds": (parse_time, 0.0),
    "seconds": (parse_time, None),
}
_NOTES = ("name", "collective", "link")
#: By collective on n devices the steps, and the share of a tensor that a device sends.
SENDS: Mapping[str, Callable[[float], tuple[float, float]]] = {
    "all-reduce": lambda n: (2 * (n - 1), 2 * (n - 1) / n),
    "all-gather": lambda n: (n - 1, (n - 1) / n),
    "reduce-scatter": lambda n: (n - 1, (n - 1) / n),
    "all-to-all": lambda n: (n - 1, (n - 1) / n),
    "send": lambda _: (1.0, 1.0),
}
LINKS = ("inner", "outer")
#: A kind of work of which the others are, in all measurements, a multiple within this is not fitted.
_SAME = 1e-6
#: Fewer measurements than this say nothing of their spread.
_LEAST = 3


@dataclass(frozen=True)
class Rate:
    """A rate per second, seconds or a share, and the ends of its interval (``None``: there is no upper end)."""

    value: float
    low: float
    high: float | None

    def over(self, peak: float) -> list[float | None]:
        """As shares of a peak."""
        return [self.value / peak, self.low / peak, None if self.high is None else self.high / peak]


@dataclass(frozen=True)
class Fit:
    """What was fitted: a rate is ``None`` where the measurements show nothing of it. Errors are relative.

    ``start`` is of a product, ``latencies`` and ``links`` by level, in seconds and in bytes per second; ``overlap`` is
    the share of the shorter of computing and sending that is hidden where both are begun at once.
    """

    products: Rate | None
    memory: Rate | None
    measurements: int
    median_error: float
    worst_error: float
    worst: str
    start: Rate | None = None
    latencies: Mapping[str, Rate | None] = field(default_factory=dict)
    links: Mapping[str, Rate | None] = field(default_factory=dict)
    overlap: Rate | None = None


def fit_rates(rows: Sequence[dict[str, Any]], where: str) -> Fit:
    """The rates that fit measurements best, none of them negative.

    ``rows``: as `COLUMNS`, with ``seconds`` and ``name``; what is absent is 0.
    `InstanceError` if a kind of them has fewer than three, one took no time, or has nothing that takes any.
    """
    for row in rows:
        if not row["seconds"] > 0:
            raise InstanceError.at(where, f"seconds of {row['name'] or 'a line'}", row["seconds"], "a positive time")
    kinds: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        kinds.setdefault(_kind(row, where), []).append(row)
    for kind, own in (kinds or {"forward": []}).items():
        if len(own) < _LEAST:
            what = "measurements" if kind == "forward" else f"measurements of {kind}"
            raise InstanceError.at(where, what, len(own), f"at least {_LEAST}")
    misses: list[tuple[float, str]] = []
    columns = ("flops", "moved_bytes", "products")
    found = dict(zip(columns, _fit(kinds.get("forward", []), columns, where, misses), strict=True))
    links = {link: _fit(kinds.get(link, []), ("sent", "steps"), where, misses) for link in LINKS if link in kinds}
    error, worst = max(misses, default=(0.0, ""))
    return Fit(
        _rate(found["flops"]),
        _rate(found["moved_bytes"]),
        len(rows),
        float(median([miss for miss, _ in misses] or [0.0])),
        error,
        worst,
        _seconds(found["products"]),
        {link: _seconds(each) for link, (_, each) in links.items()},
        {link: _rate(each) for link, (each, _) in links.items()},
        _overlap(kinds.get("overlap", [])),
    )


def _kind(row: dict[str, Any], where: str) -> str:
    """What a line measures; of a collective, what its devices send is noted in it."""
    collective, link = row.get("collective"), row.get("link") or LINKS[0]
    if collective:
        if collective not in SENDS:
            raise InstanceError.at(where, "collective", collective, f"one of {', '.join(SENDS)}")
        if link not in LINKS:
            raise InstanceError.at(where, "link", link, " or ".join(LINKS))
        if not 2 <= row["devices"] <= MAX_COUNT:
            raise InstanceError.at(where, f"devices of {row['name'] or collective}", row["devices"], "2 or more")
        row["steps"], share = SENDS[collective](row["devices"])
        row["sent"] = share * row["bytes"]
        return str(link)
    if row.get("compute_seconds") and row.get("sending_seconds"):
        return "overlap"
    return "forward"


def _fit(
    rows: Sequence[dict[str, Any]], columns: Sequence[str], where: str, misses: list[tuple[float, str]]
) -> list[tuple[float, float] | None]:
    """Seconds of a unit of each column with their standard error; adds how far off each measurement is."""
    if not rows:
        return [None] * len(columns)
    work = np.array([[row.get(name, 0.0) / row["seconds"] for name in columns] for row in rows])
    used = [place for place in range(len(columns)) if work[:, place].any()]
    if not used:
        raise InstanceError.at(where, " and ".join(columns[:2]), 0, "operations or bytes in some line")
    scaled = work / np.maximum(np.abs(work).max(axis=0), np.finfo(float).tiny)
    while np.linalg.matrix_rank(scaled[:, used], tol=_SAME) < len(used):
        used.pop()  # of two that grow with each other the measurements show one
    slowness, errors = _least_squares(work[:, used])
    while len(used) > 1 and slowness.min() <= 0:  # one that comes out negative is not shown by the measurements
        used.pop(int(slowness.argmin()))
        slowness, errors = _least_squares(work[:, used])
    off = np.abs(work[:, used] @ slowness - 1).tolist()
    misses += [(miss, row["name"] or "a line without a name") for miss, row in zip(off, rows, strict=True)]
    found = dict(zip(used, zip(slowness.tolist(), errors.tolist(), strict=True), strict=True))
    return [found.get(place) for place in range(len(columns))]


def _least_squares(work: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Seconds for one unit of each kind of work, and their standard errors; the sides are all 1."""
    scale = np.abs(work).max(axis=0)
    scaled = work / scale
    slowness, *_ = np.linalg.lstsq(scaled, np.ones(len(work)), rcond=None)
    left = ((scaled @ slowness - 1) ** 2).sum() / max(1, len(work) - work.shape[1])
    errors = np.sqrt(left * np.diag(np.linalg.pinv(scaled.T @ scaled)))
    return slowness / scale, errors / scale


def _rate(found: tuple[float, float] | None) -> Rate | None:
    if found is None:
        return None
    slowness, error = found
    quickest = slowness - 2 * error
    return Rate(1 / slowness, 1 / (slowness + 2 * error), 1 / quickest if quickest > 0 else None)


def _seconds(found: tuple[float, float] | None) -> Rate | None:
    return None if found is None else Rate(found[0], max(0.0, found[0] - 2 * found[1]), found[0] + 2 * found[1])


def _overlap(rows: Sequence[dict[str, Any]]) -> Rate | None:
    """The mean share that is hidden, from 0 to 1."""
    if not rows:
        return None
    alone = [(row["compute_seconds"], row["sending_seconds"], row["seconds"]) for row in rows]
    shares = [(compute + sending - both) / min(compute, sending) for compute, sending, both in alone]
    middle, error = mean(shares), stdev(shares) / math.sqrt(len(shares))
    return Rate(*(min(1.0, max(0.0, each)) for each in (middle, middle - 2 * error, middle + 2 * error)))


def calibrate(file: str) -> Fit:
    """The fit of a table of measurements; `InstanceError` for what breaks a rule, `UsageError` for no file."""
    if not Path(file).is_file():
        raise UsageError.at("MEASUREMENTS", file, "a file that is there")
    found = fit_rates(list(rows_of(read_lines(Path(file)), file, COLUMNS, _NOTES).values()), file)
    rates = (found.products, found.memory, *found.links.values())
    if not all(math.isfinite(each.value) for each in rates if each is not None):
        raise InstanceError.at(file, "rates", "infinite", "measurements that show one")
    return found


#: What a file of rates may have, beside the device whose other numbers it takes; each a number, or with its interval.
_IN_FILES = (
    *("flop_per_s", "memory_bytes_per_s", "product_start_s", "overlap"),
    *(f"{link}_{what}" for link in LINKS for what in ("latency_s", "bytes_per_s")),
)


def rates_in(fit: Fit) -> dict[str, Rate | None]:
    """The rates of a fit by their names in files."""
    found: dict[str, Rate | None] = {"flop_per_s": fit.products, "memory_bytes_per_s": fit.memory}
    found |= {"product_start_s": fit.start} if fit.start is not None else {}
    for link in fit.links:
        found |= {f"{link}_latency_s": fit.latencies[link], f"{link}_bytes_per_s": fit.links[link]}
    return found | ({} if fit.overlap is None else {"overlap": fit.overlap})


def read_rates(file: str) -> tuple[str, str, dict[str, float]]:
    """The device of a file of rates, the type of its products, and the rates; `InstanceError` for what is none."""
    try:
        content = json.loads(read_lines(Path(file)))
        own = {name: each[0] if isinstance(each, list) else each for name, each in content["rates"].items()}
        device, dtype = str(content["hardware"]), str(content.get("dtype", "bf16"))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InstanceError(f"{file}: {error}; expected hardware and rates, as calibrate --out writes them") from None
    if device not in HARDWARE:
        raise InstanceError.at(file, "hardware", device, f"one of {', '.join(HARDWARE)}")
    if dtype not in (peaks := HARDWARE[device].peak_flop_per_s):
        raise InstanceError.at(file, "dtype", dtype, f"one of {', '.join(peaks)}")
    for name, value in own.items():
        if name not in _IN_FILES:
            raise InstanceError.at(file, "rates", name, f"one of {', '.join(_IN_FILES)}")
        if value is not None and not (isinstance(value, int | float) and 0 <= value < math.inf):
            raise InstanceError.at(file, name, value, "a number from 0 on")
    # Faster than the data sheet: measurements that start and end elsewhere, or another device.
    for name, most in (
        ("flop_per_s", peaks[dtype]),
        ("memory_bytes_per_s", HARDWARE[device].memory_bandwidth_bytes_per_s),
    ):
        if (own.get(name) or 0.0) > most:
            raise InstanceError.at(file, name, own[name], f"at most {most:g}, the peak of {device}")
    return device, dtype, {name: float(value) for name, value in own.items() if value}
