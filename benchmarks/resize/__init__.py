"""What a resize costs a running job: how long its workers wait, how much longer its steps take, what it moves."""
