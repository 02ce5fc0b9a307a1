"""The declarative models and what they share."""
