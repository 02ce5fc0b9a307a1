"""Questions about more than one instance: sweeps, orders, frontiers, networks of two levels."""
