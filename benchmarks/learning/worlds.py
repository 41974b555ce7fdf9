"""The clusters of the learning benchmark: three that push, one that only takes part, and what all are judged on."""

from __future__ import annotations

from collections.abc import Iterator

from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.laboratory.workloads.workload import Workload, WorkloadOptions

NODES = 20
JOBS_PER_BATCH = 24
"""No policy is asked to see more jobs at once than these clusters mostly hold."""

ARRIVAL_SCALE = 2.5
"""Arrivals two and a half times as far apart as the generator's: a load that lasts instead of one rush and a tail."""

PUSHING = {
    "north": "resnet-50*2+seq2seq+wlm+dssm",
    "west": "inception-bn+cnn-text*2+seq2seq+resnext-110",
    "south": "vgg-16*0.5+resnet-50+inception-bn+dssm",
}
SILENT = {"silent": "vgg-16*0.5+cnn-text+wlm+resnet-50"}
"""Never pushes; no pushing cluster has this mix of models."""

TRAIN_SEED = 0
"""The warm start trains on seeds from here on, fleet number k on those from 100,000·(k + 11) on."""
HELD_OUT_SEED = 9_500_000
"""From here on: nobody trains on these, and nothing was chosen by them (tuning used those from 9,000,000 on)."""
HELD_OUT_A_MIX = 6
"""Held-out workloads of each pushing cluster's mix: 18 in all."""
HELD_OUT_SILENT = 18


def source(mix: str, seed: int | None = None) -> str:
    """The generator's description of a workload."""
    seeded = "" if seed is None else f"seed={seed},"
    return f"dl2:jobs=60,arrivals=google,sizes=varied,{seeded}mix={mix}"


def environment() -> Environment:
    """The machines of every cluster here."""
    return Environment(nodes=NODES)


def held_out(mixes: dict[str, str], each: int) -> Iterator[Workload]:
    """The workloads that policies are judged on."""
    options = WorkloadOptions(speeds=default_speeds(), arrival_scale=ARRIVAL_SCALE)
    for mix in mixes.values():
        for number in range(each):
            yield load_workload(source(mix, HELD_OUT_SEED + number), options)
