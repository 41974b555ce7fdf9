"""World of a sketch: jobs and machines of the kind that a cluster told of, made up from a seed.

Arrivals are a Poisson process whose rate follows the parts of the day; sizes and lengths are drawn from the sketch's
quantiles, and what a job trains from the catalogue, as the learner knows no cluster's models. A cluster with more jobs
than a replay holds is made smaller by the factor by which its jobs are fewer.
"""

from __future__ import annotations

import math

import numpy as np

from policy_net.domain import Allocation, SpeedModel
from policy_net.exchange.workload_sketch import PARTS_OF_DAY, QUANTILES, KindSketch, WorkloadSketch
from policy_net.laboratory.catalogue import CATALOGUE, model_names
from policy_net.laboratory.simulation.environment import DecideOn, Environment
from policy_net.laboratory.workloads.recorded import ClusterSize, suitable_ps
from policy_net.laboratory.workloads.workload import Workload, WorkloadJob, job_of

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
    wanted = sketch.jobs_a_day * _DAYS
    count = int(min(max(wanted, LEAST_JOBS), MOST_JOBS))
    factor = min(1.0, MOST_JOBS / wanted)
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
