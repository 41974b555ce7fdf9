"""Heuristic schedulers, one file each, as their papers define them; importing the package registers their names.

A scheduler's file is loaded when one is built: whoever only names them waits for none.
"""

from policy_net.policy import register_policy_of

register_policy_of("policy_net.baselines.fifo", {"fifo": "build_fifo", "fifo-backfill": "build_fifo_backfill"})
register_policy_of("policy_net.baselines.easy", {"fifo-easy": "build_easy"})
register_policy_of("policy_net.baselines.las", {"las": "build_las"})
register_policy_of("policy_net.baselines.srtf", {"srtf": "build_srtf"})
register_policy_of("policy_net.baselines.tetris", {"tetris": "build_tetris"})
register_policy_of("policy_net.baselines.drf", {"drf": "build_drf"})
register_policy_of("policy_net.baselines.drf_peak", {"drf-peak": "build_drf_peak"})
register_policy_of(
    "policy_net.baselines.optimus",
    {
        "optimus": "build_optimus",
        "optimus-fitted": "build_optimus_fitted",
        "optimus-true-table": "build_optimus_true_table",
    },
)
register_policy_of("policy_net.baselines.optimus_sr", {"optimus-sr": "build_optimus_sr"})
register_policy_of("policy_net.baselines.marginal", {"marginal": "build_marginal", "oracle": "build_oracle"})
register_policy_of(
    "policy_net.baselines.authors", {"drf-authors": "build_drf_authors", "srtf-authors": "build_srtf_authors"}
)
register_policy_of("policy_net.baselines.authors_tetris", {"tetris-authors": "build_tetris_authors"})
register_policy_of("policy_net.baselines.authors_optimus", {"optimus-authors": "build_optimus_authors"})
