"""What was published of AMP's experiments, from a folder that anybody may have filled."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from formulations.amp_strategy.definition.plan import Degrees
from formulations.amp_strategy.definition.problem import strategies
from instances.errors import InstanceError
from instances.files import read_text
from instances.generators.amp_experiments import PROFILES_FILE, RUNS_FILE, Prediction, analytic_profiles, experiment
from instances.problems.amp_strategy import AmpInstance
from instances.readers.amp_published import read_prediction, read_profiles
from planner.files.load import published_file, published_input, read_content
from planner.files.read import parse_json


@dataclass(frozen=True)
class Inputs:
    """An experiment with published layer times or, where there are none, with analytic ones, and the logged runs."""

    instance: AmpInstance
    published: bool = False
    runs: Mapping[Degrees, Prediction] = field(default_factory=dict)


def read(name: str, inputs: str | None) -> Inputs:
    """The experiment of that name.

    Raises
    ------
    UsageError
        If ``inputs`` names a folder without the layer times.
    InstanceError
        If a published file does not hold what it should.
    """
    profiles = published_input(PROFILES_FILE, inputs)
    if profiles is None:
        return Inputs(experiment(name, analytic_profiles()))
    instance = experiment(name, read_profiles(read_content(profiles), str(profiles), name))
    logged = published_file(RUNS_FILE, inputs)
    return Inputs(instance, True, {} if logged is None else _runs(instance, logged))


def _runs(instance: AmpInstance, logged: Path) -> dict[Degrees, Prediction]:
    """The logged runs of the experiment; each of its strategies at most once."""
    known, found = set(strategies(instance)), {}
    for number, line in enumerate(read_text(logged).splitlines(), 1):
        if not line.strip():
            continue
        where = f"{logged}: line {number}"
        run = read_prediction(parse_json(line, where), where)
        if run.experiment != instance.name:
            continue
        degrees = Degrees(run.microbatch, run.tp_degree, run.dp_degree, run.pp_degree)
        shown = ", ".join(f"{name} {value}" for name, value in vars(degrees).items())
        if degrees not in known:
            raise InstanceError.at(where, "strategy", shown, f"one of the {len(known)} strategies of {instance.name}")
        if degrees in found:
            raise InstanceError.at(where, "strategy", shown, "no strategy twice")
        found[degrees] = run
    return found
