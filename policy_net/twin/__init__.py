"""The compiled twin: a cluster under the `set` policy, simulated in C, decision for decision as in the reference."""
