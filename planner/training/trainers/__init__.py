"""Plans as layouts that trainers read: `exporting.export`, and the table of formats (`formats`)."""
