"""Where a function or problem that a user brings is, and how the process that runs it gets hold of it."""

import hashlib
import importlib
import importlib.util
import inspect
import os
import pickle
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from planner.process.errors import UsageError

#: The attribute by which `planner.method` marks a function.
DECLARED = "__planner_method__"
#: What a function may take beside the instance, by these names.
ALSO_TAKEN = ("limits", "watch")
_SUFFIX = ".py:"
#: Longer messages of errors are cut.
_LONGEST = 300


class LoadError(Exception):
    """Why there is no function to call: one line."""


@dataclass(frozen=True)
class Target:
    """A function in the file ``file``, in the importable ``module``, or ``pickled`` by cloudpickle.

    ``name`` is what the user calls it, ``function`` its name in the file or module. ``source`` is the text of the file
    as it was read: all runs are of that, whatever becomes of the file (empty: `load` reads the file).
    """

    name: str
    file: str = ""
    source: bytes = field(default=b"", repr=False)
    module: str = ""
    function: str = ""
    pickled: bytes = b""

    @property
    def place(self) -> str:
        """The file or module, for errors."""
        return self.name.rpartition(":")[0] if self.file else self.module

    @property
    def sha256(self) -> str:
        """Of what is run, as far as it is known: the file's text, or what was pickled."""
        content = self.source or self.pickled
        return hashlib.sha256(content).hexdigest() if content else ""

    def load(self) -> Callable[..., Any]:
        """The function; the process that calls this runs the user's code.

        `LoadError` if the file or module cannot be imported, or has no such function.
        """
        if self.pickled:
            try:
                loaded: Callable[..., Any] = pickle.loads(self.pickled)
            except BaseException as error:  # whatever its module does when it is imported
                raise self._no_import(error) from None
            return loaded
        home = self.home()
        found: Callable[..., Any] | None = getattr(home, self.function, None)
        if not callable(found):
            known = [name for name, value in vars(home).items() if inspect.isfunction(value) and name[0] != "_"]
            rule = f"one of {', '.join(known)}" if known else "a function that it has; there is none"
            raise LoadError(f"{self.place}: function is {self.function!r}; expected {rule}")
        return found

    def home(self) -> Any:
        """The module; `LoadError` if it cannot be imported."""
        try:
            return _import_file(self.file, self.source) if self.file else importlib.import_module(self.module)
        except BaseException as error:  # whatever a file does when it is imported
            raise self._no_import(error) from None

    def _no_import(self, error: BaseException) -> LoadError:
        rule = "a file that Python can import" if self.file else "a module that Python can import"
        return LoadError(f"{self.place or self.name}: import is {words(error, self.file)!r}; expected {rule}")


def in_file(name: str, option: str, rule: str, texts: Mapping[str, bytes] = MappingProxyType({})) -> Target | None:
    """What ``FILE.py:NAME`` stands for; ``None``: the name has another form.

    ``option``, ``rule``: for errors: which option has the name, and what it should be. ``texts``: texts of files, by
    path, that stand for the files. `UsageError` if there is no such file, or nothing in it is named.
    """
    if name.endswith(".py"):
        raise UsageError.at(option, name, rule)
    file, sign, function = name.rpartition(_SUFFIX)
    if not sign:
        return None
    file += ".py"
    where, is_other, fault = os.path.abspath(file), False, ""
    try:
        is_other = os.path.exists(where) and not os.path.isfile(where)  # a folder, a device, or a pipe to wait for
        source = b"" if is_other else texts.get(where) or Path(where).read_bytes()
    except (OSError, ValueError) as error:
        fault = f" ({getattr(error, 'strerror', None) or error})"
    if is_other or fault:
        raise UsageError.at(option, name, f"{rule} with a file that can be read{fault}")
    return Target(name, file=where, source=source, function=function)


def absolute(name: str) -> str:
    """``FILE.py:NAME`` with the full path of the file, which other processes find as well; another name as it is."""
    file, sign, own = name.rpartition(".py:")
    return f"{os.path.abspath(file)}{sign}{own}" if sign else name


def _import_file(file: str, source: bytes) -> Any:
    """The module in a file; beside the file it may import what lies in its folder.

    It has its usual name where no other module has that, so that processes which it starts can import it as well.
    """
    path = Path(file)
    sys.path.insert(0, str(path.parent))
    is_usual = path.stem.isidentifier() and path.stem not in sys.modules
    name = path.stem if is_usual else f"brought_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError("no file FILE.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    exec(compile(source or path.read_bytes(), file, "exec", dont_inherit=True), vars(module))  # no older bytecode
    return module


def also_taken(function: Callable[..., Any], name: str) -> tuple[str, ...]:
    """Which of `ALSO_TAKEN` a function, called ``name``, takes beside the instance.

    `LoadError` if it cannot be called with an instance, and these by name.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions of C have none
        return ()
    found = tuple(name for name in ALSO_TAKEN if name in signature.parameters)
    try:
        signature.bind(None, **dict.fromkeys(found))
    except TypeError:
        rule = "(instance) or (instance, limits, watch)"
        raise LoadError(f"{name}: signature is '{signature}'; expected {rule}") from None
    return found


def declaration(function: Callable[..., Any]) -> Mapping[str, str]:
    """What `planner.method` declared of a function: ``problem``, ``name`` and ``claim``; empty if nothing."""
    found: Mapping[str, str] = getattr(function, DECLARED, {})
    return found


def one_line(text: str) -> str:
    """A text in one line that can be sent and written: signs that no encoding has (lone surrogates) are escaped."""
    return " ".join(text.split()).encode(errors="backslashreplace").decode()


def words(error: BaseException, file: str = "") -> str:
    """An exception in one line, with the last line of ``file`` that it came through."""
    try:
        said = one_line(str(error))
    except BaseException:  # whatever an error of a user's class does
        said = "(an error without words)"
    frames = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    line = error.lineno if isinstance(error, SyntaxError) else frames[-1] if frames else None
    where = f" (line {line} of {Path(file).name})" if file and line else ""
    said = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return (said if len(said) <= _LONGEST else said[: _LONGEST - 1] + "…") + where
