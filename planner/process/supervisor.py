"""Stands between the planner and code that is not the planner's, and ends all that this code starts.

Run by `process.supervised` as ``python supervisor.py PATHS MODULE NUMBER...``. It forks twice, and the second fork
calls ``main(*numbers)`` of MODULE, with PATHS (a JSON list) to import from. The two above it are supervisors. Standard
input of both is a pipe whose other end only the planner holds. When that is closed, or what is below has ended, a
supervisor ends every process that is left below it, and ends as the code did.

On Linux a process below a supervisor that loses its parent becomes a child of it (a subreaper), whatever its session
and its environment are, so that none is missed. Elsewhere the process group is ended. Code that ends one supervisor is
ended by the other: the upper one adopts what the lower one had, and the lower one knows of the upper one's end when the
planner, whose child that is, closes the pipe.

It starts before everything else, and imports the standard library alone.
"""

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

#: Of the length before each object that is sent.
LENGTH_BYTES = 8
#: Begins a line that a supervisor itself says where replies go.
NOTE = b"\0supervisor: "
#: Seconds for ending all processes, which a busy machine takes for hundreds of them.
END_S = 10.0
#: For so long it never sleeps: a process that forks and ends, again and again, has to be met between the two.
_BUSY_S = 2.0
_SWEEP_S = 0.002
#: Seconds from one look at all processes of the system, which may be many, to the next; the others are at children.
_LOOK_S = 0.02
_PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    """Run the code, and stay until all of it has ended."""
    paths, module = sys.argv[1:3]
    numbers = [int(each) for each in sys.argv[3:]]
    stand_between(numbers, lambda: _run(json.loads(paths), module, numbers))


def stand_between(numbers: Sequence[int], code_of: Callable[[], None]) -> None:
    """Call the code in a process two forks below; only that one returns from here."""
    _attend_fork(numbers)
    os.setsid()  # the upper supervisor is not in the group of the code
    _attend_fork(numbers)
    _shield(numbers)
    code_of()


def _attend_fork(numbers: Sequence[int]) -> None:
    """Fork; the process itself becomes a supervisor, and only the fork returns from here."""
    if refusal := adopt_orphans():
        os.write(numbers[-1], NOTE + f"no process is adopted (prctl: {refusal}), and one may be left\n".encode())
    below = os.fork()
    if below:
        _close(numbers)
        _attend(below)


def adopt_orphans() -> str:
    """Become the parent of every process below that loses its own; why not, on a system that should be able to."""
    if sys.platform != "linux":
        return ""
    import ctypes

    failed = ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return os.strerror(ctypes.get_errno()) if failed else ""


def _run(paths: Sequence[str], module: str, numbers: Sequence[int]) -> None:
    sys.path[:] = paths
    from importlib import import_module

    import_module(module).main(*numbers)


def _shield(numbers: Sequence[int]) -> None:
    """No standard input; processes that the code starts do not inherit its pipes, and it lacks memory first."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    for number in numbers:
        os.set_inheritable(number, False)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")  # where memory runs out, this goes first, and not the planner


def _close(numbers: Iterable[int]) -> None:
    for number in numbers:
        os.close(number)


def _attend(below: int) -> None:
    """Wait until a child has ended or the planner closes its pipe, and end what is left; does not return."""
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals() - {signal.SIGCHLD})  # nobody else ends it
    while (status := _reap(below)) is None:
        ready, _, _ = select.select([0, woken], [], [])
        if 0 in ready:
            with suppress(OSError):
                os.kill(below, signal.SIGKILL)
            break
        os.read(woken, 1 << 12)
    end_all(below)
    _end_as(status or 0)


def _reap(below: int) -> int | None:
    """The status of a child if it has ended; what others left is taken away."""
    found = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            found = ended[1] if ended[0] == below else found
    return found


def end_all(group: int) -> bool:
    """End a process group and all descendants; whether this process has no child at last."""
    began = looks = time.monotonic()
    with suppress(OSError):
        os.killpg(group, signal.SIGKILL)
    while (now := time.monotonic()) < began + END_S:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return True
        if now >= looks:
            end_descendants(os.getpid())
            looks = time.monotonic() + _LOOK_S
        _end_children()
        time.sleep(0 if now < began + _BUSY_S else _SWEEP_S)
    return False


def _end_children() -> None:
    """SIGKILL for all children, where the system lists them: at once, however many processes there are."""
    me = os.getpid()
    with suppress(OSError), open(f"/proc/{me}/task/{me}/children") as file:
        for number in file.read().split():
            with suppress(ProcessLookupError):
                os.kill(int(number), signal.SIGKILL)


def end_descendants(root: int) -> int:
    """SIGKILL for all processes below one, and their groups, where the system lists processes; how many live.

    The group of this process is left out: the lower supervisor leads that of the code.
    """
    found = _descendants(root)
    groups = {group for _, group, _ in found} - {os.getpgrp()}
    for number in {-group for group in groups} | {number for number, _, _ in found}:
        with suppress(OSError):  # it has ended, or is another user's
            os.kill(number, signal.SIGKILL)
    return sum(lives for _, _, lives in found)


def _descendants(root: int) -> list[tuple[int, int, bool]]:
    """Process and group of all below a process, and whether it lives: its first thread may end before the others."""
    below: dict[int, list[tuple[int, int, bool]]] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, parent, group = file.read().rpartition(b")")[2].split()[:3]
        except (OSError, ValueError):  # it has ended
            continue
        below.setdefault(int(parent), []).append((int(name), int(group), state not in (b"Z", b"X")))
    found: list[tuple[int, int, bool]] = []
    left = [root]
    while left:
        children = below.get(left.pop(), [])
        found += children
        left += [number for number, _, _ in children]
    return found


def receive(requests: int) -> Any:
    """The next object that the planner sent; this process ends where nothing comes any more."""
    import pickle

    return pickle.loads(_exactly(requests, int.from_bytes(_exactly(requests, LENGTH_BYTES), "big")))


def _exactly(requests: int, length: int) -> bytes:
    parts = []
    while length:
        part = os.read(requests, min(length, 1 << 20))
        if not part:
            os._exit(0)
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _end_as(status: int) -> None:
    """End with the status of another process; does not return."""
    if os.WIFSIGNALED(status):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        with suppress(OSError, ValueError):  # SIGKILL has no handler
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 1)


if __name__ == "__main__":
    main()
