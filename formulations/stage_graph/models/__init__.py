"""The declarative models and what they share."""

#: Up to so many operators one model that chooses the micro-batch size is as fast as a search that fixes it.
FEW_OPERATORS = 8
