"""Compiled kernels: how they are compiled, their deadlines and their memory."""
