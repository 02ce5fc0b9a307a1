"""Questions next to the optimum: what small instances consist of, why there is no plan."""
