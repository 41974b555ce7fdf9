"""Which node gets which task: one file a strategy."""
