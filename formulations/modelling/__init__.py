"""How declarative models are run: first plans, searches by targets, layered paths."""
