"""Questions next to the optimum: which plans are distinct, what may change, why there is no plan."""
