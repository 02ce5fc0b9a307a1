# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 8. Do not trust us
#
# A result says `optimal`. Why should anybody believe it? Solvers have been caught at false proofs, and so have
# kernels of this project. Here a plan is solved and certified, the certificate is spoiled in four ways, and at the
# end the checker runs alone: one file, with Python's standard library.

# %%
import copy
import json
import os
import pathlib
import subprocess
import sys
from fractions import Fraction
from tempfile import TemporaryDirectory

import planner

FULL = bool(os.environ.get("PLANNER_FULL"))
DEVICES = 64 if FULL else 8
instance = planner.load("bert32", devices=DEVICES, memory="32GiB")

# %% [markdown]
# ## Solved, and certified

# %%
result = planner.solve(instance, exact=True)
certified = planner.certify(instance, result)
print(f"{result.objective:.9g} {result.unit}, {result.status}; certificate: {certified.result.certificate}")
honest = planner.verify(instance, certified.content)
print(f"accepted: {honest.reason}" if honest.accepted else f"rejected: {honest.reason}")
assert honest.accepted

# %% [markdown]
# ## Spoiled
#
# A label is made to promise more devices than the stages before it have to take, the bound is raised above the plan,
# a stage of the plan gets a replica more than there are devices, and the certificate is presented for another
# instance. The checker names the first rule that fails.


# %%
def spoiled(change):
    """The verdict on a copy of the certificate that ``change`` has spoiled."""
    content = copy.deepcopy(certified.content)
    change(content)
    return planner.verify(instance, content)


def label(content):
    first = next(row[1] for row in content["proof"]["downsets"][1:] if row[1])
    first[0][1] += DEVICES


def bound(content):
    content["bound"] = str(Fraction(content["objective"]) * Fraction(11, 10))


def plan(content):
    content["plan"]["stages"][0]["dp_degree"] += 1


verdicts = {change.__name__: spoiled(change) for change in (label, bound, plan)}
other = planner.load("bert32", devices=DEVICES, memory="31GiB")
verdicts["other instance"] = planner.verify(other, certified.content)
for name, verdict in verdicts.items():
    print(f"{name:15} {'accepted' if verdict.accepted else 'rejected'}: {verdict.reason}")
assert not any(verdict.accepted for verdict in verdicts.values())

# %% [markdown]
# A forged *result* needs no such care: whoever changes its bound passes `planner.check`, which looks at the plan
# only. The bound is what `verify` is for.

# %%
forged = {**result.to_json(), "bound": 1.1 * result.objective}
print("check:", planner.check(instance, forged["plan"]).feasible, "- the plan alone; the bound needs a certificate")

# %% [markdown]
# ## The checker alone
#
# One file is written into an empty folder with the instance and the certificate, and runs in an interpreter that sees
# neither this project nor any package (`-I -S`).

# %%
with TemporaryDirectory() as folder:
    pathlib.Path(folder, "checker.py").write_text(planner.checker("stage_partitioning"))
    planner.save(instance, f"{folder}/instance.json")
    pathlib.Path(folder, "certificate.json").write_text(certified.text)
    spoil = copy.deepcopy(certified.content)
    bound(spoil)
    pathlib.Path(folder, "spoiled.json").write_text(json.dumps(spoil))
    print(*sorted(os.listdir(folder)))
    for name in ("certificate.json", "spoiled.json"):
        command = [sys.executable, "-I", "-S", "checker.py", "instance.json", name]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        print(f"{name}: exit {done.returncode}: {done.stdout.strip()}")
        assert done.returncode == (name != "certificate.json")
