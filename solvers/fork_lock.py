"""Locks that are free in a forked process, whoever held them when it was forked."""

import os
import threading
from collections.abc import Callable


class ForkLock:
    """A lock that a forked process finds free: ``with lock.own:``.

    ``renew``: called in the forked process, to put right what the lock guards.
    """

    def __init__(self, renew: Callable[[], None] = lambda: None) -> None:
        self.own = threading.Lock()
        self._renew = renew
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._in_child)

    def _in_child(self) -> None:
        self.own = threading.Lock()  # a thread that is not here any more may have held it
        self._renew()
