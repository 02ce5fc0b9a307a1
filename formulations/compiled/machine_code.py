"""What Numba makes of declared functions (`numba_kernels`): compiled for declared types, and kept on disk where it can.

Importing this imports numba, a fifth of a second.
"""

import pickle
import re
import sys
import threading
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np

from formulations.compiled import compile_times, python_first

with compile_times.loading():
    from numba import config, njit, types
    from numba.core import environment, event
    from numba.core.caching import FunctionCache
    from numba.core.runtime import rtsys
    from numba.core.typing.typeof import typeof_impl
    from numba.np import numpy_support

compile_times.expect_compiled(config.DISABLE_JIT)

_COMPILING = threading.RLock()

#: Numbers in the declaration of an argument, or of a field of a ``NamedTuple``.
_NUMBERS = {int: types.int64, float: types.float64, bool: types.boolean}

#: Bridges from Python and C to functions of whole tables would take a sixth of the compile time.
_OUTER: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
_INNER: dict[str, Any] = {**_OUTER, "no_cpython_wrapper": True}

#: Every kernel and the types of its arguments.
KERNELS: list[tuple[Any, tuple[Any, ...]]] = []
#: Every inner function.
INNER: list[Any] = []


def complete(declared: Sequence[Any] = ()) -> None:
    """Give functions that were declared (`numba_kernels.Declared`) their place, and what compiles them.

    Kernels are compiled, or loaded from the cache; while an attempt goes on, those that are not kept there are left
    (`python_first`). One thread does so: others, such as of a run that was left behind, wait.
    """
    with _COMPILING:
        new = [each for each in declared if each.made is None]
        for each in new:
            each.made = made = _dispatcher(each)
            if each.arguments is None:
                INNER.append(made)
            else:
                KERNELS.append((made, tuple(map(_type_of, each.arguments))))
        _put_in_place(new)
        is_over = not python_first.goes_on()
        for made, arguments in KERNELS if compile_times.wanted else ():
            if made._can_compile and (is_over or "_compile_for_args" not in vars(made)):
                _compile(made, arguments)
        python_first.left[:] = [complete] if any("_compile_for_args" in vars(made) for made, _ in KERNELS) else []


def _put_in_place(new: list[Any]) -> None:
    """Modules name what was made in place of the declaration: a call then goes there at once."""
    made = {id(each): each.made for each in new}
    theirs = {each.__module__ for each in new}
    # Those of one module were declared as it was imported, and nobody has its names yet.
    names = theirs if len(theirs) == 1 else [name for name in [*sys.modules] if name.startswith("formulations.")]
    for held in [vars(sys.modules[name]) for name in names if new]:
        held |= {name: made[id(value)] for name, value in [*held.items()] if id(value) in made}


def _compile(made: Any, arguments: tuple[Any, ...]) -> None:
    if python_first.goes_on() and not (isinstance(made._cache, _Kept) and made._cache.is_kept(arguments, made)):
        made._compile_for_args = partial(_first_call, made)  # what numba calls where nothing is compiled
        return
    made.compile(arguments)
    made.disable_compile()
    vars(made).pop("_compile_for_args", None)


def _first_call(made: Any, *_arguments: Any) -> Any:
    """What runs in place of a kernel that is not compiled: it as Python, or it once it is compiled."""
    if python_first.goes_on():
        return python_first.as_python(made)
    complete()
    return made


def is_cached(made: Any, arguments: tuple[Any, ...]) -> bool:
    """Whether a kernel of `KERNELS` is in the cache, compiled for these types, and can be loaded from there."""
    return made._cache.load_overload(arguments, made.targetctx) is not None


def _type_of(hint: Any) -> Any:
    """The Numba type of a number, of `array_types`, or of a ``NamedTuple`` class whose fields are such."""
    if hint in _NUMBERS:
        return _NUMBERS[hint]
    if isinstance(hint, type):
        return types.BaseTuple.from_types(map(_type_of, get_type_hints(hint, include_extras=True).values()), hint)
    array, dimensions = get_args(hint)
    scalar = get_args(array)[-1]  # since NumPy 2.5 of NDArray itself, before of the ndarray that it stands for
    scalar = next(iter(get_args(scalar)), scalar)
    return types.Array(numpy_support.from_dtype(np.dtype(scalar)), dimensions, "C")


class _Unpickler(pickle.Unpickler):
    """Reads machine code that was kept, without an import of those modules of numba's that parts of it come from.

    Object mode alone looks at more of a module than its name, and nothing here runs in it. The imports would take as
    long as loading the kernels.
    """

    def find_class(self, module: str, name: str, /) -> Any:
        """Numba's own, but for what makes the environment of a function."""
        found = super().find_class(module, name)
        return _environment if found is environment._rebuild_env else found


def _environment(module: str, constants: Any, name: str) -> Any:
    found = environment.lookup_environment(name)
    if found is None and module.startswith("numba.") and module not in sys.modules:
        found = environment.Environment({"__name__": module})
        found.consts[:], found.env_name = constants, name
        environment.Environment._memo[name] = found
    return found or environment._rebuild_env(module, constants, name)


@cache
def sources(path: Path, root: Path) -> frozenset[Path]:
    """The file of a kernel and those that it imports from our packages, directly or not."""
    found: set[Path] = set()
    to_read = [path]
    while to_read:
        file = to_read.pop()
        if file not in found and file.is_file():
            found.add(file)
            for package, names in _IMPORTED.findall(file.read_text(encoding="utf-8")):
                folder = root.joinpath(*package.split("."))
                to_read += [folder.with_suffix(".py"), *(folder / f"{name.strip()}.py" for name in names.split(","))]
    return frozenset(found)


#: An import from our packages: from where, and the names of its first line.
_IMPORTED = re.compile(r"^from (formulations[\w.]*) import \(?([\w, ]*)", re.MULTILINE)
_ROOT = Path(__file__).resolve().parents[2]


class _Kept(FunctionCache):  # type: ignore[misc]
    """Numba's cache on disk, which a full disk or a damaged file makes slow, not unusable.

    Numba compiles a kernel anew where its own file has changed. Here it does where any file has from which inner
    functions and constants are compiled into it: an older part would answer otherwise than what is read.
    """

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        files = sorted(sources(Path(function.__code__.co_filename), _ROOT))
        stamps = [(each.stat().st_mtime, each.stat().st_size) for each in files]
        self._cache_file._source_stamp = (self._cache_file._source_stamp, stamps)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled function, or ``None``.

        Numba's own would first import all that it can compile, which takes longer than loading the kernels; machine
        code needs the runtime alone. What compiles after a miss imports the rest itself.
        """
        rtsys.initialize(target_context)
        try:
            try:
                return self._load_overload(sig, target_context)
            except FileNotFoundError:  # another process has taken it away
                return None
            # Damaged, or of an earlier version whose classes have moved: it is written anew.
            except (EOFError, pickle.UnpicklingError, AttributeError, ImportError, IndexError):
                self.flush()
        except OSError as error:
            compile_times.warn_not_cached(error)
        return None

    def is_kept(self, sig: Any, made: Any) -> bool:
        """Whether the index names a compiled function."""
        try:
            return self._index_key(sig, made.targetctx.codegen()) in self._cache_file._load_index()
        except (OSError, EOFError, pickle.UnpicklingError):
            return False

    def _load_overload(self, sig: Any, target_context: Any) -> Any:
        name = self._cache_file._load_index().get(self._index_key(sig, target_context.codegen()))
        if name is None:
            return None
        with open(self._cache_file._data_path(name), "rb") as kept:
            return self._impl.rebuild(target_context, _Unpickler(kept).load())

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a compiled function, if that is possible."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            compile_times.warn_not_cached(error)


def _dispatcher(declared: Any) -> Any:
    """A function that can be compiled, with a cache where one can be written."""
    made = njit(**(_INNER if declared.arguments is None else _OUTER) | declared.options)(declared.py_func)
    made.wraps = declared.wraps
    try:
        made._cache = _Kept(declared.py_func)
    except RuntimeError as error:  # Numba's word for no folder that can be written
        if "no locator available" not in str(error):
            raise
        compile_times.warn_not_cached("there is no folder to write them to")
    return made


_numbas_own = typeof_impl.dispatch(np.ndarray)


@typeof_impl.register(np.ndarray)  # type: ignore[untyped-decorator]
def _typeof_array(value: Any, context: Any) -> Any:
    """The type of an array as Numba finds it, but that masked arrays are not imported to see that it is none."""
    if type(value) is not np.ndarray:
        return _numbas_own(value, context)
    layout = numpy_support.map_layout(value)
    return types.Array(numpy_support.from_dtype(value.dtype), value.ndim, layout, readonly=not value.flags.writeable)


class _Listener(event.Listener):  # type: ignore[misc]
    """Reports to `compilation` what Numba compiles."""

    def on_start(self, _event: Any) -> None:
        """A function is being compiled."""
        compile_times.started()

    def on_end(self, _event: Any) -> None:
        """It has been."""
        compile_times.ended()


event.register("numba:compile", _Listener())
