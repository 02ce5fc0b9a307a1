"""What checkers of certificates share: the standard library alone. `assemble` joins a checker into one file."""
