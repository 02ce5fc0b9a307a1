"""The two types that all rooms share: a problem family and its methods.

Nothing here imports a solver or a room; `formulations.FAMILIES` lists the rooms.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, TypeVar

from formulations.contract.alternatives import Nearby
from formulations.contract.inner_problems import Inside
from formulations.contract.instance_space import Mining
from formulations.contract.quantities import Quantity, unknown_to
from formulations.contract.violation import Violation as Violation
from formulations.contract.what_if import Questions
from formulations.figures.plan_figures import Breakdown
from instances.parameters import Setting
from solvers.outcome import Limits, Prover, Stop, Watch

Instance = TypeVar("Instance")
Plan = TypeVar("Plan")


class Claim(StrEnum):
    """What a method claims of its result when it runs to its end."""

    EXACT = "exact"
    HEURISTIC = "heuristic"


@dataclass(frozen=True)
class Answer(Generic[Plan]):
    """What a method returns.

    ``bound`` is a proved lower bound on the objective of the instance as declared; ``infeasible`` is a proof that no
    plan exists (``reason`` then says what would help). ``proved_by`` is a `Prover`, or the name of the method whose
    proof it is (``family/method`` where it is another problem's); empty: whoever reported the bound to the watch, or
    the method's own search. ``solver`` is empty where no solver ran. Objective, gap and status are not here:
    `planner.solving.solve` derives them from ``evaluate``.
    """

    plan: Plan | None = None
    bound: float | None = None
    infeasible: bool = False
    stop: Stop = Stop.COMPLETED
    proved_by: str = ""
    solver: str = ""
    reason: str = ""
    stats: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


class UncertifiedError(Exception):
    """Why there is no certificate of a result, in words that follow "uncertified: "."""


@dataclass(frozen=True)
class Certificates(Generic[Instance]):
    """How claims of a family are proved to those who trust no solver.

    Parameters
    ----------
    write
        ``write(instance, plan, bound, watch)``: a certificate, in JSON types, of a plan in its JSON form (or ``None``)
        and a bound (infinite: there is no plan); `UncertifiedError` if there is none.
    verify
        ``verify(instance, certificate)``, both as parsed JSON: the verdict of docs/interface.md; ``ValueError`` for
        what is no certificate. It is the room's ``checker.py``, which imports nothing of ours.
    refusal
        ``refusal(instance)``: why the checker does not know such instances, in words; ``None`` if it does.
    """

    write: Callable[[Instance, Mapping[str, Any] | None, float, Watch], dict[str, Any]]
    verify: Callable[[Any, Any], dict[str, Any]]
    refusal: Callable[[Instance], str | None] = lambda _: None


def infeasible_by_counting(reason: str) -> Answer[Any]:
    """The answer to an instance that has no plan for a reason that needs no search; all methods share such proofs."""
    return Answer(infeasible=True, stop=Stop.PROVED, proved_by=Prover.BOUNDS, reason=reason)


def no_preparation() -> None:
    """Importing what solves is enough: it compiles its kernels (`formulations.compiled.numba_kernels`)."""


@dataclass(frozen=True)
class Method(Generic[Instance, Plan]):
    """One way to solve a family's problem.

    Parameters
    ----------
    name, claim, source
        What the command line calls it, what it claims, and where it was published.
    solve
        ``solve(instance, limits, watch, **options) -> Answer``.
    supports
        ``None``, or the reason why this instance cannot be given to the method.
    too_large
        ``None``, or why its model would be too large to be built: then the method has the plan that its model would
        begin with, and a bound that owes nothing to the model, and is chosen where nothing else takes the instance.
    limits
        What ``supports`` and ``too_large`` let pass, in words that continue "takes"; empty: every instance.
    effort
        Predicted size of the work (the method's own elementary steps), without building anything.
    prepare
        What has to be done once in a process beside importing ``solve``; its time is reported apart.
    finish
        What has to be ended after ``solve``, in the same thread, whatever came of it; its time does not count.
    build
        ``build(instance, watch, complete=False)``: the model of a declarative method (`solve_model.Model`),
        pruned by the best plan that the watch knows, or that the method begins with; ``complete``: by none.
    needs
        A requirement such as those that its instances have, if it is for these alone.
    only_at_end
        Whether it has no plan before it ends: it is not chosen where it is not going to end in time.
    honours
        Names of the quantities (`Family.vocabulary`) that requirements may speak of; the model of a declarative method
        expresses these (`Model.quantities`).
    shares
        What its proof has in common with those of other methods of the family: together they are one witness.
    """

    name: str
    claim: Claim
    source: str
    solve: Callable[..., Answer[Plan]]
    supports: Callable[[Instance], str | None] = lambda _: None
    too_large: Callable[[Instance], str | None] = lambda _: None
    limits: str = ""
    effort: Callable[[Instance], float] = lambda _: 0.0
    options: tuple[Setting, ...] = ()
    prepare: Callable[[], None] = no_preparation
    finish: Callable[[], None] = no_preparation
    build: Callable[..., Any] | None = None
    honours: frozenset[str] = frozenset()
    needs: str = ""
    only_at_end: bool = False
    shares: str = ""

    def refusal(self, instance: Instance) -> str | None:
        """``None``, or why this instance, with its requirements, cannot be given to the method."""
        return unknown_to(self.honours, instance) or self.supports(instance)

    def misfit(self, instance: Instance) -> str | None:
        """``None``, or why the method has no more than a first plan of this instance, or nothing at all."""
        return self.refusal(instance) or self.too_large(instance)

    def load(self) -> None:
        """Import what solving needs, with its kernels, and ``prepare``: what is left for ``solve`` is its own work."""
        resolve(self.solve)
        self.prepare()


@dataclass(frozen=True)
class Family(Generic[Instance, Plan]):
    """A planning problem: its definition and the methods that solve it.

    Parameters
    ----------
    name
        The ``problem`` key of the family's JSON.
    recognise
        Whether parsed content (JSON value, or text of a foreign format) is an instance of this family.
    read
        ``read(content, where, overrides) -> Instance``; ``where`` names the file in errors (`InstanceError`).
    overrides
        The settings that ``read`` and catalog instances accept.
    also_reads
        Whether ``read`` makes an instance of this content, too, though it is another family's (with ``--problem``): a
        flat network put on machines, say.
    check
        ``check(instance, where)``: the rules between the fields of an instance, whoever built it (`InstanceError`).
    to_json, plan_from_json, plan_to_json
        Exchange formats (docs/interface.md).
    evaluate, violations
        The definition: objective of a plan, and the rules it breaks (empty: feasible).
    vocabulary
        The quantities of a plan that requirements may speak of; ``violations`` judges them.
    nearby
        How plans differ, for questions next to the optimum; ``None``: there are no answers.
    unit
        ``unit(instance)``: the objective's unit.
    choose
        ``choose(instance, limits, exact) -> (method name, reason)``: the dispatcher's knowledge of this family.
    chooses_by
        The functions imported late (`lazy`) that ``choose`` calls: they are loaded before the clock starts.
    why_infeasible
        ``why_infeasible(instance, limits, watch) -> (sentence, figures)``: what would make the instance feasible.
    picture
        ``picture(instance, plan)``: the plan as SVG text.
    breakdown
        ``breakdown(instance, plan)``: the figures and pictures of a plan.
    certificates
        How its bounds, and that there is no plan, are certified; ``None``: they are not.
    mining
        What a search for instances on which a method is bad needs; ``None``: there is no search.
    subproblems
        The problems of other families that its methods solve inside.
    questions
        What may be in conflict in its instances and what may be changed; ``None``: they are not explained.
    memory_pressure
        ``memory_pressure(instance)``: what a plan needs of memory at least, or in its fastest form, over what there is;
        ``None``: not known.
    sweepable
        Whether micro-batch sizes of a batch can be compared: the number of micro-batches is Piper's N, and the
        objective is time per sample.
    """

    name: str
    recognise: Callable[[Any], bool]
    read: Callable[[Any, str, Mapping[str, Any]], Instance]
    overrides: tuple[Setting, ...]
    check: Callable[[Instance, str], None]
    to_json: Callable[[Instance], dict[str, Any]]
    plan_from_json: Callable[[Instance, Any], Plan]
    plan_to_json: Callable[[Instance, Plan], dict[str, Any]]
    evaluate: Callable[[Instance, Plan], float]
    violations: Callable[[Instance, Plan], tuple[Violation, ...]]
    unit: Callable[[Instance], str]
    methods: tuple[Method[Instance, Plan], ...]
    choose: Callable[[Instance, Limits, bool], tuple[str, str]]
    describe: Callable[[Instance], Mapping[str, Any]] = lambda _: {}
    warnings: Callable[[Instance], tuple[str, ...]] = lambda _: ()
    why_infeasible: Callable[[Instance, Limits, Watch], tuple[str, Mapping[str, Any]]] | None = None
    picture: Callable[[Instance, Plan], str] | None = None
    breakdown: Callable[[Instance, Plan], Breakdown] | None = None
    certificates: Certificates[Instance] | None = None
    mining: Callable[[], Mining[Instance]] | None = None
    memory_pressure: Callable[[Instance], float | None] = lambda _: None
    sweepable: bool = False
    vocabulary: tuple[Quantity, ...] = ()
    nearby: Nearby | None = None
    also_reads: Callable[[Any], bool] | None = None
    subproblems: tuple[Inside, ...] = ()
    questions: Callable[[], Questions[Instance]] | None = None
    chooses_by: tuple[Callable[..., Any], ...] = ()

    def load(self) -> None:
        """Import what choosing a method needs: ``choose``, and what the methods say of their own size."""
        resolve(self.choose)
        for function in self.chooses_by:
            resolve(function)
        for method in self.methods:
            resolve(method.supports)
            resolve(method.effort)

    def method(self, name: str) -> Method[Instance, Plan]:
        """The method of that name; ``KeyError`` if there is none."""
        for method in self.methods:
            if method.name == name:
                return method
        raise KeyError(name)


class OwnJson(Generic[Instance]):
    """The instances of a family that has no other form: built already, or the project's own JSON.

    ``reader`` is the target (`lazy`) of ``read(content, where) -> Instance``, imported for files alone.
    """

    def __init__(self, problem: str, kind: type[Instance], reader: str) -> None:
        self._problem, self._kind, self._reader = problem, kind, lazy(reader)

    def recognise(self, content: Any) -> bool:
        """Whether this is one of them (`Family.recognise`)."""
        if isinstance(content, self._kind):
            return True
        return isinstance(content, dict) and content.get("problem") == self._problem

    def read(self, content: Any, where: str) -> Instance:
        """The instance as it was built or declared, before any overrides."""
        found: Instance = content if isinstance(content, self._kind) else self._reader(content, where)
        return found


class Lazy:
    """A function that imports ``"package.module:name"`` when it is first called, or by ``resolve``.

    Rooms use it so that listing the methods imports no solver (``planner --help`` answers at once).
    """

    def __init__(self, target: str) -> None:
        self.__qualname__ = target
        self._module, _, self.__name__ = target.partition(":")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return self.resolve()(*args, **kwargs)

    def resolve(self) -> Callable[..., Any]:
        """The function itself."""
        found: Callable[..., Any] = getattr(importlib.import_module(self._module), self.__name__)
        return found


def resolve(function: Callable[..., Any]) -> None:
    """Import what a function is, if it is a `Lazy` one."""
    if isinstance(function, Lazy):
        function.resolve()


def lazy(target: str) -> Callable[..., Any]:
    """The function ``"package.module:name"``, imported when it is first needed (`Lazy`)."""
    return Lazy(target)
