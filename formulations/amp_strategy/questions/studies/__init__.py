"""Studies of the paper's claims about this problem; no methods."""
