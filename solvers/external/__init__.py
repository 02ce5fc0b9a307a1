"""MILP solvers other than HiGHS: OR-Tools' MathOpt, SCIP through PySCIPOpt, and whatever Pyomo finds.

Each runs in a process of its own, which is killed where it does not stop: no library meets another one's symbols
(`trust.pins` says what happens to two copies of HiGHS), and a solver that crashes takes nothing with it. What runs
in that process (`solvers.external.__main__`) is an `engine.Engine`; `solvers.external.process` talks to it.
"""
