"""Heuristic schedulers as their papers define them, a file each with its variants; importing this registers names.

A scheduler's file is loaded when one is built: whoever only names them waits for none.
"""

from policy_net.policy import register_policy_of

register_policy_of(
    "policy_net.baselines.fifo",
    {"fifo": "build_fifo", "fifo-backfill": "build_fifo_backfill", "fifo-easy": "build_easy"},
)
register_policy_of("policy_net.baselines.las", {"las": "LasPolicy"})
register_policy_of("policy_net.baselines.srtf", {"srtf": "SrtfPolicy"})
register_policy_of("policy_net.baselines.tetris", {"tetris": "TetrisPolicy"})
register_policy_of("policy_net.baselines.drf", {"drf": "DrfPolicy", "drf-peak": "DrfPeakPolicy"})
register_policy_of(
    "policy_net.baselines.optimus",
    {
        "optimus": "build_optimus",
        "optimus-fitted": "build_optimus_fitted",
        "optimus-true-table": "build_optimus_true_table",
        "optimus-sr": "OptimusSrPolicy",
    },
)
register_policy_of("policy_net.baselines.marginal", {"marginal": "build_marginal", "oracle": "build_oracle"})
