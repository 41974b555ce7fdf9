"""What `replay --report` adds to the command: which policies it compares, and the files that it writes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from policy_net.errors import BadInput
from policy_net.laboratory.commands.world_options import WorldOptions
from policy_net.laboratory.report import REPORT_POLICIES, Comparison
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.simulation.replay import ReplayResult
from policy_net.laboratory.workloads.workload import Workload
from policy_net.policy import DEFAULT_POLICY


def chosen_policies(policies: Sequence[str] | None, report: Path | None) -> list[str]:
    """Those named; for a report, unless any are, those that it compares.

    Raises:
        BadInput: none is named, and no report is asked for.
    """
    if policies:
        return list(policies)
    if report is None:
        raise BadInput(
            f"no --policy: give NAME or FILE, such as {DEFAULT_POLICY} (repeatable), or --report FOLDER, which compares"
            f" {', '.join(REPORT_POLICIES)}"
        )
    return list(REPORT_POLICIES)


def write(
    worlds: Sequence[tuple[Workload, Environment]], results: Sequence[ReplayResult], folder: Path, options: WorldOptions
) -> None:
    """Write the page and the picture, and say on stderr where they are.

    Args:
        results: for every world as many, in the order of the worlds.
    """
    from policy_net.laboratory.report.writing import write_report  # noqa: PLC0415  (loads matplotlib: only who wants it waits)

    each = len(results) // len(worlds)
    comparisons = [
        Comparison(
            workload,
            environment,
            tuple(results[index * each : (index + 1) * each]),
            nodes_given=bool(options.nodes or options.gpu_types),
            locality=options.locality,
        )
        for index, (workload, environment) in enumerate(worlds)
    ]
    for path in write_report(comparisons, folder):
        print(f"written: {path}", file=sys.stderr)
