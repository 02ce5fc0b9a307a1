"""Questions next to the optimum: which plans are distinct, what small instances consist of."""
