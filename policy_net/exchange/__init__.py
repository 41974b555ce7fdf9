"""The exchange between agents and the learner: messages, specs, policy files, decision logs, identities."""
