"""Column generation: stages priced by a program of their own, a master program over those found, targets between."""
