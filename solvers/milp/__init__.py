"""MILP by Pyomo and HiGHS: runs models, looks into them, linear programs that grow."""
