"""Lower bounds without a solver."""
