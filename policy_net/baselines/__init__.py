"""Heuristic schedulers, one file each, as their papers define them; importing the package registers their names."""

from policy_net.baselines.drf import build_drf
from policy_net.policy import register_policy

register_policy("drf", build_drf)
