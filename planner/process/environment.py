"""What the process needs from the system it runs on, and the one line for what it did not get.

Standard library only, and little of it: it is read before anything else.
"""

import errno
from collections.abc import Iterator

try:
    import resource
except ImportError:  # not on Windows, which has no such limits
    resource = None  # type: ignore[assignment]

#: Address space (``ulimit -v``) below which numba, OR-tools and HiGHS cannot all be loaded: what happens then is up to
#: their C code, which may end the process.
LEAST_ADDRESS_BYTES = 2**30
#: Errors of a full disk, or of a limit of files (``ulimit -f``, quotas).
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: Errors of limits of memory, processes and open files.
_SHORT = (errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE)
#: Words of the loader of native libraries that it had no room.
_UNLOADED = ("failed to map segment", "cannot allocate memory", "Could not find/load shared object")


def refusal() -> str | None:
    """Why nothing can run here, in one line; ``None`` if nothing is known to speak against it."""
    most = _limit("RLIMIT_AS")
    if most is None or most >= LEAST_ADDRESS_BYTES:
        return None
    rule = f"at least {LEAST_ADDRESS_BYTES // 1024}, or unlimited: numba, OR-tools and HiGHS are loaded"
    return f"ulimit -v is {most // 1024}; expected {rule}"


def system_error_line(error: BaseException) -> str | None:
    """The one line for an error that the system caused, or one that led to it; ``None`` for any other error."""
    return next(filter(None, map(_line, _chain(error))), None)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and following not in seen:
        seen.append(following)
        yield following
        following = following.__cause__ or following.__context__


def _line(error: BaseException) -> str | None:
    said = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _SHORT) or _is_short(error):
        return f"the memory, processes or files of this machine are {said!r}; expected more (ulimit -a), or less work"
    if isinstance(error, OSError) and error.errno in _FULL:
        rule = "a disk with room (df, ulimit -f), also for temporary files (TMPDIR)"
        return f"{error.filename or 'a file'} is {error.strerror!r}; expected {rule}"
    return None


def _is_short(error: BaseException) -> bool:
    said = str(error)
    if isinstance(error, RuntimeError) and said == "can't start new thread":
        return True
    return isinstance(error, ImportError | OSError) and any(words in said for words in _UNLOADED)


def _limit(name: str) -> int | None:
    soft = -1 if resource is None else resource.getrlimit(getattr(resource, name))[0]
    return None if soft < 0 else int(soft)
