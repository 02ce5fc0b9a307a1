"""``python -m planner`` and the console script."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line and leave the process, even if a method does not."""
    from planner.cli import main as command_line
    from planner.worker import any_left_behind

    code = command_line()
    sys.stderr.flush()
    if any_left_behind():
        # A method that ignores the request to stop must not keep a finished command alive.
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
