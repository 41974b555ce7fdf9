"""A made-up data folder: small files in the forms of the measured ones, for tests where those are not at hand.

Speeds, profiles and steps follow the shipped constants without an error, so what is fitted to them has to find the
constants again. Figures of known schedulers come from `plain_schedulers`.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from plain_schedulers import PlainJob, average_jct_slots, drf, floor_slots, optimus, optimus_fitted, oracle

from policy_net.domain import MAX_TASKS_PER_ROLE, JobKind
from policy_net.laboratory.catalogue import MODEL_NAMES, SLOT_SECONDS, find_model
from policy_net.laboratory.speeds.fitted_speeds import FITTED_QUEUES, FITTED_RINGS, queue_features, step_seconds
from policy_net.laboratory.speeds.placement_effect import (
    FITTED_SPREADS,
    GPU_SPEEDS,
    Arithmetic,
    spread_slowdown,
)
from policy_net.laboratory.speeds.speed import TableSpeedModel, default_speeds, write_speed_table
from policy_net.laboratory.workloads.sources import load_workload

CLUSTERS = (
    *(f"itp-{number:02d}" for number in range(1, 11)),
    *(f"philly-{name}" for name in ("0e4a51", "103959", "11cb48", "2869ce", "6214e9", "6c71a0")),
    *(f"philly-{name}" for name in ("7f04ca", "b436b2", "e13805", "ed69ec", "ee9e8c")),
    "openb",
)
"""Names that benchmarks ask for; the jobs are drawn."""
LARGE, LARGE_JOBS, USUAL_JOBS = "itp-04", 12_000, 600
"""One cluster is long enough for benchmarks of speed."""
NODES = (16, 24, 32, 96)
_KNOWN = ("fixed30-0", "varied30-0")
"""Traces with figures of the plain schedulers."""
_TRACES = (*_KNOWN, "fixed60-0", "fixed60-1", "varied60-0", "varied60-1", "varied60-4", "fixed200-1")
_SCHEDULERS = {"drf": drf, "optimus-true-table": optimus, "optimus-fitted": optimus_fitted, "oracle": oracle}
_BATCH = 50
"""Samples of a measured step."""
Rows = Iterable[Sequence[object]]


def write_data(folder: Path) -> Path:
    """Write everything but the figures of known schedulers, which take some seconds (`write_expected`)."""
    for name in ("reference", "workloads", "dl2", "profiles"):
        (folder / name).mkdir(parents=True)
    speeds = TableSpeedModel({model: default_speeds().grid(model) for model in MODEL_NAMES}, "made up")
    write_speed_table(speeds, folder / "reference" / "speed_grid.csv")
    _write(folder / "reference" / "traces.csv", "trace,job_id,arrival_slot,model,epochs", _trace_rows())
    columns = "model,total_batch,num_ps,num_workers,samples_per_s"
    _write(folder / "dl2" / "dl2_ps_worker_speed.csv", columns, _step_rows())
    _write_profiles(folder / "profiles")
    for number, cluster in enumerate(CLUSTERS):
        rows = _recorded(cluster, LARGE_JOBS if cluster == LARGE else USUAL_JOBS, random.Random(number))
        columns = "cluster,job_id,submit_time_s,duration_s,num_gpus"
        _write(folder / "workloads" / f"{cluster}.csv", columns, rows)
    return folder


def write_expected(reference: Path) -> None:
    """Write what the plain schedulers come to on the made-up traces, and the floor."""
    rows: list[Sequence[object]] = []
    for trace in _KNOWN:
        jobs = [_plain(*row[1:]) for row in _trace_rows() if row[0] == trace]
        for nodes in NODES:
            for policy, decide in _SCHEDULERS.items():
                rows.append((trace, nodes, policy, f"{average_jct_slots(jobs, decide, nodes):.4f}", "", ""))
            rows.append((trace, nodes, "floor", f"{floor_slots(jobs):.4f}", "", ""))
    _write(reference / "expected.csv", "trace,nodes,policy,avg_jct_slots,max_jct_slots,makespan_slots", rows)


def _plain(job_id: object, arrival_slot: object, model: object, epochs: object) -> PlainJob:
    profile = find_model(str(model), JobKind.PS)
    assert profile is not None
    grid = default_speeds().grid(profile.name)
    per_slot = [[float(f"{speed:.6g}") * SLOT_SECONDS / profile.samples_per_epoch for speed in row] for row in grid]
    sizes = range(1, MAX_TASKS_PER_ROLE + 1)
    fitted = [[0.0] * (len(sizes) + 1)]
    steps = _BATCH * SLOT_SECONDS / profile.samples_per_epoch
    fitted += [[0.0, *(steps / _step_seconds(profile.name, ps, workers) for workers in sizes)] for ps in sizes]
    return PlainJob(
        str(job_id), int(str(arrival_slot)), float(str(epochs)), float(profile.nominal_epochs), per_slot, fitted,
        on_gpu=profile.worker_demand.gpu > 0,
    )  # fmt: skip


def _trace_rows() -> list[tuple[str, str, int, str, float]]:
    rows = []
    for seed, trace in enumerate(_TRACES):
        sizes = trace.rstrip("0123456789-")
        jobs = trace.removeprefix(sizes).split("-")[0]
        drawn = load_workload(f"dl2:jobs={jobs},arrivals=google,sizes={sizes},seed={300 + seed}")
        for job in drawn.jobs:
            slot = round(job.submit_time_seconds / SLOT_SECONDS)
            rows.append((trace, job.job_id, slot, job.job_type, round(job.total_epochs, 3)))
    return rows


def _step_rows() -> Rows:
    """DL2's measurements: a batch and its speed, by how many servers and workers."""
    for model in FITTED_QUEUES:
        for ps in (1, 2, 4, 8, 16):
            for workers in (1, 2, 3, 5, 8, 12, 16):
                yield model, _BATCH, ps, workers, f"{_BATCH / _step_seconds(model, ps, workers):.9g}"


def _step_seconds(model: str, ps: int, workers: int) -> float:
    queue = FITTED_QUEUES[model]
    constants = np.array([queue.compute, queue.latency, queue.server, queue.shared])
    (seconds,) = queue_features(np.array([float(ps)]), np.array([float(workers)])) @ constants
    return float(seconds)


def _write_profiles(folder: Path) -> None:
    rings = [
        ("A100", model, batch, workers, f"{1 / step_seconds(ring, batch, np.array([float(workers)]))[0]:.9g}")
        for model, ring in FITTED_RINGS.items()
        for batch in (64, 128, 256)
        for workers in (1, 2, 4, 8, 16, 32, 64)
    ]
    _write(folder / "elasticflow_scaling.csv", "gpu_type,model,global_batch,num_gpus,iters_per_s", rings)
    families = {"bert": "bert", "deepspeech2": "deepspeech2", "imagenet": "resnet50"}
    places = [
        (model, "placement", place, 8, 1 + spread_slowdown(FITTED_SPREADS[family], sum(map(int, place)), len(place)))
        for model, family in families.items()
        for place in ("1", "2", "3", "4", "11", "12", "22", "13", "44", "111", "222", "1111", "2222", "4444")
    ]
    _write(folder / "placement_pollux_t4.csv", "model,kind,placement,local_bsz,step_time_s", places)
    relative = [
        (model, gpus, nodes, f"{1 / (1 + spread_slowdown(FITTED_SPREADS[family], gpus, nodes))}")
        for model, family in {"inception_v3": "inception3", "vgg16": "vgg16"}.items()
        for gpus, nodes in ((2, 1), (2, 2), (4, 1), (4, 2), (4, 4), (8, 1), (8, 2), (8, 4))
    ]
    _write(folder / "chronus_locality.csv", "model,num_gpus,num_nodes,relative_speed", relative)
    kinds = {"ResNet-50": "CONVOLUTION", "ResNet-18": "CONVOLUTION", "CycleGAN": "CONVOLUTION"}
    kinds |= {"LM": "RECURRENCE", "Transformer": "ATTENTION"}
    gavel = []
    for model, kind in kinds.items():
        for gpu_type in ("v100", "p100", "k80"):
            speed = 10 * GPU_SPEEDS[Arithmetic[kind]][gpu_type]
            gavel.append(("gavel-simulation", gpu_type, 1, model, 16, 1, f"{speed}"))
            if model == "ResNet-50":
                for gpus in (2, 4):
                    apart = speed / (1 + spread_slowdown(FITTED_SPREADS["resnet50"], gpus, gpus))
                    gavel.append(("gavel-simulation", gpu_type, 1, model, 16, gpus, f"{speed}"))
                    gavel.append(("gavel-simulation", gpu_type, 0, model, 16, gpus, f"{apart}"))
    columns = "source,gpu_type,consolidated,model,batch_size,num_gpus,iters_per_s"
    _write(folder / "gavel_throughput.csv", columns, gavel)


def _recorded(cluster: str, jobs: int, draw: random.Random) -> Rows:
    """Jobs that arrive in bursts, of long-tailed durations; most ask for one GPU."""
    now = 0.0
    for number in range(jobs):
        now += draw.expovariate(1 / 30.0) if draw.random() < 0.7 else draw.expovariate(1 / 900.0)
        duration = min(draw.lognormvariate(7.0, 1.5), 300_000.0)
        yield cluster, f"{cluster}-{number}", round(now), max(1, round(duration)), draw.choice((1, 1, 1, 1, 2, 4, 8))


def _write(path: Path, columns: str, rows: Rows) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns.split(","))
        writer.writerows(rows)
