"""What would fedl2 have saved? A page and a picture for the cluster's operator, made from replays.

`writing.write_report` is not among the names here: it loads a drawing library, which takes half a second.
"""

from policy_net.laboratory.report.comparison import TODAY, Comparison
from policy_net.laboratory.report.folder import prepare_folder
from policy_net.policy import DEFAULT_POLICY

REPORT_POLICIES = (TODAY, "drf", "optimus", DEFAULT_POLICY)
"""What a report compares unless the user names policies."""

__all__ = ["REPORT_POLICIES", "Comparison", "prepare_folder"]
