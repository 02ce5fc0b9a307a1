"""The installation: examined, and its kernels compiled."""
