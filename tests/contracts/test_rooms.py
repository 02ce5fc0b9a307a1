"""Rooms have one shape: the same files for the same things, whatever the problem."""

import subprocess
import sys
from pathlib import Path

import pytest

import formulations
from formulations import FAMILIES
from formulations.contract.family import Family, Lazy

EVERY = {
    *("README.md", "__init__.py", "methods.py"),
    *(f"definition/{name}.py" for name in ("problem", "settings", "quantities", "plan_figures")),
}
CERTIFICATE = {"certificate/writer.py", "certificate/checker.py"}
#: A file for each optional field of the family, under the same name everywhere.
OPTIONAL = {
    "why_infeasible": "why_infeasible", "mining": "instance_space", "nearby": "alternatives", "questions": "what_if",
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_room_has_the_files_of_all_rooms(family: Family) -> None:
    room = Path(formulations.__file__).parent / family.name
    there = {path.relative_to(room).as_posix() for path in room.rglob("*")}
    assert there >= EVERY
    if family.certificates is None:  # a package may have none yet; then its README says so
        assert not CERTIFICATE & there and "## No certificates yet" in (room / "README.md").read_text()
    else:
        assert there >= CERTIFICATE
    for field, file in OPTIONAL.items():
        assert (getattr(family, field) is not None) == (f"questions/{file}.py" in there), field
    assert bool(family.subproblems) == ("questions/inner_problems.py" in there)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_models_lie_in_the_file_of_their_solver(family: Family) -> None:
    for method in family.methods:
        if method.name in ("cpsat", "milp"):
            assert isinstance(method.solve, Lazy)
            assert method.solve.__qualname__ == f"formulations.{family.name}.models.{method.name}:solve"


def test_listing_methods_imports_no_solver_and_no_array() -> None:
    heavy = "{'numba', 'numpy', 'ortools', 'pyomo', 'highspy', 'pydantic'}"
    listed = "print(sum(len(family.methods) for family in FAMILIES))"
    script = f"import sys; from formulations import FAMILIES; {listed}; print(*{heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout.split("\n")[0]) > 60 and done.stdout.split("\n")[1] == ""
