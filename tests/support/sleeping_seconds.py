"""Times of the chain that processes sleep through (`tests/planner/training/runtime/sleeping_model.py`)."""

#: Seconds of a micro-batch in each layer, forward and backward.
SECONDS = (0.180, 0.288, 0.144, 0.396, 0.216, 0.324, 0.162, 0.234)
#: Of these, of the gradients of its weights: as declared in some layers, else a third.
DECLARED = {v: SECONDS[v] / v for v in (3, 5, 7)}
WEIGHT_SECONDS = tuple(DECLARED.get(v, seconds / 3) for v, seconds in enumerate(SECONDS))
