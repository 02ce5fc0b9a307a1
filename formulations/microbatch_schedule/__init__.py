"""Micro-batch schedules of stage graphs, and how many samples a stage keeps in flight."""
