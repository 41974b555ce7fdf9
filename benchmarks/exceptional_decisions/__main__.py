"""`python -m benchmarks.exceptional_decisions --data FOLDER`: what the guard's monitor finds, and how often wrongly.

False alarms: policies as they ship, on the last windows of recorded clusters. Every second cluster is held out; first
windows of the others (`--choose`) chose the margins. Damage: the same policies with damaged weights, with the monitor
and without it. Guard, fallback and monitor are the agent's, in the reference simulator.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from scipy.stats import beta

from benchmarks.command import parser_of, show
from benchmarks.exceptional_decisions.damage import DAMAGES
from benchmarks.exceptional_decisions.watched import Task, measured
from benchmarks.policy_quality.cells import Cell, Disturbance, Durations, RealCell, SyntheticCell
from benchmarks.policy_quality.seeds import JUDGED_GENERATOR_SEED, SEEDS, Part, windows_of
from benchmarks.policy_quality.worlds import Cluster, clusters_in
from benchmarks.processes import process_pool
from policy_net.domain import CapacityMode

WINDOW_JOBS = 300
CONDITIONS = (("mix", Durations.KNOWN), ("mix", Durations.UNKNOWN), ("allreduce", Durations.KNOWN))
POLICIES = ("set-taught", "dl2")
DAMAGED_CLUSTERS = ("itp-02", "itp-08", "philly-11cb48")


def cell_of(cluster: Cluster, kind: str, durations: Durations, part: Part = Part.TEST) -> Cell:
    """The last window of a cluster, or the first, with seeds of their own."""
    windows, seed = windows_of(cluster.jobs, WINDOW_JOBS), SEEDS[part].models[0]
    window = max(windows) if part is Part.TEST else 0
    place = (cluster.name, cluster.file_digest, WINDOW_JOBS, window, WINDOW_JOBS, part, seed, seed)
    return RealCell(*place, kind, 0.9, durations, CapacityMode.POOLED)


def damage_tasks(clusters: Sequence[Cluster]) -> list[Task]:
    """Every damage, with the monitor and without."""
    cells = [cell_of(one, "mix", Durations.KNOWN) for one in clusters if one.name in DAMAGED_CLUSTERS]
    seed = JUDGED_GENERATOR_SEED
    cells.append(SyntheticCell(24, 60, "varied", CapacityMode.POOLED, Disturbance.NONE, seed, seed))
    return [
        Task(cell, policy, damage, monitored)
        for policy in POLICIES
        for damage in DAMAGES
        for cell in cells
        for monitored in (True, False)
    ]


def alarm_rates(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of each policy the alarms in 10,000 decisions, and the bound that they are below with 95%."""
    found: dict[str, Any] = {}
    for policy in POLICIES:
        own = [row for row in rows if row["policy"] == policy]
        decisions, alarms = sum(row["decisions"] for row in own), sum(row["alarms"] for row in own)
        bound = float(beta.ppf(0.95, alarms + 1, decisions - alarms))
        found[policy] = {"decisions": decisions, "alarms": alarms, "per_10000": 1e4 * alarms / decisions}
        found[policy] |= {"below_with_95_percent": round(1e4 * bound, 3)}
    return found


def main() -> int:
    """Entry point; returns the exit code."""
    parser = parser_of("exceptional_decisions", __doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with workloads/*.csv")
    parser.add_argument("--choose", action="store_true", help="where the margins were chosen, no damage")
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    clusters = clusters_in(asked.data)
    if not clusters:
        parser.error(f"--data {asked.data}: has no workloads/*.csv; name the folder above `workloads`")
    chosen, part = (clusters[::2], Part.VALIDATION) if asked.choose else (clusters[1::2], Part.TEST)
    healthy = [Task(cell_of(one, *how, part), policy) for policy in POLICIES for how in CONDITIONS for one in chosen]
    tasks = healthy + ([] if asked.choose else damage_tasks(clusters))
    rows = []
    with process_pool(asked.processes) as pool:
        for row in pool.map(partial(measured, data=asked.data), tasks):
            rows.append(row)
            print(row, file=sys.stderr, flush=True)
    result = {"false_alarms": alarm_rates(rows[: len(healthy)]), "rows": rows}
    columns = ("cluster", "policy", "damage", "monitored", "decisions", "alarms", "first", "avg_jct_seconds")
    show(result, asked.output, "rows", columns)
    return 0


if __name__ == "__main__":
    sys.exit(main())
