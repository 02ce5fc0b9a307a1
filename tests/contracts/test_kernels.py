"""Nothing is compiled and nothing large is imported once a method's clock runs."""

import json
import math
import os
import pickle
import pkgutil
import re
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module, metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numba import typeof
from numba.core.errors import NumbaTypeError
from paths import SUPPORT, of_a_checkout

import formulations
import planner
from formulations.compiled import machine_code, numba_kernels, python_first
from planner.solving import solve as solving

ROOMS = Path(formulations.__file__).parent

#: Loads the choice and one method of a family as the planner does, then solves; says what that imported or compiled.
_SOLVE = """
import json, sys
import planner
from formulations.compiled import compile_times as compilation
from planner.files.load import family_of
from planner.solving.solve import run
from solvers.outcome import Limits
from test_families import EXAMPLES

found = {}
for name, instances in EXAMPLES.items():
    instance = instances[0]()
    family = family_of(instance)
    family.load()
    loaded = set(sys.modules)
    family.choose(instance, Limits(), False)
    found[name] = sorted(set(sys.modules) - loaded)
    for method in family.methods:
        if method.supports(instance) is not None:
            continue
        method.load()
        loaded = set(sys.modules)
        result = run(family, method, instance, Limits(time_s=20), {})
        found[f"{name}/{method.name}"] = sorted(set(sys.modules) - loaded)
        assert "kernels_compiled" not in result.stats, f"{name}/{method.name} compiled kernels"
print(json.dumps(found))
"""

#: What takes a tenth of a second or more to import.
LARGE = {"numba", "ortools", "pandas", "pyomo", "highspy", "networkx", "scipy", "llvmlite", "numpy", "pydantic"}


def run_python(*arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """What a fresh process prints, which must exit with 0."""
    paths = os.pathsep.join([str(ROOMS.parent), str(Path(__file__).parent), str(SUPPORT), str(SUPPORT.parent)])
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": paths, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def modules() -> list[str]:
    return [found.name for found in pkgutil.walk_packages(formulations.__path__, "formulations.")]


def test_kernels_take_declared_types_alone() -> None:
    """A call compiles nothing: what Python can call has its one signature, all else has no bridge from Python."""
    for module in modules():
        import_module(module)
    machine_code.complete()  # what an attempt of another test left
    assert len(machine_code.KERNELS) > 30 and len(machine_code.INNER) > 60
    for kernel, arguments in machine_code.KERNELS:
        name = f"{kernel.py_func.__module__}.{kernel.py_func.__name__}"
        assert not kernel._can_compile, f"{name} is not compiled at the end of its module"
        assert arguments in kernel.overloads, f"{name} is not compiled for the declared types"
    for inner in machine_code.INNER:
        assert inner.targetoptions["no_cpython_wrapper"], inner.py_func.__name__


def test_numba_is_imported_in_one_place() -> None:
    """All is compiled as a kernel, and tiny instances are solved without it."""
    imports = re.compile(r"^ *(?:import|from) numba\b", re.MULTILINE)
    assert [path.name for path in ROOMS.rglob("*.py") if imports.search(path.read_text())] == ["machine_code.py"]


def test_the_types_of_a_record_are_those_of_its_fields() -> None:
    arrays = import_module("formulations.flushed_partitioning.kernels.arrays")
    found = machine_code._type_of(arrays.ReachedSets)
    sizes = ("int64, 1d", "int64, 2d", "uint64, 2d", "uint64, 2d")
    assert found.instance_class is arrays.ReachedSets and [*map(str, found.types)] == [f"array({x}, C)" for x in sizes]


def test_an_array_of_another_type_is_an_error_not_a_compilation() -> None:
    decision = import_module("formulations.tmpc_knapsack.kernels.decision")
    with pytest.raises(TypeError):
        decision.decide(1, np.zeros(2), np.zeros(1), np.zeros(1), 1.0, 1.0, np.zeros(1), np.zeros(1))


@of_a_checkout
def test_a_kernel_stands_on_all_files_that_are_compiled_into_it(tmp_path: Path, monkeypatch: Any) -> None:
    folder = tmp_path / "formulations" / "some"
    folder.mkdir(parents=True)
    for name, text in (
        ("kernel", "from formulations.some.inner import (\n    part,\n)\n"),
        ("inner", "from formulations.some import constants, nothing\n"),
        ("constants", "import numpy as np\n"),
        ("other", ""),
    ):
        (folder / f"{name}.py").write_text(text)
    found = machine_code.sources(folder / "kernel.py", tmp_path)
    assert {each.stem for each in found} == {"kernel", "inner", "constants"}
    monkeypatch.setattr(machine_code, "_ROOT", tmp_path)
    made: dict[str, Any] = {}
    exec(compile("def loop(): pass", folder / "kernel.py", "exec"), made)
    stamps = []
    for at in (1.0, 1.0, 2.0):
        os.utime(folder / "constants.py", (at, at))
        stamps.append(machine_code._Kept(made["loop"])._cache_file._source_stamp)
    assert stamps[0] == stamps[1] != stamps[2]
    for kernel, _ in machine_code.KERNELS:
        module = sys.modules[kernel.py_func.__module__]
        mine = {value.py_func.__code__.co_filename for value in vars(module).values() if hasattr(value, "py_func")}
        own = Path(kernel.py_func.__code__.co_filename)
        assert {Path(each) for each in mine} <= machine_code.sources(own, ROOMS.parent)


@pytest.mark.slow
def test_nothing_large_is_imported_while_the_clock_runs() -> None:
    """Neither by a choice nor by a method of any family."""
    found = json.loads(run_python("-c", _SOLVE))
    assert len(found) > 60
    late = {who: names for who, new in found.items() if (names := LARGE.intersection(new))}
    assert late == {}


@pytest.mark.slow
def test_kernels_from_the_cache_need_nothing_that_compiles() -> None:
    """Numba's library of what it can compile takes longer to import than all kernels take to load."""
    load = f"import importlib, sys; [importlib.import_module(name) for name in {modules()!r}];"
    load += "print('numba.np.npyimpl' in sys.modules)"
    if run_python("-c", load) != "False\n":  # it may have compiled what the cache did not hold
        assert run_python("-c", load) == "False\n"


#: A small kernel module, and what it says when it is used with warnings as the command line shows them.
_KERNELS = """
import pathlib, warnings
from formulations.compiled import compile_times as compilation
warnings.simplefilter("always")
with compilation.compiling() as found, warnings.catch_warnings(record=True) as received:
    from formulations.layer_assignment import FAMILY
    from instances.problems.layer_assignment import generate
    from solvers.outcome import Limits, Watch
    method = FAMILY.method("amp")
    method.load()
    instance = generate(3, 2, 2)
    print(found.kernels, method.solve(instance, Limits(), Watch()).plan.lengths, len(received))
    print(*{str(each.message) for each in received})
"""


@pytest.mark.slow
def test_without_a_folder_for_the_cache_kernels_are_compiled_with_one_warning() -> None:
    """As in an installation that is read-only, for a user without a home: Numba finds no locator."""
    out = run_python("-c", _KERNELS, environment={"NUMBA_CACHE_LOCATOR_CLASSES": "IPythonCacheLocator"})
    first, second = out.splitlines()
    compiled_now, *lengths, warned = first.split()
    assert int(compiled_now) > 1 and warned == "1" and len(lengths) == 2
    assert "NUMBA_CACHE_DIR" in second


@pytest.mark.parametrize("damage", ["truncated", "outdated", "removed", "unreadable"])
@pytest.mark.slow
def test_a_damaged_cache_is_written_anew(tmp_path: Path, damage: str) -> None:
    environment = {"NUMBA_CACHE_DIR": str(tmp_path)}
    first = run_python("-c", _KERNELS, environment=environment).splitlines()[0].split()
    for path in tmp_path.rglob("*.nbi" if damage in ("truncated", "outdated") else "*.nbc"):
        if damage == "removed":
            path.unlink()
        elif damage == "truncated":
            path.write_bytes(path.read_bytes()[:40])
        elif damage == "outdated":  # it holds a class that this version no longer has
            path.write_bytes(pickle.dumps(metadata.version("numba")) + b"cformulations.compiled\nGone\n.")
        else:
            path.unlink()
            path.mkdir()  # also for root, whom no permission stops
    again = run_python("-c", _KERNELS, environment=environment).splitlines()[0].split()
    assert again[1:-1] == first[1:-1] and int(again[0]) > 1
    assert again[-1] == ("1" if damage == "unreadable" else "0")
    if damage != "unreadable":
        last = run_python("-c", _KERNELS, environment=environment).splitlines()[0].split()
        assert last == ["0", *first[1:]]


#: Solves instances with an empty cache, without a compiler if that may be; prints results, and how many were compiled.
_PYTHON_FIRST = """
import json, sys
import planner
from formulations.compiled import compile_times, python_first
from solvers.outcome import Limits

python_first.MOST_S, python_first._YOUNG_S = {most_s}, 1e9
python_first._Attempt.without_s, python_first._YOUNG_WITHOUT_S = {without_s}, 1e9
with compile_times.compiling() as compiled:
    for name in sys.argv[1:]:
        events = []
        found = planner.solve(planner.load(name), listen=events.append)
        print(json.dumps([found.objective, found.bound, found.plan, [each.objective for each in events]]))
print(compiled.kernels, "numba" in sys.modules)
"""


@pytest.mark.parametrize("without_s", [pytest.param(0.0, marks=pytest.mark.slow), 60.0])
def test_tiny_instances_need_no_compiler(tmp_path: Path, without_s: float) -> None:
    """Their kernels run as Python, without numba or with it, with the results of compiled ones to the last bit."""
    names = ["chain8", "knapsack", "layers", "chain8-machines", "chain8-flushed"]
    solved = [planner.solve(planner.load(name)) for name in names]
    code = _PYTHON_FIRST.format(most_s=60.0, without_s=without_s)
    out = run_python("-c", code, *names, environment={"NUMBA_CACHE_DIR": str(tmp_path)}).splitlines()
    assert out.pop() == f"0 {without_s == 0}" and not list(tmp_path.rglob("*.nbi"))
    for line, result in zip(map(json.loads, out), solved, strict=True):
        assert line[:3] == [result.objective, result.bound, json.loads(json.dumps(result.plan))]


@pytest.mark.slow
def test_what_takes_long_as_python_is_compiled_and_done_anew(tmp_path: Path) -> None:
    """Whoever listens receives the events of the second run alone."""
    code = _PYTHON_FIRST.format(most_s=0.0, without_s=0.001)
    out = run_python("-c", code, "layers", environment={"NUMBA_CACHE_DIR": str(tmp_path)}).splitlines()
    result = planner.solve(planner.load("layers"))
    objective, _, plan, events = json.loads(out[0])
    assert (objective, plan) == (result.objective, json.loads(json.dumps(result.plan))) and int(out[1].split()[0]) > 1
    assert events == sorted(events, reverse=True) and events[-1] == objective


class _Compiled:
    """Stands for what numba makes of a function."""

    def __init__(self, function: Any, wraps: bool = False) -> None:
        self.py_func, self.wraps = function, wraps


def _product(one: Any, other: Any) -> Any:
    return one * other


_hash = _Compiled(_product, wraps=True)


def _hashed(one: Any, other: Any) -> Any:
    return (_hash(one, other), np.float64(one) / 0)  # type: ignore[operator]


def _loops(_one: Any, _other: Any) -> None:
    while True:
        for _ in range(3):
            pass


@pytest.mark.parametrize("kind", [np.int16, np.int32, np.int64, np.uint64])
def test_python_ends_where_its_integers_are_not_the_machines(kind: Any, monkeypatch: Any) -> None:
    """Where an integer overflows that is not meant to, and where the time is over; numbers come back as Python's."""
    most = kind(np.iinfo(kind).max)
    monkeypatch.setattr(python_first._Attempt, "left_s", 0.05)
    assert python_first.as_python(_Compiled(_product))(kind(3), kind(2)) == 6
    with pytest.raises(python_first.GivenUpError):
        python_first.as_python(_Compiled(_product))(most, kind(2))
    found = python_first.as_python(_Compiled(_hashed))(most, kind(2))
    assert found == ((1 << most.nbytes * 8) - 2 if kind is np.uint64 else -2, math.inf) and type(found[0]) is int
    with pytest.raises(python_first.GivenUpError):
        python_first.as_python(_Compiled(_loops))(1, 2)


@pytest.mark.parametrize("is_imported", [True, False])
def test_an_attempt_that_is_given_up_is_done_anew(is_imported: bool, monkeypatch: Any) -> None:
    """Without numba, then with it; not beyond its first seconds, and outside it no kernel begins as Python."""
    tried, outside, released = list[Any](), list[bool](), threading.Event()
    monkeypatch.setattr(python_first, "_is_imported", lambda: is_imported or len(tried) > 1)
    monkeypatch.setattr(python_first._Attempt, "without_s", 1.0)

    def work() -> int:
        tried.append((python_first.goes_on(), python_first.without_compiler(), python_first._Attempt.left_s))
        released.set()
        elsewhere.join()  # it is not done anew
        if python_first.goes_on():
            raise python_first.GivenUpError
        return len(tried)

    elsewhere = threading.Thread(target=lambda: released.wait(60) and outside.append(python_first.goes_on()))
    elsewhere.start()
    assert python_first.python_first(work, 10.0) == len(tried)
    assert tried == [(True, True, 0.5), (True, False, 0.5), (False, False, 0.5)][is_imported:] and outside == [False]


def test_functions_are_compiled_when_their_whole_module_is_declared(monkeypatch: Any) -> None:
    """Kernels come before the inner functions that they call: another thread that compiles meanwhile leaves them."""
    monkeypatch.setattr(numba_kernels, "DECLARED", [])
    one: Any = numba_kernels.kernel(numba_kernels.INT)(_loops)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(numba_kernels.compile_kernels).result()
    assert one.made is None and vars(numba_kernels._begun).pop("declared") == [one] and not numba_kernels.DECLARED


@pytest.mark.slow
def test_first_solves_in_several_threads_end() -> None:
    """They import modules of kernels at once, and compile what others have declared."""
    code = "import planner, sys; from concurrent.futures import ThreadPoolExecutor; sys.setswitchinterval(1e-5)\n"
    code += (
        "def solve(name, method): planner.solve(planner.load(name), method=method, limits=planner.Limits(time_s=2))\n"
    )
    code += "each = ['bert', 'torus2d'] * 2, ['exact', 'exact', 'piper', 'anneal']\n"
    code += "with ThreadPoolExecutor(4) as pool: print(len([*pool.map(solve, *each)]))"
    assert run_python("-c", code) == "4\n"


def test_two_threads_compile_what_was_left_once(monkeypatch: Any) -> None:
    """As where a run is left behind while it compiles, and the next one begins."""
    times: list[Any] = []

    class Left(SimpleNamespace):
        def compile(self, arguments: Any) -> None:
            time.sleep(0.1)
            times.append(arguments)

        def disable_compile(self) -> None:
            self._can_compile = False

    left = Left(_can_compile=True, _compile_for_args=None)
    monkeypatch.setattr(machine_code, "KERNELS", [(left, ())])
    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(lambda _: machine_code.complete(), range(2)), *times] == [None, None, ()]


def test_masked_arrays_are_refused_and_others_have_numbas_types() -> None:
    with pytest.raises(NumbaTypeError, match=r"MaskedArray"):
        typeof(np.ma.array([1, 2]))
    for array in (np.zeros((2, 3)), np.zeros((2, 3)).T, np.zeros((4, 4), np.int16)[::2, ::2], np.zeros(2, bool)):
        array.flags.writeable = array.dtype != bool
        found = typeof(array)
        layout = "C" if array.flags.c_contiguous else "F" if array.flags.f_contiguous else "A"
        assert (found.ndim, found.layout, found.mutable) == (array.ndim, layout, array.flags.writeable)
        assert str(found.dtype) == str(array.dtype)


@pytest.mark.slow
def test_nothing_is_compiled_after_the_doctor(tmp_path: Path) -> None:
    """With a cache that was empty: every method of every family, and the commands that have kernels of their own."""
    environment = {"NUMBA_CACHE_DIR": str(tmp_path)}
    run_python("-m", "planner", "doctor", "--compile", environment=environment)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nb?")}
    assert len(before) > 150
    run_python("-c", _SOLVE, environment=environment)
    for command in (
        ["frontier", "chain8", "--memory", "40MB"],
        ["census", "chain8", "--memory", "40MB", "--out", str(tmp_path / "census"), "--crosscheck", "3"],
        ["solve", "chain8-machines", "--exact"],
        ["extract", "chain8", "--problem", "tmpc_knapsack", "--out", str(tmp_path / "rows.jsonl")],
        ["crosscheck", "diamond", "--time-limit", "5"],
    ):
        run_python("-m", "planner", *command, environment=environment)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nb?")} == before


def test_events_of_an_attempt_that_is_given_up_are_forgotten(monkeypatch: Any) -> None:
    monkeypatch.setattr(solving, "may_start_anew", lambda: True)
    received: list[Any] = []
    held = solving._Held(received.append)
    for event in ("first", "second"):
        listen = held.begin()
        assert listen is not None and not received
        listen(event)  # type: ignore[arg-type]
    held.pass_on()
    assert received == ["second"]
