"""A frozen dataclass for each problem, with the rules between its fields."""
