"""Questions next to the optimum: what is solved inside, what small instances consist of, why there is no plan."""
