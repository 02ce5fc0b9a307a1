"""``python -m planner`` and the console script."""

from __future__ import annotations

import os
import sys

from planner import signals, streams


def main() -> None:
    """Run the command line and leave the process, even if a method does not."""
    out = streams.kept()
    signals.listen(lambda number: streams.end(number, out))
    from planner.cli import main as command_line
    from planner.worker import any_left_behind

    code = streams.settled(command_line(), out)
    signals.listen(lambda _: os._exit(code))
    if any_left_behind():
        # A method that ignores the request to stop must not keep a finished command alive.
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
