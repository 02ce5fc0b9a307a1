"""Questions next to the optimum: which plans are distinct, what binds, what would repair an instance."""
