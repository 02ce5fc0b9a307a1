"""Questions next to the optimum: what is solved inside, what small instances consist of."""
