"""The declarative model and the plan that it begins with."""
