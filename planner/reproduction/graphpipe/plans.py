"""What GraphPipe's tables and figures share: models, methods, and the columns of what a method finds.

Two plans of every run matter. The one with the least bottleneck is the optimum of the paper's objective (Equation 1).
The one with the quickest simulated iteration of all micro-batch sizes is what its throughputs are (Appendix A.2:
micro-batch sizes are swept to maximise throughput).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from instances.parameters import one_of, parse_names
from planner.files.load import load
from planner.reproduction.claim import Note, verified_result
from planner.results.result import Result
from solvers.outcome import Limits

MODELS = ("mmt", "dlrm", "candle-uno")
#: Sequential pipelines come first: GraphPipe is compared with them.
METHODS = ("data-parallel", "pipedream", "piper-dp", "graphpipe", "graphpipe-plus")
SEQUENTIAL = ("pipedream", "piper-dp")
DEVICES = (4, 8, 16, 32)
#: Who may own an operator at which branches fork or join (``planner solve --terminals``); the first is the default.
TERMINALS = ("branch", "series")
#: Seconds for each method on each instance by default.
TIME_LIMIT_S = 60.0
#: The least memory of a method is found to within this, relative.
_LEAST = 0.005
#: Branches as Appendix A.2 has them (the catalog's own), and as the text of section 7.2.
SHAPES: Mapping[str, Mapping[str, Mapping[str, int]]] = {
    "appendix": {model: {} for model in MODELS},
    "text": {"mmt": {"branches": 2}, "dlrm": {"dense": 4, "sparse": 4}, "candle-uno": {"branches": 8}},
}
INPUTS = "models of the catalog on devices like a V100, analytic times (the paper's profiles are not public)"
COLUMNS = (
    "tps_s, tps_iteration_s: the plan of the least bottleneck (seconds per sample; the paper's objective) and its "
    "simulated iteration; tps_bound_s: what no plan of any micro-batch size goes below, where that is proved; "
    "microbatch to samples_per_s: the plan of the quickest simulated iteration, with its own bottleneck_s; nothing "
    "runs on devices here, so throughputs compare with the paper's in kind only"
)
MEMORY = "memory is as given, 15 GB if it is not; the paper's is close to its limit (Appendix A.2)"


def settings_of(devices: int, shape: Mapping[str, int], memory: float | None = None) -> dict[str, Any]:
    """What an instance is declared with; memory only where it is given."""
    return {"devices": devices, **({} if memory is None else {"memory": memory}), **shape}


def models(value: Any) -> tuple[str, ...]:
    """Names of models, from text or a sequence."""
    return _chosen(value, MODELS)


def methods(value: Any) -> tuple[str, ...]:
    """Names of methods, from text or a sequence."""
    return _chosen(value, METHODS)


def _chosen(value: Any, known: tuple[str, ...]) -> tuple[str, ...]:
    try:
        return tuple(one_of(*known)(name) for name in parse_names(value))
    except ValueError:
        raise ValueError(f"names separated by commas, of {', '.join(known)}") from None


def plan_by(
    model: str, method: str, time_limit: float, note: Note, terminals: str = TERMINALS[0], **declared: Any
) -> Result:
    """The verified result of a method on a model of the catalog; ``terminals`` is a reading of ``graphpipe`` alone."""
    shown = ", ".join(f"{name} {value}" for name, value in declared.items())
    note(f"{model}, {shown}: {method}")
    reading = {"terminals": terminals} if method == "graphpipe" else {}
    return verified_result(load(model, **declared), method, limits=Limits(time_s=time_limit), **reading)


def memory_near(model: str, percent: float | None, time_limit: float, note: Note, **declared: Any) -> dict[str, float]:
    """``memory``: so many percent above the least, in bytes, with which ``pipedream`` has a plan; none for ``None``.

    Appendix A.2 chooses mini-batches "such that the system operates close to the memory limit" and prints no memory in
    use: this is such a limit in this cost model, by the method that is compared with.
    """
    if percent is None:
        return {}
    note(f"{model}: the least memory with which pipedream has a plan")
    instance: Any = load(model, **declared)
    low, high = 0.0, float(instance.memory_bytes)
    while high - low > _LEAST * high:
        middle = (low + high) / 2
        limits = Limits(time_s=time_limit)
        found = verified_result(load(model, **{**declared, "memory": middle}), "pipedream", limits=limits)
        low, high = (low, middle) if found.plan is not None else (middle, high)
    return {"memory": high * (1 + percent / 100)}


def columns(found: Result, microbatch: int | None = None) -> dict[str, Any]:
    """What a table shows of a result, at one micro-batch size if given; ``None`` where there is no plan."""
    sweep = [row for row in sweep_rows(found) if microbatch in (None, row["microbatch"])]
    least: Mapping[str, Any] = min(sweep, key=lambda row: float(row["tps_s"]), default={})
    quickest: Mapping[str, Any] = min(sweep, key=lambda row: float(row["iteration_s"]), default={})
    return {
        "method": found.method,
        "stop": found.stop.value,
        "tps_s": least.get("tps_s"),
        "tps_bound_s": None if microbatch else found.bound,
        "tps_microbatch": least.get("microbatch"),
        "tps_iteration_s": least.get("iteration_s"),
        "microbatch": quickest.get("microbatch"),
        "stages": quickest.get("stages"),
        "depth": quickest.get("depth"),
        "bottleneck_s": quickest.get("tps_s"),
        "iteration_s": quickest.get("iteration_s"),
        "samples_per_s": quickest.get("samples_per_s"),
    }


def sweep_rows(found: Result) -> Sequence[Mapping[str, Any]]:
    """A row for each micro-batch size that was tried."""
    rows: Any = found.stats.get("sweep", ())
    return list(rows)


def effort(found: Result) -> dict[str, Any]:
    """Seconds of the search without compiling, its transitions, and into how many operators it merged them."""
    return {
        "seconds": found.seconds,
        "transitions": found.stats.get("transitions"),
        "merged_into": found.stats.get("merged_into"),
    }


def sizes(found: Result) -> tuple[int, ...]:
    """The micro-batch sizes at which there is a plan, ascending."""
    return tuple(sorted({int(row["microbatch"]) for row in sweep_rows(found)}))


def ratio(above: float | None, below: float | None) -> float | None:
    """A quotient, ``None`` where a number is missing or nothing can be divided by."""
    return None if above is None or not below else above / below


def spread(values: Iterable[float | None], digits: int = 2) -> str:
    """In words, between which numbers these lie; a dash if there are none.

    >>> spread([1.25, None, 2.0]), spread([1.5, 1.5]), spread([])
    ('1.25 to 2.00', '1.50', '-')
    """
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    low, high = (f"{bound(known):.{digits}f}" for bound in (min, max))
    return low if low == high else f"{low} to {high}"
