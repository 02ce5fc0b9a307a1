"""Questions next to the optimum: which plans are distinct."""
