"""The local agent: schedules one cluster and learns from it."""
