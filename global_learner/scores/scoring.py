"""Score of a policy on the fixed replays, with its decisions at fixed states; and times of policies on sketches.

The world of a sketch is made up from a seed: jobs and machines of the kind that a cluster told of. Arrivals are a
Poisson process whose rate follows the parts of the day; sizes and lengths are drawn from the sketch's quantiles, and
what a job trains from the catalogue, as the learner knows no cluster's models. A cluster with more jobs than a replay
holds is made smaller by the factor by which its jobs are fewer.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import policy_net.baselines  # noqa: F401  (registers the baselines' names)
from foundation.files import PRIVATE, write_whole
from global_learner.scores.replay_set import BASELINES, NAME, REPLAYS, STATES_A_REPLAY, set_digest, worlds
from policy_net.domain import Allocation, ClusterState, Decision, PolicyContext, SpeedModel, Trigger
from policy_net.errors import BadInput, NoProgress
from policy_net.exchange.policy_file import digest_of
from policy_net.exchange.workload_sketch import PARTS_OF_DAY, QUANTILES, KindSketch, WorkloadSketch
from policy_net.laboratory.catalogue import CATALOGUE, model_names
from policy_net.laboratory.simulation.engine import Simulation
from policy_net.laboratory.simulation.environment import DecideOn, Environment
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.workloads.recorded import ClusterSize, suitable_ps
from policy_net.laboratory.workloads.workload import Workload, WorkloadJob, job_of
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


LEAST_JOBS, MOST_JOBS = 48, 192
"""Of a replay; as many as come in two days between these."""
_DAYS = 2.0
_DAY_SECONDS = 86_400.0
_NOISE = 0.27
"""Of the observed speeds, as in the fixed replays."""
_TAIL = 0.05
"""Beyond the outermost quantiles nothing is said; what is drawn there is taken from so near to them."""


def world_of(sketch: WorkloadSketch, seed: int, speeds: SpeedModel) -> tuple[Workload, Environment]:
    """Jobs and machines; the same sketch and seed give the same ones.

    Args:
        speeds: by which a job's time at its size becomes work.

    Raises:
        BadInput: nothing of the catalogue fits its machines.
    """
    expected = sketch.jobs_a_day * _DAYS
    count = int(min(max(expected, LEAST_JOBS), MOST_JOBS))
    factor = min(1.0, MOST_JOBS / expected)
    nodes = max(1, math.ceil(sketch.nodes * factor))
    cluster = ClusterSize(nodes, sketch.gpus_per_node, sketch.cpus_per_node)
    of_times, of_jobs = (np.random.default_rng(stream) for stream in np.random.SeedSequence(seed).spawn(2))
    # The nodes that are left are whole ones, so the rate follows them, and the load stays as told.
    times = arrival_seconds(sketch, count, sketch.jobs_a_day * nodes / sketch.nodes, of_times)
    weights = np.array([entry.share for entry in sketch.kinds])
    chosen = of_jobs.choice(len(sketch.kinds), size=count, p=weights / weights.sum())
    jobs = tuple(
        _job(number, float(at), sketch.kinds[place], cluster, speeds, of_jobs)
        for number, (at, place) in enumerate(zip(times, chosen, strict=True))
    )
    environment = Environment(
        nodes=nodes,
        gpus_per_node=sketch.gpus_per_node,
        cpus_per_node=sketch.cpus_per_node,
        decide_on=DecideOn.EVENT,
        speed_noise=_NOISE,
        seed=1,
    )
    return Workload(f"a sketch of {nodes} nodes", jobs), environment


def arrival_seconds(
    sketch: WorkloadSketch, count: int, jobs_a_day: float, random: np.random.Generator
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """When so many jobs come, in seconds from a midnight; rising.

    Unit steps of a Poisson process, laid out along the expected number of jobs since that midnight.
    """
    shares = np.array(sketch.day_shares or (1.0,) * PARTS_OF_DAY) + 0.01  # a part that is rounded to 0 is rarely empty
    expected = np.concatenate([[0.0], np.cumsum(shares / shares.sum())]) * jobs_a_day
    units = np.cumsum(random.exponential(size=count))
    days, within = np.divmod(units, jobs_a_day)
    seconds = np.interp(within, expected, np.linspace(0.0, _DAY_SECONDS, PARTS_OF_DAY + 1))
    return np.maximum.accumulate(days * _DAY_SECONDS + seconds)


def drawn(values: tuple[float, ...], place: float) -> float:
    """The value of a quantile from 0 to 1, between those that a sketch says; lengths between them on a log scale."""
    at = min(max(place, QUANTILES[0] - _TAIL), QUANTILES[-1] + _TAIL)
    logs = np.log(np.maximum(values, 1e-9))
    return float(np.exp(np.interp(at, QUANTILES, logs)))


def _job(
    number: int, at: float, entry: KindSketch, cluster: ClusterSize, speeds: SpeedModel, random: np.random.Generator
) -> WorkloadJob:
    names = model_names(entry.kind, on_gpus=True)
    profile = CATALOGUE[names[int(random.integers(len(names)))]]
    size_place, length_place = random.random(2)
    most = max(1, cluster.nodes * cluster.gpus_per_node)
    workers = min(round(drawn(entry.workers, size_place)), most)
    reported_ps = round(drawn(entry.ps, size_place)) if entry.kind.uses_ps else 0
    ps = min(reported_ps, suitable_ps(profile, workers, cluster, speeds))
    speed = speeds.samples_per_second(profile.name, ps, workers)
    epochs = max(drawn(entry.run_seconds, length_place) * speed / profile.samples_per_epoch, 1e-6)
    return job_of(profile, f"job-{number:04d}", at, epochs, Allocation(workers, ps))
