"""Results and what is derived from them: events, losses, fingerprints, verdicts on plans."""
