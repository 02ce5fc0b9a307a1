"""What ``planner import`` and ``planner profile`` call: a user's model in a process of its own.

`capture.import_model` does the work there. This process never calls the user's code; it gets plain numbers, and reads
the instance among them like one from a file.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from planner.files.load import family_of, read_declared
from planner.process.errors import UsageError
from planner.training import scratch
from planner.training.capture.models import expect_packages, quiet
from planner.training.forked import Begin, Deadline, End, Outcome, expect_limit, run_in_fork
from planner.types import Instance

#: Where PyTorch's compiler keeps files; without it, in a folder of its own among the temporary files, which stays.
_COMPILER = "TORCHINDUCTOR_CACHE_DIR"
#: Seconds in which a driver says how many GPUs it has; it takes less than one.
_ASKING_S = 30.0


class Strict(BaseModel):
    """Values of just these names and types."""

    model_config = ConfigDict(strict=True, extra="forbid")


class _Figures(Strict):
    instance: str
    nodes: int
    edges: int
    downsets: int | None
    parameters: float
    parameter_bytes: float
    forward_flops: float
    saved_bytes: float
    tied: dict[str, list[int]]
    replicated_ops: int
    hardware: str
    source: str
    microbatch: int
    dtype: str
    warnings: list[str]
    seconds: float


class _Row(Strict):
    name: str
    forward_s: float
    backward_s: float
    spread: float
    forward_flops: float


class _Rows(Strict):
    instance: str
    device: str
    repeats: int
    rows: list[_Row]


class _Said(Strict):
    instance: dict[str, Any]
    warnings: list[str]


class _Brought(_Said):
    figures: _Figures
    notes: list[str]


class _Profiled(_Said):
    figures: _Rows
    table: str


@dataclass(frozen=True)
class CapturedInstance:
    """An instance, the figures that the command shows beside it, and what is to be noted."""

    instance: Instance
    figures: Mapping[str, Any]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    printed: str
    table: str = ""


@contextmanager
def prepare_torch(folder: str, *packages: str) -> Iterator[None]:
    """PyTorch is imported with what torch.export needs, for forks of this process; its compiler writes to ``folder``.

    `UsageError` if it is not installed, or one of the other ``packages`` that forks need.
    """
    is_ours = _COMPILER not in os.environ
    if is_ours:
        os.environ[_COMPILER] = os.path.join(folder, "compiler")
    # Asking CUDA how many devices there are would keep forks from using them.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    try:
        count_gpus()
        _import(packages)
        yield
    finally:
        if is_ours:
            os.environ.pop(_COMPILER, None)


@cache
def count_gpus() -> int:
    """How many GPUs there are, asked in a fork: where CUDA or NVML were started, forks of the process cannot use them.

    The number is noted where PyTorch looks first.
    """
    import torch

    if not torch.cuda._is_compiled():
        return 0
    if torch.cuda.is_initialized():
        return int(torch.cuda.device_count())
    asked = run_in_fork(lambda _: torch.cuda.device_count(), "the number of GPUs", Deadline.after(_ASKING_S))
    torch.cuda._cached_device_count = asked.value if asked.end is End.RETURNED else 0
    return int(torch.cuda._cached_device_count)


@cache
def _import(packages: tuple[str, ...]) -> None:
    import torch

    import planner.training.capture.instances
    import planner.training.capture.profile
    import planner.training.capture.sharding
    import planner.training.capture.trace  # noqa: F401

    if "transformers" in packages:
        import transformers.modeling_utils
        import transformers.models.auto.modeling_auto  # noqa: F401
    with quiet():  # imports what exports import when they first run
        torch.export.export(torch.nn.Linear(1, 1, device="meta"), (torch.empty(1, 1, device="meta"),), strict=False)


def bring_separately(kind: str, model: str, *, time_limit: float, **more: Any) -> CapturedInstance:
    """`bring.bring` in a process of its own; ``more`` is as there.

    `UsageError`: what `bring` raises; and if the process has not ended ``time_limit`` seconds after it was started with
    PyTorch imported, or ends without a result.
    """
    from planner.training.capture.import_model import bring

    def work(_: Begin) -> dict[str, Any]:
        found = bring(kind, model, **more)
        said = _instance_of(found.instance, found.captured.warnings)
        return {**said, "figures": found.to_json(), "notes": [*found.computed_whole(), *found.lost_by_hand()]}

    started = time.perf_counter()
    said, found = _run_work(_Brought, work, "planner import", kind, model, time_limit)
    figures = {**said["figures"], "seconds": time.perf_counter() - started}
    return replace(found, figures=figures, notes=tuple(said["notes"]))


def measure_separately(model: str, *, time_limit: float, **more: Any) -> CapturedInstance:
    """`bring.measure` in a process of its own; arguments and errors as of `bring_separately`."""
    from planner.training.capture.import_model import measure

    def work(_: Begin) -> dict[str, Any]:
        found = measure(model, **more)
        said = _instance_of(found.instance, found.captured.warnings)
        return {**said, "figures": found.to_json(), "table": found.table()}

    said, found = _run_work(_Profiled, work, "planner profile", "torch", model, time_limit)
    return replace(found, table=said["table"])


def file_of(model: str) -> str:
    """The whole path of the file in ``FILE.py:FUNCTION``, as tracebacks have it."""
    file = model.rpartition(":")[0]
    return str(Path(file).resolve()) if file else ""


def _instance_of(instance: Any, warnings: Sequence[str]) -> dict[str, Any]:
    return {"instance": family_of(instance).to_json(instance), "warnings": list(warnings)}


def _run_work(
    schema: type[BaseModel], work: Callable[[Begin], Any], command: str, kind: str, model: str, time_limit: float
) -> tuple[dict[str, Any], CapturedInstance]:
    """What comes of the work, by its schema, and the instance in it."""
    expect_limit(time_limit)
    packages = ("transformers",) if kind == "hf" else ()
    expect_packages("torch", *packages, for_what=command)
    with scratch.folder() as folder, prepare_torch(folder, *packages):
        outcome = run_in_fork(work, model, Deadline.after(time_limit), file_of(model))
    if outcome.end is not End.RETURNED:
        raise refusal(outcome)
    said = check_reply(outcome.value, schema, model)
    instance = read_declared(said["instance"], model, None, {})
    return said, CapturedInstance(instance, said["figures"], tuple(said["warnings"]), (), outcome.printed)


def check_reply(value: Any, schema: type[BaseModel], model: str) -> dict[str, Any]:
    """A reply that keeps a schema, as it is; `UsageError` for another one, as the user's code ran where it was made."""
    try:
        schema.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(
            f"{model}: reply of its process is wrong at {where} ({first['msg']}); expected a result"
        ) from None
    found: dict[str, Any] = value
    return found


def refusal(outcome: Outcome) -> UsageError:
    """Why there is no model, in one line."""
    rule = "" if outcome.end is not End.ENDED else "; expected a function that returns a model that can be traced"
    return UsageError(f"{outcome.words}{rule}")
