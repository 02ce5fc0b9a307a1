"""The two types that all rooms share: a problem family and its methods.

Nothing here imports a solver or a room; `formulations.FAMILIES` lists the rooms.
"""

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Generic, TypeVar, cast

from formulations.contract.alternatives import Nearby
from formulations.contract.clock import Clock
from formulations.contract.figures.plan_figures import Breakdown
from formulations.contract.inner_problems import Inside
from formulations.contract.instance_space import InstanceSpace
from formulations.contract.quantities import Quantity, names, unknown_to, unmet
from formulations.contract.violation import Violation as Violation
from formulations.contract.what_if import Questions
from instances.errors import InstanceError, closest, expect
from instances.exchange import form_of
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
        ``verify(instance, certificate)``, both as parsed JSON: the verdict of docs/interface/certificates.md;
        ``ValueError`` for what is no certificate. It is the problem's ``checker.py``
        (`formulations.contract.checker.frame`).
    refusal
        ``refusal(instance)``: why the checker does not know such instances, in words; ``None`` if it does.
    """

    write: Callable[[Instance, Mapping[str, Any] | None, float, Watch], dict[str, Any]]
    verify: Callable[[Any, Any], dict[str, Any]]
    refusal: Callable[[Instance], str | None]


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
    backend
        What runs its models (`solvers.BACKENDS`); empty: it has none.
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
    threads
        Whether it can use more than one thread; a method with a ``backend`` can.
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
    backend: str = ""
    build: Callable[..., Any] | None = None
    honours: frozenset[str] = frozenset()
    needs: str = ""
    only_at_end: bool = False
    shares: str = ""
    threads: bool = False

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


def exact(name: str, source: str, solve: Callable[..., Answer[Any]], **others: Any) -> Method[Any, Any]:
    """A method whose plan is optimal when it runs to its end."""
    return Method(name, Claim.EXACT, source, solve, **others)


def heuristic(name: str, source: str, solve: Callable[..., Answer[Any]], **others: Any) -> Method[Any, Any]:
    """A method that claims nothing of its plan."""
    return Method(name, Claim.HEURISTIC, source, solve, **others)


def declarative(
    model: "Lazy", source: str, honours: Iterable[Quantity], *, name: str | None = None, **others: Any
) -> Method[Any, Any]:
    """An exact method by its model's module, which has ``solve`` and ``model_of``; it honours these.

    Method and solver are named as the module is: ``cpsat_columns`` is cpsat-columns with CP-SAT, ``milp`` with HiGHS.
    """
    backend = "highs" if model.__name__.startswith("milp") else "cpsat"
    parts = {"backend": backend, "build": model.model_of, "honours": names(honours)}
    return exact(name or model.__name__.replace("_", "-"), source, model.solve, **parts, **others)


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
    check
        ``check(instance, where)``: the rules between the fields of an instance, whoever built it (`InstanceError`).
    to_json, plan_from_json, plan_to_json
        Exchange formats (docs/problems/).
    evaluate, violations
        The definition: objective of a plan, and the rules of the problem it breaks; `judge` adds the requirements.
    vocabulary
        The quantities of a plan that requirements may speak of.
    unit
        ``unit(instance)``: the objective's unit.
    choose
        ``choose(instance, limits, exact) -> (method name, reason)``: the dispatcher's knowledge of this family.
    entries
        What only some problems have, by name: the properties below. A problem package's are found by the names of its
        files (`formulations.contract.package.Folder`).
    """

    # What it is called.
    name: str
    # Its instances.
    recognise: Callable[[Any], bool]
    read: Callable[[Any, str, Mapping[str, Any]], Instance]
    overrides: tuple[Setting, ...]
    check: Callable[[Instance, str], None]
    to_json: Callable[[Instance], dict[str, Any]]
    # Its plans, and the definition.
    plan_from_json: Callable[[Instance, Any], Plan]
    plan_to_json: Callable[[Instance, Plan], dict[str, Any]]
    evaluate: Callable[[Instance, Plan], float]
    violations: Callable[[Instance, Plan], tuple[Violation, ...]]
    unit: Callable[[Instance], str]
    # How it is solved.
    methods: tuple[Method[Instance, Plan], ...]
    choose: Callable[[Instance, Limits, bool], tuple[str, str]]
    # What requirements may speak of.
    vocabulary: tuple[Quantity, ...] = ()
    # What only some have.
    entries: Mapping[str, Any] = field(default_factory=dict)

    @property
    def describe(self) -> Callable[[Instance], Mapping[str, Any]]:
        """The key figures of an instance."""
        found: Callable[[Instance], Mapping[str, Any]] = self.entries.get("describe", lambda _: {})
        return found

    @property
    def warnings(self) -> Callable[[Instance], tuple[str, ...]]:
        """What a person should know of an instance, or of `flat_of` it, in sentences."""
        found: Callable[[Instance], tuple[str, ...]] = self.entries.get(
            "warnings", lambda instance: getattr(flat_of(instance), "warnings", ())
        )
        return found

    @property
    def also_reads(self) -> Callable[[Any], bool] | None:
        """Whether ``read`` makes an instance of this content, though it is another family's (with ``--problem``)."""
        return self.entries.get("also_reads")

    @property
    def memory_pressure(self) -> Callable[[Instance], float | None]:
        """What a plan needs of memory at least, or in its fastest form, over what there is; ``None``: not known."""
        found: Callable[[Instance], float | None] = self.entries.get("memory_pressure", lambda _: None)
        return found

    @property
    def minimises(self) -> Mapping[str, str]:
        """What may be minimised, in words, by the ``objective`` of an instance; one that has none has the only one."""
        found: Mapping[str, str] = self.entries.get("minimises", {"": "objective"})
        return found

    def minimised(self, instance: Instance) -> str:
        """What is minimised of this instance, in words that follow "the least"."""
        known = self.minimises
        return known.get(str(getattr(instance, "objective", "")), next(iter(known.values())))

    @property
    def sweepable(self) -> str:
        """What time is of, ``sample`` or ``batch``, where micro-batch sizes of a batch can be compared; else empty.

        Micro-batches are Piper's N, and a sample is one of them.
        """
        return str(self.entries.get("sweepable", ""))

    @property
    def chooses_by(self) -> tuple[Callable[..., Any], ...]:
        """The functions imported late (`lazy`) that ``choose`` calls: they are loaded before the clock starts."""
        return tuple(self.entries.get("chooses_by", ()))

    @property
    def why_infeasible(self) -> Callable[[Instance, Limits, Watch], tuple[str, Mapping[str, Any]]] | None:
        """``why_infeasible(instance, limits, watch) -> (sentence, figures)``: what would make the instance feasible."""
        return self.entries.get("why_infeasible")

    @property
    def breakdown(self) -> Callable[[Instance, Plan], Breakdown] | None:
        """``breakdown(instance, plan)``: the figures and pictures of a plan."""
        return self.entries.get("breakdown")

    @property
    def clock(self) -> Callable[[Instance, Plan], Clock | None] | None:
        """``clock(instance, plan)``: which clock the objective is, with a simulated iteration; ``None``: no clock."""
        return self.entries.get("clock")

    @property
    def certificates(self) -> Certificates[Instance] | None:
        """How its bounds, and that there is no plan, are certified; ``None``: they are not."""
        return self.entries.get("certificates")

    @property
    def mining(self) -> Callable[[], InstanceSpace[Instance]] | None:
        """What a search for instances on which a method is bad needs; ``None``: there is no search."""
        return self.entries.get("mining")

    @property
    def nearby(self) -> Nearby | None:
        """How plans differ, for questions next to the optimum; ``None``: there are no answers."""
        return self.entries.get("nearby")

    @property
    def subproblems(self) -> tuple[Inside, ...]:
        """The problems of other families that its methods solve inside."""
        return tuple(self.entries.get("subproblems", ()))

    @property
    def questions(self) -> Callable[[], Questions[Instance]] | None:
        """What may be in conflict in its instances and what may be changed; ``None``: they are not explained."""
        return self.entries.get("questions")

    def judge(self, instance: Instance, plan: Plan) -> tuple[Violation, ...]:
        """The rules that a plan breaks; if there are none, the requirements that it does not meet (``required``)."""
        return self.violations(instance, plan) or tuple(unmet(self.vocabulary, instance, plan))

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


def flat_of(instance: Any) -> Any:
    """The instance of stages in one network of which this one says more; ``None`` if it has none."""
    return getattr(instance, "flat", None)


class OwnJson(Generic[Instance]):
    """The instances of a family that has no other form: built already, or the project's own JSON.

    ``kind`` is their dataclass (`instances.exchange.in_files`), ``check`` that of the `Family`.
    """

    def __init__(self, kind: type[Instance], check: Callable[[Instance, str], None]) -> None:
        self._form, self._kind, self._check = form_of(kind), kind, check

    def recognise(self, content: Any) -> bool:
        """Whether this is one of them (`Family.recognise`)."""
        if isinstance(content, self._kind):
            return True
        return isinstance(content, dict) and content.get("problem") == self._form.problem

    def read(self, content: Any, where: str) -> Instance:
        """The instance as it was built or declared, before any overrides."""
        if isinstance(content, self._kind):
            return content
        if self._form.reader:
            return cast(Instance, lazy(self._form.reader)(content, where))
        from instances.validation import read_instance  # imports pydantic, which only files need

        return read_instance(self._kind, content, where, self._check)


def parse_overrides(overrides: Mapping[str, Any], settings: Iterable[Setting], where: str) -> dict[str, Any]:
    """Overrides by `Setting.name`, without those that are not given (``None``, and a flag that is ``False``).

    Raises
    ------
    InstanceError
        Unknown setting, or a value that its setting refuses.
    """
    known = {setting.name: setting for setting in settings}
    given = {}
    for key, value in overrides.items():
        name = key.replace("_", "-")
        if value is None or value is False:
            continue
        expect(name in known, where, f"--{name}", value, f"a setting that exists{closest(name, known)}")
        try:
            given[name] = known[name].parse(value)
        except ValueError as error:
            raise InstanceError.at(where, f"--{name}", value, str(error)) from None
    return given


def with_overrides(instance: Any, given: Mapping[str, Any], settings: Iterable[Setting]) -> Any:
    """The instance whose fields are those that the overrides replace (`Setting.field`); its options record them."""
    fields = {each.name: each.field or each.name.replace("-", "_") for each in settings}
    changed = {fields[name]: value for name, value in given.items()}
    return replace(instance, **changed, options={**instance.options, **given})


class Lazy:
    """A function of a package, imported when it is first called, or by ``resolve``.

    It is named by attributes of its package, such as ``.paper.solve``: listing methods imports no solver (``planner
    --help`` answers at once).
    """

    def __init__(self, target: str) -> None:
        self._path = target.replace(":", ".")
        self._module, _, self.__name__ = self._path.rpartition(".")
        self.__qualname__ = f"{self._module}:{self.__name__}"

    def __getattr__(self, name: str) -> "Lazy":
        """A module of this package, or a function of this module."""
        if name.startswith("_"):
            raise AttributeError(name)
        return Lazy(f"{self._path}.{name}")

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


def lazy(target: str) -> Lazy:
    """A package, or the function ``"package.module:name"``, imported when it is first needed (`Lazy`)."""
    return Lazy(target)
