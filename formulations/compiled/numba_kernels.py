"""How loops are declared that Numba compiles, without an import of it: tiny instances are solved before that has ended.

A `kernel` is called from Python and takes the declared types alone: the last line of its module compiles it or loads it
from the cache (`compile_kernels`), and no call compiles anything, but that of one which an attempt (`python_first`)
left uncompiled. An `inner` function is called by kernels only, and compiled with them. `machine_code` does all that.
"""

import threading
from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from formulations.compiled import array_types, python_first

#: Arrays in C order, by their number of dimensions.
INTS, INTS2 = array_types.Ints, array_types.Ints2
HALVES2 = Annotated[NDArray[np.int16], 2]
SHORTS, SHORTS2, SHORTS3 = array_types.Shorts, array_types.Shorts2, array_types.Shorts3
FLOATS, FLOATS2, FLOATS3 = array_types.Floats, array_types.Floats2, array_types.Floats3
WORDS, WORDS2, TRUTHS = array_types.Words, array_types.Words2, array_types.Flags
#: The flag of a `solvers.outcome.Watch`.
FLAG = Annotated[NDArray[np.uint8], 1]
INT, FLOAT, TRUTH = int, float, bool

#: Where a count that is handed on starts: for a literal 0, numba would compile the function called once more.
ZERO: Any = np.int64(0)

FOUND, NONE, STOPPED = 1, 0, -1


class Declared:
    """A function that is to be compiled: a kernel for ``arguments``, or an inner function (``None``).

    ``made`` is what Numba made of it, and stands in its module's place of it from then on.
    """

    def __init__(self, function: Any, arguments: tuple[Any, ...] | None, wraps: bool, options: dict[str, Any]) -> None:
        update_wrapper(self, function)
        self.py_func, self.arguments, self.wraps, self.options = function, arguments, wraps, options
        self.made: Any = None
        vars(_begun).setdefault("declared", []).append(self)

    def __call__(self, *arguments: Any) -> Any:
        """It as Python while that is enough, else compiled."""
        if self.made is None:
            if python_first.without_compiler():
                return python_first.as_python(self)(*arguments)
            _complete()
        return self.made(*arguments)

    @property
    def _numba_type_(self) -> Any:
        return self.made._numba_type_


#: All of modules that have been imported, in their order.
DECLARED: list[Declared] = []
#: Those of the module that this thread imports: kernels come before the inner functions that they call.
_begun = threading.local()


def kernel(*arguments: Any, counted: bool = True, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator for a function that is compiled for arguments of these types.

    Parameters
    ----------
    arguments
        The type of each argument: a name above, or a ``NamedTuple`` class whose fields are numbers and `array_types`. A
        call with an array of another type or layout is a ``TypeError``; numbers are converted.
    counted
        Whether references to arrays are counted, atomically, at each step that names one: a third and more of a loop
        over pairs. Without, a function makes no array and returns none (which numba refuses), nor takes one that
        another made and returned (which nobody would free).
    options
        Numba's, over ours (no GIL, division as numpy's).
    """
    return lambda function: Declared(function, arguments, False, {"_nrt": counted, **options})


def inner(counted: bool = True, wraps: bool = False, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator for a function that only kernels call (`kernel`): compiled with them, for the types they give it.

    ``wraps``: its integers are meant to overflow.
    """
    return lambda function: Declared(function, None, wraps, {"_nrt": counted, **options})


def compile_kernels() -> None:
    """Compile a module's kernels, or load them from the cache; its last line, as they come before their parts."""
    own: list[Declared] = vars(_begun).pop("declared", [])
    if python_first.without_compiler():
        python_first.left[:] = [_complete]
    else:
        _complete(own)
    DECLARED.extend(own)  # not before: who compiles waits for imports, and this import would wait for who compiles


def _complete(own: Sequence[Declared] = ()) -> None:
    from formulations.compiled import machine_code

    machine_code.complete([*DECLARED, *own])
