"""What is set in HiGHS before a run: limits, options, a log, a solution to begin with."""

from collections.abc import Callable, Mapping
from typing import Any

import highspy
import numpy as np

from solvers import logs
from solvers.mute_stdout import silent
from solvers.outcome import OPTIMAL_GAP, Limits, Watch
from solvers.trust.pins import BackendError

#: Options of HiGHS that limits and logs set, beside those of `_configure`.
_OURS = ("presolve", "time_limit", "output_flag", "log_to_console", "log_file")
_RULE = "an option of its own that limits and logs do not set, and a value of its kind"

#: The number of threads that HiGHS's process-wide scheduler was started with.
_scheduler_threads: int | None = None


def configure(highs: highspy.Highs, limits: Limits, options: Mapping[str, float | int | str | bool]) -> None:
    """Set what limits say, a model's own options, and those of the limits; `BackendError` for one that it has not."""
    global _scheduler_threads
    if _scheduler_threads not in (None, limits.threads):
        highspy.Highs.resetGlobalScheduler(True)  # else HiGHS refuses the new number of threads
    _scheduler_threads = limits.threads
    ours: dict[str, float | int | str | bool] = {
        "threads": limits.threads,
        "random_seed": limits.seed,
        "mip_rel_gap": limits.gap if limits.gap > OPTIMAL_GAP else 0.0,
        "mip_abs_gap": 0.0,
        # 1.12's orbital fixing in strong branching loses optima (tests/formulations/mesh_tiling/test_mesh_tiling.py).
        "mip_detect_symmetry": False,
    }
    for name, value in {**ours, **options}.items():
        if highs.setOptionValue(name, value) != highspy.HighsStatus.kOk:
            raise ValueError(f"HiGHS option {name} is {value!r}; expected a name and a value that HiGHS knows")
    for name, text in limits.solver_options:
        refused = name in (*ours, *_OURS) or not knows(name)
        if refused or highs.setOptionValue(name, _parse_value(highs, name, text)) != highspy.HighsStatus.kOk:
            raise BackendError(f"option {name} of HiGHS is {text!r}; expected {_RULE}")
    if limits.solver_log is not None:
        log = limits.solver_log
        highs.setOptionValue("output_flag", True)
        highs.setOptionValue("log_to_console", True)  # without it HiGHS makes no lines; what it prints is `silent`
        highs.cbLogging.subscribe(lambda event: logs.append(log, event.message))


def poll(watch: Watch) -> Callable[[Any], None]:
    """What HiGHS calls as it runs; without a reference to HiGHS, which keeps it."""

    def poll(event: Any) -> None:
        event.data_in.user_interrupt = watch.stopped()

    return poll


def run_for_rest(highs: highspy.Highs, watch: Watch) -> Any:
    """Run HiGHS for what the watch leaves; the status of its model."""
    remaining = watch.remaining_s()
    if remaining is not None:
        highs.setOptionValue("time_limit", highs.getRunTime() + remaining)
    with silent():
        highs.run()
    return highs.getModelStatus()


def knows(name: str) -> bool:
    """Whether HiGHS has an option of this name."""
    with silent():  # HiGHS prints that it does not
        return bool(highspy.Highs().getOptionType(name)[0] == highspy.HighsStatus.kOk)


def _parse_value(highs: highspy.Highs, name: str, text: str) -> Any:
    """An option's value as HiGHS takes it; the text itself where it is none."""
    kind = highs.getOptionType(name)[1]
    try:
        if kind == highspy.HighsOptionType.kBool:
            return {"true": True, "false": False}[text.lower()]
        if kind == highspy.HighsOptionType.kInt:
            return int(text)
        return float(text) if kind == highspy.HighsOptionType.kDouble else text
    except (KeyError, ValueError):
        return text


def set_hint(highs: highspy.Highs, known: Mapping[int, float]) -> None:
    """Hand HiGHS a solution to begin with, by columns."""
    if known:
        indices, numbers = np.array(list(known), dtype=np.int32), np.array(list(known.values()), dtype=np.double)
        highs.setSolution(len(known), indices, numbers)
