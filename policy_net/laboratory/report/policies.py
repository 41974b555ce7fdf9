"""Names of policies in a report, and in plain words what each does and knows."""

from __future__ import annotations

import re
from pathlib import PurePath

from foundation.figures import shown
from policy_net.policy import DEFAULT_POLICY

LONGEST_LABEL = 28
"""Of a longer name the end is shown, which tells policy files apart."""
_VERSION = re.compile(r"v\d+")

_LABELS = {
    "fifo": "FIFO",
    "fifo-backfill": "FIFO with backfill",
    "fifo-easy": "EASY backfill",
    "las": "LAS",
    "srtf": "SRTF",
    "drf": "DRF",
    "drf-peak": "DRF to the peak",
    "tetris": "Tetris",
    "optimus": "Optimus",
    "optimus-fitted": "Optimus, fitted",
    "optimus-true-table": "Optimus, true speeds",
    "optimus-sr": "Optimus, shortest first",
    "marginal": "Marginal",
    "dl2": "DL2",
    "oracle": "Oracle",
    "set": "Set",
    "set-fresh": "Set, no priors",
    "set-taught": "Set, taught",
}

_WORDS = {
    "fifo": "every job waits for the GPUs it asked for, in order of submission, and keeps them to its end."
    " Knows nothing about the jobs; never changes a running one.",
    "fifo-backfill": "like FIFO, but jobs that fit pass those that do not. Knows nothing about the jobs.",
    "fifo-easy": "like FIFO, but jobs that fit pass the first that does not, where that one is not expected to start"
    " later for it, as Slurm’s backfill does. Uses what is known of the work left.",
    "las": "the job that has had least GPU time so far goes first. Knows no durations.",
    "srtf": "the job with the shortest time left goes first. Uses what is known of the work left.",
    "drf": "an equal share of the cluster for every job, grown task by task. Knows neither durations nor speeds.",
    "drf-peak": "an equal share for every job, up to the size at which it is fastest. Knows no durations; learns the"
    " speeds while the jobs run.",
    "tetris": "packs jobs tightly and prefers short ones. Uses what is known of the work left.",
    "optimus": "every further task goes to the job whose remaining time falls most. Uses what is known of the work"
    " left; learns the speeds while the jobs run.",
    "optimus-fitted": "Optimus with speeds fitted to measured points before it starts.",
    "optimus-true-table": "Optimus, but told the true speeds, which no real scheduler knows.",
    "optimus-sr": "like Optimus, but the job with the shortest time left is admitted first.",
    "marginal": "every further task goes to the job whose remaining time it shortens most in proportion, looking past"
    " sizes that do not help by themselves. Uses what is known of the work left; learns the speeds while the jobs run.",
    "dl2": "a network says, task by task, which job gets the next one: DL2’s, trained in simulation to what jobs gain."
    " Uses what is known of the work left; knows the types of jobs that it was trained with.",
    "set": "like Marginal, with what a trained model adds about who comes first, and speeds observed in"
    " simulation to start from. Uses what is known of the work left, or else how long jobs of this cluster took; learns"
    " the speeds while the jobs run.",
    "set-fresh": "like Set, but it knows no speeds to start from.",
    "set-taught": "every further task goes to the job that gains most by it; a trained model, taught by replays of"
    " recorded clusters, adds who comes first and what a GPU is worth to those that wait. Uses what is known of the"
    " work left, or else how long jobs of this cluster took; knows speeds observed in simulation, and learns more of"
    " them while the jobs run.",
    "oracle": "like Marginal, but told the true speeds, which no real scheduler knows: how far one could get.",
}


def label(policy: str) -> str:
    """Name of a policy in tables and charts; of a policy file, its file's name."""
    if policy == DEFAULT_POLICY:
        return f"fedl2 ({policy})"
    name = _LABELS.get(policy) or shown(PurePath(policy).name or policy)
    return name if len(name) <= LONGEST_LABEL else "…" + name[1 - LONGEST_LABEL :]


def describe(policy: str) -> str:
    """Description of a policy, to stand after its name."""
    if _VERSION.fullmatch(policy):
        return "the version of the fleet’s policy that the learner published under this number."
    return _WORDS.get(policy, "a scheduler given by the user.")
