"""Questions next to the optimum: what may change, what is solved inside."""
