"""Report of a fleet: one page, as a file to pass on or live at the learner's HTTP port."""
