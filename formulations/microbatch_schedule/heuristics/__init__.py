"""Schedules found without a proof."""
