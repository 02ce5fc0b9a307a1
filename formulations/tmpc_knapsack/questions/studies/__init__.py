"""Studies beside the problem: where its options come from; no methods."""
