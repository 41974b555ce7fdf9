"""The cost of a resize to a running job: how long its workers wait, how much longer its steps take, what it moves."""
