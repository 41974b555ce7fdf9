"""Score of a policy on the fixed replays, with its decisions at fixed states; and times of policies on sketches."""

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
from global_learner.scores.sketch_world import world_of
from policy_net.domain import ClusterState, Decision, PolicyContext, Trigger
from policy_net.errors import BadInput, NoProgress
from policy_net.exchange.policy_file import digest_of
from policy_net.exchange.workload_sketch import WorkloadSketch
from policy_net.laboratory.simulation.engine import Simulation
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.workloads.workload import Workload
from policy_net.policy import build_policy
from policy_net.policy_kinds import load_policy


def score(policy_file: Path, cache: Path) -> dict[str, Any]:
    """Score of a policy: average JCTs by replay, their ratios to the baselines', a number for each fixed decision.

    Args:
        cache: a folder for the baselines' figures.

    Raises:
        PolicyNetError: the file cannot be used, or the policy lets jobs wait for ever.
    """
    baselines = baseline_jcts(cache)
    replays: list[dict[str, Any]] = []
    decisions: list[int] = []
    for entry, workload, environment in worlds():
        jct = average_jct(str(policy_file), workload, environment)
        replays.append({"replay": entry.name, "avg_jct_seconds": jct, "baseline_jct_seconds": baselines[entry.name]})
        policy = load_policy(str(policy_file), PolicyContext())
        decisions += [decision_number(policy.decide(*moment)) for moment in fixed_moments(workload, environment)]
    over = {
        name: math.exp(
            sum(math.log(row["avg_jct_seconds"] / row["baseline_jct_seconds"][name]) for row in replays) / len(replays)
        )
        for name in BASELINES
    }
    identity = {"replay_set": NAME, "replay_set_digest": set_digest()}
    return {**identity, "replays": replays, "over": over, "decisions": decisions}


def mean_jcts(question: dict[str, Any]) -> dict[str, float | None]:
    """Mean completion time of each policy on a cluster's sketch, in seconds; None for one that lets jobs wait for ever.

    Args:
        question: `sketch`; `seed`; `policies`: for each name a heuristic's (None), or `file` and `digest` of a version.

    Raises:
        PolicyNetError: the sketch or a file cannot be used.
        OSError: a file cannot be read.
    """
    sketch = WorkloadSketch.from_json(question["sketch"])
    workload, environment = world_of(sketch, question["seed"], default_speeds())
    jcts: dict[str, float | None] = {}
    for name, version in question["policies"].items():
        if version is not None:
            check_digest(version)
        try:
            jcts[name] = average_jct(name if version is None else version["file"], workload, environment)
        except NoProgress:
            jcts[name] = None
    return jcts


def check_digest(version: Mapping[str, str]) -> None:
    """Raise BadInput if the content of a version's `file` has another `digest`, OSError if it cannot be read."""
    found = digest_of(Path(version["file"]).read_bytes())
    if found != version["digest"]:
        raise BadInput(f"{version['file']}: damaged: its digest is {found}, expected {version['digest']}; restore it")


def average_jct(name_or_file: str, workload: Workload, environment: Environment) -> float:
    """Average JCT in seconds; the policy acts greedily and starts from its own beliefs."""
    truth = default_speeds()
    policy = load_policy(name_or_file, PolicyContext(true_speeds=truth))
    return float(replay(workload, environment, policy, truth).to_json()["avg_jct_seconds"])


def baseline_jcts(cache: Path) -> dict[str, dict[str, float]]:
    """Average JCTs by replay and baseline; computed once for a set and kept."""
    path = baselines_file(cache)
    jcts = read_baselines(path)
    if jcts is None:
        jcts = {
            entry.name: {name: average_jct(name, workload, environment) for name in BASELINES}
            for entry, workload, environment in worlds()
        }
        write_baselines(path, jcts)
    return jcts


def baselines_file(cache: Path) -> Path:
    """File of the baselines' figures on these replays."""
    return cache / f"baselines-{set_digest()[:16]}.json"


def write_baselines(path: Path, jcts: Mapping[str, Mapping[str, float]]) -> None:
    """Keep the baselines' figures with a checksum.

    Raises:
        OSError: the disk refuses.
    """
    text = json.dumps(jcts)
    write_whole(path, json.dumps({"jcts": jcts, "crc": zlib.crc32(text.encode())}), durable=False, mode=PRIVATE)


def read_baselines(path: Path) -> dict[str, dict[str, float]] | None:
    """The baselines' figures; None if they are missing or damaged: they can be computed again."""
    try:
        content = json.loads(path.read_text())
        found = content["jcts"]
        if zlib.crc32(json.dumps(found).encode()) != content["crc"]:
            return None
        return {entry.name: {name: float(found[entry.name][name]) for name in BASELINES} for entry in REPLAYS}
    except (OSError, ValueError, TypeError, KeyError):
        return None


def fixed_moments(workload: Workload, environment: Environment) -> Iterator[tuple[ClusterState, Trigger]]:
    """States that DRF goes through, at which every version is asked for a decision."""
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
    """Checksum, 32 bits, that two decisions share if they allocate alike."""
    rows = sorted((job, given.workers, given.ps) for job, given in decision.allocation.items() if given.tasks)
    return zlib.crc32(json.dumps(rows).encode())
