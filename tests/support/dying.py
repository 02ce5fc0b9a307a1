"""Work that kills its process; imports next to nothing, since new processes import it again and again."""

import os
import signal
from pathlib import Path


def dies_once(folder: str, number: int) -> int:
    """The square of a number; the first process that gets number 3 dies, and leaves a file."""
    mark = Path(folder) / "died"
    if number == 3 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def dies(_: int) -> None:
    """Never returns."""
    os.kill(os.getpid(), signal.SIGKILL)
