"""``python -m planner`` and the console script."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line and leave the process, even if a method does not."""
    _keep_stdout()
    from planner.cli import main as command_line
    from planner.worker import any_left_behind

    code = command_line()
    sys.stdout.flush()
    sys.stderr.flush()
    if any_left_behind():
        # A method that ignores the request to stop must not keep a finished command alive.
        os._exit(code)
    sys.exit(code)


def _keep_stdout() -> None:
    """Keep standard output for results: HiGHS 1.12 sometimes prints a line from C, which --json forbids."""
    sys.stdout.flush()
    sys.stdout = os.fdopen(os.dup(1), "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)
    os.dup2(2, 1)


if __name__ == "__main__":
    main()
