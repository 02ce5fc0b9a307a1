"""Many instances: benchmarks, censuses, validations, searches for losses."""
