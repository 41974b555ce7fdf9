"""Heuristic schedulers, one file each, as their papers define them; importing the package registers their names."""

from policy_net.baselines.authors import build_drf_authors, build_srtf_authors
from policy_net.baselines.authors_optimus import build_optimus_authors
from policy_net.baselines.authors_tetris import build_tetris_authors
from policy_net.baselines.drf import build_drf
from policy_net.baselines.drf_peak import build_drf_peak
from policy_net.baselines.easy import build_easy
from policy_net.baselines.fifo import build_fifo, build_fifo_backfill
from policy_net.baselines.las import build_las
from policy_net.baselines.marginal import build_marginal, build_oracle
from policy_net.baselines.optimus import build_optimus, build_optimus_fitted, build_optimus_true_table
from policy_net.baselines.optimus_sr import build_optimus_sr
from policy_net.baselines.srtf import build_srtf
from policy_net.baselines.tetris import build_tetris
from policy_net.policy import register_policy

register_policy("fifo", build_fifo)
register_policy("fifo-backfill", build_fifo_backfill)
register_policy("fifo-easy", build_easy)
register_policy("las", build_las)
register_policy("srtf", build_srtf)
register_policy("tetris", build_tetris)
register_policy("drf", build_drf)
register_policy("drf-peak", build_drf_peak)
register_policy("optimus", build_optimus)
register_policy("optimus-fitted", build_optimus_fitted)
register_policy("optimus-true-table", build_optimus_true_table)
register_policy("optimus-sr", build_optimus_sr)
register_policy("marginal", build_marginal)
register_policy("oracle", build_oracle)
register_policy("drf-authors", build_drf_authors)
register_policy("srtf-authors", build_srtf_authors)
register_policy("tetris-authors", build_tetris_authors)
register_policy("optimus-authors", build_optimus_authors)
