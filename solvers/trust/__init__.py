"""Why solvers are believed: pinned versions, known models, proofs made twice."""
