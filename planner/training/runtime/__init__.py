"""Run plans: an exported model, split by the stages of a plan, on processes that exchange tensors.

`planner.training.runtime.run.run_plan` is the way in. What needs torch imports it inside functions: it is an extra.
"""
