"""Report of what fedl2 would have saved: a page and a picture for the cluster's operator, made from replays."""

from policy_net.laboratory.report.comparison import QUEUES, Comparison
from policy_net.laboratory.report.folder import check_folder, prepare_folder, write_report
from policy_net.laboratory.report.headline import headline
from policy_net.policy import DEFAULT_POLICY

REPORT_POLICIES = (*reversed(QUEUES), "drf", "optimus", DEFAULT_POLICY)
"""What a report compares unless the user names policies."""

__all__ = ["REPORT_POLICIES", "Comparison", "check_folder", "headline", "prepare_folder", "write_report"]
