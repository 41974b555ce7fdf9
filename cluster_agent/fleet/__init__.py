"""The connection to the fleet: calls to the learner, registration, identity, heartbeats, policy versions."""
