"""Questions next to the optimum: what may change, what small instances consist of."""
