"""The first version, v1, with which the fleet begins: trained here or as it ships."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from deploy.local.frame import Demonstration
from deploy.local.plan import HELD_OUT_SEED, ClusterPlan
from policy_net.exchange.policy_file import PolicyFile, write_policy_file
from policy_net.set_policy.policy import default_set_file

WARM_START_SECONDS = 30.0
"""About what the warm start takes: for its progress bar only."""

JOBS_PER_BATCH = 24
"""J of the demo's policy: the real traces' clusters often hold more than DL2's 20 jobs at once."""

IMITATION_STEPS = 4000
"""Enough for v1 to do about as well as DRF."""

POLL_SECONDS = 0.1
"""How often to see whether the training is done."""


def warm_start(plan: Sequence[ClusterPlan], demo: Demonstration, seed: int, steps: int) -> Path:
    """Train v1 by imitating DRF on the fleet's own kind of workloads, none of which it will be judged on.

    Raises:
        DemoFailed: training failed.
    """
    processes, display = demo.processes, demo.display
    display.phase("training v1: imitating DRF")
    out = demo.folder / "v1.safetensors"
    sources = [argument for cluster in plan for argument in ("--workload", cluster.source)]
    world = plan[0].own
    options = ["--imitate", "drf", "--imitation-steps", str(steps), "--jobs-per-batch", str(JOBS_PER_BATCH)]
    options += ["--arrival-scale", str(world.arrival_scale)]
    if world.limit_jobs is not None:
        options += ["--limit-jobs", str(world.limit_jobs)]
    processes.start(
        "train",
        "policy_net.cli",
        ["train", *sources, *options, "--seed", str(2 * HELD_OUT_SEED + seed), "--out", str(out)],
    )
    began = time.monotonic()
    while processes.is_running("train"):
        time.sleep(POLL_SECONDS)
        display.progress(min((time.monotonic() - began) / WARM_START_SECONDS, 0.98))
    processes.check()
    return out


def shipped_start(demo: Demonstration) -> Path:
    """Let v1 be the `set` policy that ships with fedl2, without what it knows of speeds.

    That was observed on the very types of jobs that the demo's clusters run, which no cluster of one's own would find
    in it. What the final version knows of them is what this fleet has found out.

    Raises:
        PolicyFileError: it is missing, or cannot be written.
    """
    demo.display.phase("v1 is the set policy that ships with fedl2, without what it knows of these job types' speeds")
    out = demo.folder / "v1.safetensors"
    shipped = default_set_file()
    write_policy_file(out, PolicyFile(shipped.spec, shipped.weights, {"source": "as shipped, without priors"}))
    return out
