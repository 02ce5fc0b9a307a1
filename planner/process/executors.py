"""Where chunks of work run: this thread, local processes or a dask cluster, all as `concurrent.futures.Executor`."""

import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import connection, util
from typing import Any, TypeVar

from formulations.compiled.compile_times import KernelCacheWarning
from planner.process import idle, signals
from planner.process.errors import UsageError
from planner.process.signals import pending

Result = TypeVar("Result")
Opened = Callable[[], AbstractContextManager[Executor]]

#: Consecutive times that the workers may break down without a single chunk finished.
BREAKDOWNS = 5
#: Chunks that are handed over and not finished; the others are not even read yet.
IN_FLIGHT = 128
#: Times that a cluster runs a chunk again after it lost the worker.
_RETRIES = 5
#: Seconds between two checks for a signal.
POLL_S = 0.1
#: Seconds to wait for a scheduler to answer.
CONNECT_S = 10.0


class WorkersLostError(UsageError):
    """The processes or the cluster that work was given to are gone, and what they had not handed over with them."""


def place(jobs: int = 1, dask: str | None = None) -> Opened:
    """A function that opens an executor: this thread, ``jobs`` local processes, or the cluster at ``dask``.

    `UsageError` if ``jobs`` is below 1, or dask is requested and not installed, or both are requested.
    """
    if dask is not None and jobs != 1:
        raise UsageError.at("--jobs", jobs, "none with --dask")
    if dask is not None:
        _import_distributed()
        return lambda: _cluster(dask)
    if jobs < 1:
        raise UsageError.at("--jobs", jobs, "at least 1")
    return _here if jobs == 1 else lambda: _local(jobs)


def run_each(
    opened: Opened, work: Callable[..., Result], tasks: Iterable[tuple[Any, ...]]
) -> Iterator[tuple[int, Result]]:
    """``work(*task)`` for every task as ``(position, result)``, in the order in which they end.

    Tasks are taken as there is room for them (`IN_FLIGHT`). Workers that die lose only what they had not handed over:
    the rest is given to a new executor. A signal that the command line notes ends it early, and stops the workers'
    methods.

    `WorkersLostError` if the workers break down more than `BREAKDOWNS` times without finishing anything in between, or
    the cluster is gone. What was handed on stays so.
    """
    coming = enumerate(tasks)
    left: dict[int, tuple[Any, ...]] = {}  # handed over, not finished
    breakdowns = 0
    while pending() is None:
        with opened() as executor:
            futures: dict[Future[Result], int] = {}
            try:
                futures.update((executor.submit(work, *task), position) for position, task in left.items())
                while pending() is None:
                    for position, task in coming if len(futures) < IN_FLIGHT else ():
                        left[position] = task
                        future = executor.submit(work, *task)
                        futures[future] = position
                        if len(futures) >= IN_FLIGHT or future.done():
                            break
                    if not futures:
                        return
                    for future in wait(futures, POLL_S, FIRST_COMPLETED).done:
                        result = future.result()
                        breakdowns = 0
                        position = futures.pop(future)
                        del left[position]
                        yield position, result
            except BrokenExecutor:
                breakdowns += 1
                if breakdowns > BREAKDOWNS:
                    rule = "processes that live: memory for all of them, or --jobs 1, which shows what ends them"
                    said = f"ended {breakdowns} times before one of them had a result"
                    raise WorkersLostError.at("--jobs", said, rule) from None
            finally:
                for future in futures:
                    future.cancel()


@dataclass(frozen=True)
class Ended:
    """How a run came to its end: by a ``signal``, by workers that are ``lost`` (how, in words), or by itself."""

    signal: int | None = None
    lost: str | None = None


def run_tasks(
    opened: Opened,
    work: Callable[..., Result],
    tasks: Iterable[tuple[Any, ...]],
    keep: Callable[[int, Result], int | None],
) -> Ended:
    """Do the tasks as `run_each` does, and keep what comes of each as it ends.

    ``keep``: called with the position of a task and its result; returns the signal that cut the task short, if one did.
    """
    try:
        for position, result in run_each(opened, work, tasks):
            signal = keep(position, result)
            if signal is not None:
                return Ended(signal)
    except WorkersLostError as error:
        return Ended(pending(), str(error))
    return Ended(pending())


@contextmanager
def _here() -> Iterator[Executor]:
    with idle.kept():
        yield _Here()


class _Here(Executor):
    """Runs what is submitted at once, in this thread, where methods receive signals."""

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        future: Future[Result] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class _Processes(ProcessPoolExecutor):
    """Processes that block Ctrl-C: this process receives it and decides what it means for them."""

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        if threading.current_thread() is not threading.main_thread():
            return super().submit(fn, *args, **kwargs)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return super().submit(fn, *args, **kwargs)  # starts a process if none is idle
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


#: What this process, one of several, does when it ends.
_LIFE = ExitStack()
#: As ``-W`` takes it.
_TRACKER = "ignore:resource_tracker:UserWarning"


@contextmanager
def _local(jobs: int) -> Iterator[Executor]:
    # Python's tracker of semaphores, a process that starts with these options, removes what a signal leaves behind;
    # its warning about that is none of the user's.
    if _TRACKER not in sys.warnoptions:
        sys.warnoptions.append(_TRACKER)
    context = multiprocessing.get_context("spawn")  # fork would copy threads of numba and of the solvers
    with _Processes(jobs, mp_context=context, initializer=_begin_work) as processes:
        try:
            yield processes
        finally:
            if pending() is not None:
                for process in multiprocessing.active_children():
                    process.terminate()


def _begin_work() -> None:
    """Print no warning that the parent prints, only note signals, and end with the parent.

    Workers wait for work on a pipe that their siblings hold open, too: after kill -9 of the parent, forever.
    """
    warnings.simplefilter("ignore", KernelCacheWarning)  # the parent has printed it
    signals.listen(lambda _: None)  # methods stop, and the chunk ends; the parent ends the process
    _LIFE.enter_context(idle.kept())
    util.Finalize(None, _LIFE.close, exitpriority=0)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_exit_after, args=(parent.sentinel,), daemon=True).start()


def _exit_after(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)


@contextmanager
def _cluster(address: str) -> Iterator[Executor]:
    distributed = _import_distributed()
    try:
        client = distributed.Client(address, timeout=CONNECT_S)
    except Exception as error:  # each kind of address (tcp, tls, ucx, ...) fails in its own way
        raise UsageError.at("--dask", address, f"the address of a dask scheduler ({error})") from None
    gone = (CancelledError, distributed.KilledWorker, distributed.comm.CommClosedError)
    try:
        with client, client.get_executor(pure=False, retries=_RETRIES) as executor:
            yield executor
    except gone as error:
        said = str(error) or "it lost what it was given"
        raise WorkersLostError.at("--dask", address, f"a scheduler and workers that live ({said})") from None


def _import_distributed() -> Any:
    try:
        import distributed
    except ImportError:
        raise UsageError.at("--dask", "absent", "dask.distributed (pip install '.[cluster]')") from None
    return distributed
