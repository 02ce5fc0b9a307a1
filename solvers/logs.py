"""The file that takes what solvers print while they search (``--solver-log``)."""

from solvers.fork_lock import ForkLock

_lock = ForkLock()


def append(path: str, text: str) -> None:
    """Add text to a log, whole lines from one thread at a time; what cannot be written is left out."""
    try:
        with _lock.own, open(path, "a", encoding="utf-8") as file:
            file.write(text if text.endswith("\n") else f"{text}\n")
    except OSError:  # the log is no part of the result, and the disk may be full
        return
