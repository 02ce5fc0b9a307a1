"""Schedules and partitions found without a proof."""
