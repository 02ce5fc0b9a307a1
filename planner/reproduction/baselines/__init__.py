"""Claims about planners that the papers compare with."""
