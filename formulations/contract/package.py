"""A problem package as a family: what it consists of is found by the names of its folder and files."""

import os
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any

from formulations.contract.checker.frame import RejectedError
from formulations.contract.family import Certificates, Family, Lazy, OwnJson, flat_of, with_overrides
from formulations.contract.what_if import Questions
from instances.exchange import kind_of, to_json

#: By entry (`Family`): the module of the package, and the name in it. These are small, and imported when looked at.
_SMALL = {
    "describe": ("definition.settings", "describe"),
    "warnings": ("definition.settings", "warnings"),
    "also_reads": ("definition.settings", "also_reads"),
    "memory_pressure": ("definition.settings", "memory_pressure"),
    "minimises": ("definition.settings", "MINIMISES"),
    "sweepable": ("definition.settings", "SWEEPABLE"),
    "chooses_by": ("methods", "CHOOSES_BY"),
    "nearby": ("questions.alternatives", "NEARBY"),
    "subproblems": ("questions.inner_problems", "INSIDE"),
}
#: Functions whose modules may import solvers and tables: they are imported when they are called.
_LATE = {
    "breakdown": ("definition.plan_figures", "breakdown"),
    "clock": ("definition.clock", "clock"),
    "why_infeasible": ("questions.why_infeasible", "why_infeasible"),
    "mining": ("questions.instance_space", "mining"),
}
_CERTIFICATES = "certificates"
_WRITER, _CHECKER = "certificate.writer", "certificate.checker"
#: `Questions` of the functions in ``questions/what_if.py``; the last three may be absent.
_QUESTIONS, _WHAT_IF = "questions", "questions.what_if"
_ASKED = ("members", "relax", "repairs", "resources", "rows", "factors", "noisy", "decisions")


def family_of(package: str) -> Family[Any, Any]:
    """The family of a problem package with this name, such as ``formulations.mesh_tiling``.

    ``instances/problems/NAME.py`` has ``check`` and the dataclass of the instances (`instances.exchange.in_files`).
    ``definition/problem.py`` has ``evaluate`` and ``violations``, ``definition/plan.py`` ``plan_from_json`` and
    ``plan_to_json``, ``definition/quantities.py`` ``VOCABULARY``, ``methods.py`` ``METHODS`` and ``choose``.
    ``definition/settings.py`` has ``OVERRIDES``, ``MINIMISES``, ``unit`` (left out: that of `flat_of` the instance, or
    seconds), and ``apply(instance, overrides, where)`` where these do not replace fields alone, or ``recognise`` and
    ``read`` where instances have other forms. What else there is, `Folder` finds.
    """
    name = package.rpartition(".")[2]
    noun = import_module(f"instances.problems.{name}")
    problem, plans, quantities, settings = (
        import_module(f"{package}.definition.{each}") for each in ("problem", "plan", "quantities", "settings")
    )
    methods = import_module(f"{package}.methods")
    own: OwnJson[Any] = OwnJson(kind_of(name), noun.check)
    apply = getattr(settings, "apply", lambda found, given, _: with_overrides(found, given, settings.OVERRIDES))

    def read(content: Any, where: str, overrides: Mapping[str, Any]) -> Any:
        return apply(own.read(content, where), overrides, where)

    return Family(
        name=name,
        recognise=getattr(settings, "recognise", own.recognise),
        read=getattr(settings, "read", read),
        overrides=settings.OVERRIDES,
        check=noun.check,
        to_json=to_json,
        plan_from_json=plans.plan_from_json,
        plan_to_json=plans.plan_to_json,
        evaluate=problem.evaluate,
        violations=problem.violations,
        unit=getattr(settings, "unit", lambda instance: getattr(flat_of(instance), "time_unit", "s")),
        methods=methods.METHODS,
        choose=methods.choose,
        vocabulary=quantities.VOCABULARY,
        entries=Folder(package),
    )


class Folder(Mapping[str, Any]):
    """The optional entries of the problem package with this name, such as ``formulations.mesh_tiling``.

    An entry is there if its file is, and, where it is no function that is imported late, if the file has the name.
    """

    def __init__(self, package: str) -> None:
        self._package = package

    def __getitem__(self, entry: str) -> Any:
        if entry == _CERTIFICATES and self._has(_WRITER):
            return Certificates(self._late(_WRITER, "write"), self._late(_CHECKER, "verify"), self._refusal)
        if entry == _QUESTIONS and self._has(_WHAT_IF):
            return self._questions
        if entry in _LATE and self._has(_LATE[entry][0]):
            return self._late(*_LATE[entry])
        if entry in _SMALL and self._has(_SMALL[entry][0]):
            module, name = _SMALL[entry]
            home = import_module(f"{self._package}.{module}")
            if hasattr(home, name):
                return getattr(home, name)
        raise KeyError(entry)

    def __iter__(self) -> Iterator[str]:
        return (entry for entry in (*_SMALL, *_LATE, _CERTIFICATES, _QUESTIONS) if self.get(entry) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _has(self, module: str) -> bool:
        return _is_there(self._package, module)

    def _refusal(self, instance: Any) -> str | None:
        try:
            import_module(f"{self._package}.{_CHECKER}").CHECKER.read(to_json(instance))
        except (RejectedError, ValueError) as error:
            return f"the checker refuses: {error}"
        return None

    def _questions(self) -> Questions[Any]:
        home = import_module(f"{self._package}.{_WHAT_IF}")
        return Questions(*(getattr(home, name, None) for name in _ASKED))  # type: ignore[arg-type]

    def _late(self, module: str, name: str) -> Lazy:
        return Lazy(f"{self._package}.{module}:{name}")


@cache
def _is_there(package: str, module: str) -> bool:
    """Whether a package has a module, a file or a folder."""
    path = os.path.join(import_module(package).__path__[0], *module.split("."))
    return os.path.isfile(f"{path}.py") or os.path.isdir(path)
