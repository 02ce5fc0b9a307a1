"""The shortest iteration, proved: all partitions that its heads allow, and the warm-ups of each."""
