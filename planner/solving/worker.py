"""Run a piece of work in a thread of its own: keep its time limit, receive signals, and leave it behind if it hangs."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from planner.process import signals
from planner.process.errors import UsageError
from solvers.outcome import Limits, Stop, Watch
from solvers.trust.pins import BackendError

POLL_S = 0.05
#: A method that is to stop may take this long (and this share of its limit) before it is left behind:
#: less than half of what the interface allows, the rest is for checking and printing.
GRACE_S, GRACE_SHARE = 0.4, 0.05


class Worker(threading.Thread):
    """Runs ``prepare`` and then ``work``, with the watch's clock started in between, and then ``finish``.

    ``outcome`` is what the work returned and ``seconds`` how long it took; ``error`` is what one of them raised. A
    daemon: a worker that does not stop does not keep the process alive.
    """

    def __init__(
        self,
        prepare: Callable[[], None],
        work: Callable[[], Any],
        watch: Watch,
        finish: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(daemon=True, name="planner-worker")
        self._prepare, self._work, self._watch, self._finish = prepare, work, watch, finish
        self.prepared, self.worked, self.done = threading.Event(), threading.Event(), threading.Event()
        self.prepare_s = 0.0
        self.seconds = 0.0
        self.outcome: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """The thread's body; errors are kept for whoever waits."""
        for step in (self._run, self._finish):
            try:
                step()
            except BaseException as error:  # handed to the waiting thread, which raises it
                self.error = self.error or error
            self.worked.set()
        self.done.set()

    def _run(self) -> None:
        self._prepare()
        self.prepare_s = self._watch.elapsed_s()
        self._watch.start()
        self.prepared.set()
        try:
            self.outcome = self._work()
        finally:
            self.seconds = self._watch.elapsed_s()


class Received:
    """The signals that arrived during a run: the first one's number, how many, and the watches they stop."""

    def __init__(self, watch: Watch) -> None:
        self.signal: int | None = None
        self.times = 0
        self.watches = [watch]

    def receive(self, number: int, _frame: FrameType | None) -> None:
        """The signal handler."""
        self.signal = self.signal or number
        self.times += 1
        for watch in self.watches:
            watch.stop(Stop.INTERRUPTED)


@contextmanager
def signals_stop(watch: Watch) -> Iterator[Received]:
    """Let Ctrl-C and SIGTERM stop the watch instead of raising, where this thread may set signal handlers.

    A signal that the program ignores or leaves to the system (SIGTERM, outside the command line) is left alone. One
    that the command line noted before this counts, and the command line learns of those received here.
    """
    received = Received(watch)
    noted = signals.pending()
    if noted is not None:
        received.receive(noted, None)
    previous: dict[int, Any] = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                handler = signal.getsignal(number)
                if callable(handler):
                    previous[number] = handler
                    signal.signal(number, received.receive)
        yield received
    finally:
        for known, handler in previous.items():
            signal.signal(known, handler)
        if received.signal is not None:
            signals.note(received.signal)


def attend(worker: Worker, watch: Watch, limits: Limits, received: Received) -> bool:
    """Start the worker and wait; false if it did not come back in time and was left behind.

    One whose work is done may be left while it finishes: its outcome counts.
    Its error, if it had one, is raised here; a solver that was refused (`solvers.trust.pins`) is a `UsageError`.
    """
    give_up: float | None = None
    worker.start()
    while not worker.done.wait(POLL_S):
        now = time.perf_counter()
        # The time limit does not run while kernels compile, nor stops what is done; a signal counts at any time.
        is_over = bool(watch.flag[0])
        if worker.worked.is_set():
            is_over |= watch.remaining_s() == 0.0
        elif worker.prepared.is_set():
            is_over = watch.stopped()
        if not is_over:
            continue
        share = GRACE_SHARE * (limits.time_s or 0.0) if watch.reason is Stop.TIME_LIMIT else 0.0
        give_up = give_up or now + GRACE_S + share
        if now >= give_up or received.times > 1:
            if worker.worked.is_set():
                break
            return False
    if isinstance(worker.error, BackendError):
        raise UsageError(str(worker.error)) from None
    if worker.error is not None:
        raise worker.error
    return True


def any_left_behind() -> bool:
    """Whether some worker of this process is still running."""
    return any(isinstance(thread, Worker) for thread in threading.enumerate())
