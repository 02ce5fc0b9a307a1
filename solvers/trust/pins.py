"""The versions of the solvers' packages with which results were proved and checked; no other is run.

ortools 9.15 carries HiGHS 1.12.0: beside highspy 1.15 the two clash, and highspy 1.14.0 returns wrong optima
(README, "Solvers"). pyproject.toml pins the same.
"""

from functools import cache

#: Distribution to the one version that is run.
PINNED = {"ortools": "9.15.6755", "highspy": "1.12.0"}


class BackendError(RuntimeError):
    """A solver of a version that is not the pinned one: it is refused before it runs."""


@cache  # asked before every run, and 4 ms each time
def installed_version(distribution: str) -> str:
    """The version of a distribution here; "absent" if there is none."""
    from importlib import metadata  # 15 ms that a command without solvers saves

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "absent"


def demand(distribution: str) -> None:
    """Raise `BackendError`, in one line with the way out, unless the distribution has its pinned version."""
    found, pinned = installed_version(distribution), PINNED[distribution]
    if found != pinned:
        raise BackendError(
            f"{distribution} is {found}; expected {pinned}, the version whose proofs were checked: "
            f"pip install {distribution}=={pinned}, or a method without it"
        )
