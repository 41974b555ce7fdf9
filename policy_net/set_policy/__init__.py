"""The `set` policy: planner, beliefs and residual."""
