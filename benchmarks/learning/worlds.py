"""The clusters of the learning benchmark: eight that teach by their past, one that is silent, and what judges."""

from __future__ import annotations

from policy_net.laboratory.simulation.environment import Environment

NODES = 24
JOBS = 60
"""Of a workload, as DL2's generator scatters them: what `policy-net reproduce dl2` has."""

PUSHING = {
    "north": "resnet-50*2+seq2seq+wlm+dssm",
    "west": "inception-bn+cnn-text*2+seq2seq+resnext-110",
    "south": "vgg-16*0.5+resnet-50+inception-bn+dssm",
    "east": "resnext-110+seq2seq*2+wlm+cnn-text",
    "vision": "resnet-50+resnext-110*2+inception-bn*2",
    "language": "seq2seq+wlm*2+cnn-text",
    "search": "dssm*3+cnn-text+wlm",
    "mixed": "vgg-16*0.5+resnext-110+dssm+seq2seq",
}
BAD = "mixed"
"""Who sends something else than its gradient, where somebody does."""
SILENT = {"silent": "vgg-16*0.5+cnn-text+wlm+resnet-50"}
"""Never pushes; no pushing cluster has this mix of models."""

PAST_WORKLOADS = 10
"""Recordings that are a cluster's past, of `JOBS` jobs each."""
START_SEEDS = 8_000_000
"""What the start trains on is from here on; a cluster's past is below."""
HELD_OUT_SEED = 9_500_000
"""From here on: nobody trains on these, and nothing was chosen by them (tuning used those from 9,000,000 on)."""
HELD_OUT_A_MIX = 4
"""Held-out workloads of each pushing cluster's mix: 32 in all."""
HELD_OUT_SILENT = 24


def source(mix: str, seed: int) -> str:
    """The generator's description of a workload."""
    return f"dl2:jobs={JOBS},arrivals=google,sizes=varied,seed={seed},mix={mix}"


def past(mix: str, first_seed: int) -> list[str]:
    """Recordings of a cluster."""
    return [source(mix, first_seed + number) for number in range(PAST_WORKLOADS)]


def environment() -> Environment:
    """The machines of every cluster here."""
    return Environment(nodes=NODES)


def held_out(mixes: dict[str, str], each: int) -> list[str]:
    """Descriptions of the workloads that policies are judged on."""
    return [source(mix, HELD_OUT_SEED + number) for mix in mixes.values() for number in range(each)]
