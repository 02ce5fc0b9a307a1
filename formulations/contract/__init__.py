"""What every problem package is made of: families, methods, answers, quantities, questions."""
