"""``python -m planner`` and the console script.

Until `main` begins a signal does what Python does about it, so that this module imports next to nothing.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys

_ENDING = (signal.SIGINT, signal.SIGTERM)


def main() -> None:
    """Run the command line and leave the process, even if a method does not."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    from planner import signals, streams

    out = streams.kept()
    signals.listen(lambda number: streams.end(number, out))
    atexit.register(_ignore)  # as the last of all: Python would give signals their usual meaning back
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    from planner.cli.app import main as command_line
    from planner.worker import any_left_behind

    code = streams.settled(command_line(), out)
    signals.listen(lambda _: os._exit(code))
    if any_left_behind():
        # A method that ignores the request to stop must not keep a finished command alive.
        os._exit(code)
    sys.exit(code)


def _ignore() -> None:
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    main()
