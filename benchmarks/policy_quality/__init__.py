"""The yardstick: every scheduler on the same made-up and recorded workloads, compared pair by pair.

`python -m benchmarks.policy_quality`; docs/evaluation.md explains each choice, docs/results/baselines.md has results.
"""
