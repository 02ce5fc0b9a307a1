"""The definition: plans, objective, rules, quantities, formats and figures; no solver."""
