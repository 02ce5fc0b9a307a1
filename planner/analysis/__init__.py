"""Questions about an instance, its plans and its models: explained, varied, compared."""
