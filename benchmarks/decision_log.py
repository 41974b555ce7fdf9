"""The cost of logging a decision: `python -m benchmarks.decision_log`, a few seconds.

A generated workload is scheduled by several policies, and every decision is logged the way an agent does it: beliefs
taken down before, the line written after. Beside the times stands what deciding itself took, in the same run.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from statistics import mean
from typing import Any

from cluster_agent.acting.active_policy import CandidateFactory, number_decision
from cluster_agent.acting.deadline import decide_recorded
from cluster_agent.guard import GuardedDecision
from cluster_agent.recording.decision_log import CURRENT, DecisionLog
from cluster_agent.recording.decision_recorder import DecisionRecorder
from cluster_agent.settings import PolicySettings
from policy_net.domain import PolicyContext
from policy_net.exchange.log_lines import read_lines
from policy_net.laboratory.simulation.engine import Simulation
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.workloads.source_options import WorkloadOptions
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.policy import build_policy

POLICIES = ("drf", "optimus", "marginal", "set")
WORKLOADS = (("dl2:jobs=60,seed=3", 24), ("dl2:jobs=200,arrivals=google,seed=3", 80))


def measure(source: str, nodes: int, name: str, folder: Path) -> dict[str, Any]:
    """One policy on one workload."""
    speeds = default_speeds()
    simulation = Simulation(
        load_workload(source, WorkloadOptions(speeds=speeds)), Environment(nodes=nodes, speed_noise=0.27), speeds
    )
    settings = PolicySettings()
    candidate = CandidateFactory(settings).from_name_or_file(name)
    fallback = build_policy("drf", PolicyContext())
    recorder = DecisionRecorder(DecisionLog(folder, 10**9, 1), fallback, settings, lambda: 0.0)
    before_us, write_us, decide_us, jobs = [], [], [], []
    number = 0
    while not simulation.finished:
        state, trigger = simulation.observe()
        number_decision(candidate.policy, number)
        began = time.perf_counter()
        before = recorder.begin(number, candidate, fresh=False, busy=False)
        captured = time.perf_counter()
        decision, samples = decide_recorded(candidate.policy, state, trigger)
        decided = time.perf_counter()
        guarded = GuardedDecision(decision, samples, (), decided - captured)
        recorder.write(before, candidate, state, trigger, guarded, None)
        written = time.perf_counter()
        before_us.append(1e6 * (captured - began))
        decide_us.append(1e6 * (decided - captured))
        write_us.append(1e6 * (written - decided))
        jobs.append(len(state.jobs))
        progress = simulation.apply(decision)
        candidate.policy.observe(progress)
        recorder.on_observed(progress, candidate, by_policy=True)
        number += 1
    recorder.close()
    lines = [
        line.content for line in read_lines(folder / CURRENT) if line.content is not None and not line.is_checkpoint
    ]
    beliefs = recorder.begin(number, candidate, fresh=True, busy=False)
    assert beliefs.reason is not None  # noqa: S101  (a fresh policy calls for one)
    return {
        "workload": source,
        "nodes": nodes,
        "policy": name,
        "decisions": number,
        "mean_jobs": round(mean(jobs), 1),
        "decide_us": round(mean(decide_us)),
        "take_down_us": round(mean(before_us)),
        "write_us": round(mean(write_us)),
        "bytes_per_decision": round((folder / CURRENT).stat().st_size / number),
        "of_them_observations": round(mean(len(json.dumps(line["observed"], separators=(",", ":"))) for line in lines)),
        "checkpoint_bytes_at_the_end": len(beliefs.checkpoint.to_line(beliefs.reason)),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    wanted = parser.parse_args()
    rows = []
    for source, nodes in WORKLOADS:
        for name in POLICIES:
            with tempfile.TemporaryDirectory() as folder:
                rows.append(measure(source, nodes, name, Path(folder)))
    if wanted.output == "json":
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        print(" ".join(f"{key}={value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
