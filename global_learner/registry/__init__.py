"""Published policy versions."""
