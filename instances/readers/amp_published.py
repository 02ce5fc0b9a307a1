"""What AMP's authors published of their experiments: layer times by model, kind of GPU and degree, and logged runs."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from instances.errors import InstanceError
from instances.generators.amp_experiments import Prediction, profile_lengths
from instances.rules import Amount
from instances.validation import read_fields, read_record


class _Profiles(BaseModel):
    model_config = ConfigDict(extra="allow")
    profiles: dict[str, list[Amount]]


def read_profiles(content: Any, where: str, experiment: str) -> Mapping[str, list[float]]:
    """Forward seconds of each layer by "model/gpu/tmp<degree>".

    `InstanceError`: one line: what the experiment needs is missing or of the wrong length, or a time is no number,
    negative or infinite.
    """
    found = read_record(_Profiles, content, where).profiles
    for name, length in profile_lengths(experiment).items():
        if name not in found:
            raise InstanceError.missing(where, f"profiles.{name}", f"the times of {length} layers")
        if len(found[name]) != length:
            raise InstanceError.at(where, f"len(profiles.{name})", len(found[name]), f"{length} layers")
    return found


def read_prediction(content: Any, where: str) -> Prediction:
    """A logged run; `InstanceError` if a field is missing or of the wrong kind."""
    return read_fields(Prediction, content, where, extra="ignore")
