"""Score of a policy on the fixed replays, beside the baselines, and what it decides at fixed states."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import policy_net.baselines  # noqa: F401  (registers the baselines' names)
from foundation.files import PRIVATE, write_whole
from global_learner.scores.replay_set import BASELINES, NAME, REPLAYS, STATES_A_REPLAY, set_digest, worlds
from policy_net.domain import ClusterState, Decision, PolicyContext, Trigger
from policy_net.laboratory.simulation.engine import Simulation
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.workloads.workload import Workload
from policy_net.policy import build_policy
from policy_net.policy_kinds import load_policy


def score(policy_file: Path, cache: Path) -> dict[str, Any]:
    """How a policy does: average JCTs by replay, their ratios to the baselines', a number for each fixed decision.

    Args:
        cache: a folder for what does not depend on the policy.

    Raises:
        PolicyNetError: the file cannot be used, or the policy lets jobs wait for ever.
    """
    baselines = baseline_jcts(cache)
    replays: list[dict[str, Any]] = []
    decisions: list[int] = []
    for entry, workload, environment in worlds():
        jct = average_jct(str(policy_file), workload, environment)
        replays.append(
            {"replay": entry.name, "avg_jct_seconds": jct, "baseline_jct_seconds": baselines[entry.name]},
        )
        policy = load_policy(str(policy_file), PolicyContext())
        decisions += [decision_number(policy.decide(*moment)) for moment in fixed_moments(workload, environment)]
    over = {
        name: math.exp(
            sum(math.log(row["avg_jct_seconds"] / row["baseline_jct_seconds"][name]) for row in replays) / len(replays)
        )
        for name in BASELINES
    }
    return {
        "replay_set": NAME,
        "replay_set_digest": set_digest(),
        "replays": replays,
        "over": over,
        "decisions": decisions,
    }


def average_jct(name_or_file: str, workload: Workload, environment: Environment) -> float:
    """Seconds; the policy acts greedily and starts from its own beliefs."""
    truth = default_speeds()
    policy = load_policy(name_or_file, PolicyContext(true_speeds=truth))
    return float(replay(workload, environment, policy, truth).to_json()["avg_jct_seconds"])


def baseline_jcts(cache: Path) -> dict[str, dict[str, float]]:
    """By replay and baseline; computed once for a set and kept."""
    path = baselines_file(cache)
    kept = read_baselines(path)
    if kept is not None:
        return kept
    jcts = {
        entry.name: {name: average_jct(name, workload, environment) for name in BASELINES}
        for entry, workload, environment in worlds()
    }
    write_baselines(path, jcts)
    return jcts


def baselines_file(cache: Path) -> Path:
    """Where what the baselines make of these replays is kept."""
    return cache / f"baselines-{set_digest()[:16]}.json"


def write_baselines(path: Path, jcts: Mapping[str, Mapping[str, float]]) -> None:
    """Keep what was computed, with a checksum.

    Raises:
        OSError: the disk refuses.
    """
    text = json.dumps(jcts)
    write_whole(path, json.dumps({"jcts": jcts, "crc": zlib.crc32(text.encode())}), durable=False, mode=PRIVATE)


def read_baselines(path: Path) -> dict[str, dict[str, float]] | None:
    """What was kept; None if there is nothing, or it is damaged: it can be computed again."""
    try:
        content = json.loads(path.read_text())
        found = content["jcts"]
        if zlib.crc32(json.dumps(found).encode()) != content["crc"]:
            return None
        return {entry.name: {name: float(found[entry.name][name]) for name in BASELINES} for entry in REPLAYS}
    except (OSError, ValueError, TypeError, KeyError):
        return None


def fixed_moments(workload: Workload, environment: Environment) -> Iterator[tuple[ClusterState, Trigger]]:
    """States that every version is shown, whatever it would have made of the cluster: those that DRF goes through."""
    simulation = Simulation(workload, environment, default_speeds(), None)
    drf = build_policy("drf", PolicyContext())
    shown = 0
    before: tuple[str, ...] = ()
    while not simulation.finished and shown < STATES_A_REPLAY:
        state, trigger = simulation.observe()
        present = tuple(job.job_id for job in state.jobs)
        if present and present != before:  # the same jobs as before are hardly another question
            shown += 1
            yield state, trigger
        before = present
        drf.observe(simulation.apply(drf.decide(state, trigger)))


def decision_number(decision: Decision) -> int:
    """32 bits that two decisions share if they allocate alike."""
    rows = sorted((job, given.workers, given.ps) for job, given in decision.allocation.items() if given.tasks)
    return zlib.crc32(json.dumps(rows).encode())
