"""Where chunks of work run: this process, local processes or a dask cluster, all as `concurrent.futures.Executor`."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from contextlib import AbstractContextManager, contextmanager
from multiprocessing import connection
from typing import Any, TypeVar

from formulations.compilation import KernelCacheWarning
from planner.errors import UsageError
from planner.signals import noted

Result = TypeVar("Result")
Opened = Callable[[], AbstractContextManager[Executor]]

#: Consecutive times that the workers may break down without a single chunk finished.
BREAKDOWNS = 5
#: Times that a cluster runs a chunk again after it lost the worker.
_RETRIES = 5
#: Seconds between two checks for a signal.
POLL_S = 0.1
#: Seconds to wait for a scheduler to answer.
CONNECT_S = 10.0


def place(jobs: int = 1, dask: str | None = None) -> Opened:
    """A function that opens an executor: one thread here, ``jobs`` local processes, or the cluster at ``dask``.

    Raises
    ------
    UsageError
        If ``jobs`` is below 1, or dask is requested and not installed.
    """
    if dask is not None:
        _distributed()
        return lambda: _cluster(dask)
    if jobs < 1:
        raise UsageError.at("--jobs", jobs, "at least 1")
    return lambda: _local(jobs)


def completed(
    opened: Opened, work: Callable[..., Result], tasks: Sequence[tuple[Any, ...]]
) -> Iterator[tuple[int, Result]]:
    """``work(*task)`` for every task as ``(position, result)``, in the order in which they end.

    Workers that die lose only what they had not handed over: the rest is given to a new executor. A signal that the
    command line notes ends it early.

    Raises
    ------
    BrokenExecutor
        If the workers break down `BREAKDOWNS` times without finishing anything in between.
    """
    left = dict(enumerate(tasks))
    breakdowns = 0
    while left and noted() is None:
        with opened() as executor:
            futures: dict[Future[Result], int] = {}
            try:
                with _uninterrupted():
                    futures.update((executor.submit(work, *task), position) for position, task in left.items())
                waiting = set(futures)
                while waiting and noted() is None:
                    done, waiting = wait(waiting, POLL_S, FIRST_COMPLETED)
                    for future in done:
                        result = future.result()
                        breakdowns = 0
                        del left[futures[future]]
                        yield futures[future], result
            except BrokenExecutor:
                breakdowns += 1
                if breakdowns > BREAKDOWNS:
                    raise
            finally:
                for future in futures:
                    future.cancel()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Processes that are started here block Ctrl-C: this process receives it and decides what it means for them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


#: As ``-W`` takes it.
_TRACKER = "ignore:resource_tracker:UserWarning"


@contextmanager
def _local(jobs: int) -> Iterator[Executor]:
    if jobs == 1:
        with ThreadPoolExecutor(1) as thread:
            yield thread
    else:  # fork would copy threads of numba and of the solvers
        # Python's tracker of semaphores, a process that starts with these options, removes what a signal leaves behind;
        # its warning about that is none of the user's.
        if _TRACKER not in sys.warnoptions:
            sys.warnoptions.append(_TRACKER)
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin_work) as processes:
            yield processes


def _begin_work() -> None:
    """Print no warning that the parent prints, and end with the parent.

    Workers wait for work on a pipe that their siblings hold open, too: after kill -9 of the parent, forever.
    """
    warnings.simplefilter("ignore", KernelCacheWarning)  # the parent has printed it
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_exit_after, args=(parent.sentinel,), daemon=True).start()


def _exit_after(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)


@contextmanager
def _cluster(address: str) -> Iterator[Executor]:
    distributed = _distributed()
    try:
        client = distributed.Client(address, timeout=CONNECT_S)
    except Exception as error:  # each kind of address (tcp, tls, ucx, ...) fails in its own way
        raise UsageError.at("--dask", address, f"the address of a dask scheduler ({error})") from None
    with client, client.get_executor(pure=False, retries=_RETRIES) as executor:
        yield executor


def _distributed() -> Any:
    try:
        import distributed
    except ImportError:
        raise UsageError.at("--dask", "absent", "dask.distributed (pip install 'dnn-planner[cluster]')") from None
    return distributed
