"""What the declarative models share."""
