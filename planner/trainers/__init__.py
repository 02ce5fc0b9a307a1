"""Plans as layouts that trainers read: `planner.trainers.exporting.export`, and the table of formats (`formats`)."""
