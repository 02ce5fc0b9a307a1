"""The direct model, and the plan that it begins with."""
