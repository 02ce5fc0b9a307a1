"""A folder for the files of one run, which does not stay."""

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FOLDER, _YOUNG_S = "planner-run-", 60.0


@contextmanager
def folder() -> Iterator[str]:
    """A new folder, locked by this process and those that it forks, and removed at the end.

    A run that is killed leaves a folder without a lock, which the next run removes.
    """
    import fcntl

    _remove_left()
    with tempfile.TemporaryDirectory(prefix=_FOLDER, ignore_cleanup_errors=True) as made:
        lock = os.open(made, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield made
        finally:
            os.close(lock)


def _remove_left() -> None:
    """Remove the folders of runs that were killed: those of this user that no process has locked.

    Between making a folder and locking it, a run may be slow: young folders stay.
    """
    import fcntl

    for found in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*"):
        try:
            facts = found.lstat()
            if (
                not stat.S_ISDIR(facts.st_mode)
                or facts.st_uid != os.getuid()
                or time.time() - facts.st_mtime < _YOUNG_S
            ):
                continue
            lock = os.open(found, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:  # another run has just removed it, or it cannot be read
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # its run is there
            continue
        else:
            shutil.rmtree(found, ignore_errors=True)
        finally:
            os.close(lock)
