"""Names that mean a choice of methods: no method of a problem, and none that a user brings, has one."""

#: Whatever fits the instance and the limits (`planner.solving.choose`).
AUTO = "auto"
#: An exact search and a model at once (`planner.solving.portfolio`).
PORTFOLIO = "portfolio"
