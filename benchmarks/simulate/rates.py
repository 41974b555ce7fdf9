"""Decisions and micro-actions a second of the engine, of many clusters in one call and of the Gymnasium environment."""

from __future__ import annotations

import time
from dataclasses import replace

import gymnasium
import numpy as np
from numpy.typing import NDArray

import policy_net.gym
from policy_net.domain import Allocation, CapacityMode, Decision
from policy_net.laboratory.simulation.engine import Simulation
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.simulation.vector import VectorSimulation
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.workloads.workload import Workload

Ints = NDArray[np.int64]

PAIRS = 4
"""Every present job gets so many pairs of a worker and a PS, in arrival order, as far as they go."""


def pooled(nodes: int) -> Environment:
    """The cluster of both engines here."""
    return Environment(nodes=nodes, capacity_mode=CapacityMode.POOLED)


def vector_decisions_per_second(workload: Workload, nodes: int, clusters: int) -> float:
    """Slots of all clusters a second; each runs the same jobs, a slot later than the one before it."""
    simulation = VectorSimulation(pooled(nodes), default_speeds())
    simulation.reset([_later(workload, number) for number in range(clusters)])
    decisions = 0
    began = time.perf_counter()
    while not simulation.done_B.all():
        decisions += int((~simulation.done_B).sum())
        simulation.step(_pairs_in_order(simulation, nodes))
    return decisions / (time.perf_counter() - began)


def scalar_decisions_per_second(workload: Workload, nodes: int) -> float:
    """Slots a second of one cluster under the same rule."""
    environment = pooled(nodes)
    simulation = Simulation(workload, environment, default_speeds())
    began = time.perf_counter()
    while not simulation.finished:
        state, _ = simulation.observe()
        cpu_milli, gpu = state.total.cpu_milli, state.total.gpu
        given = {}
        for job in state.jobs:
            cpu_milli -= PAIRS * (job.worker_demand.cpu_milli + job.ps_demand.cpu_milli)
            gpu -= PAIRS * (job.worker_demand.gpu + job.ps_demand.gpu)
            if cpu_milli < 0 or gpu < 0:
                break
            given[job.job_id] = Allocation(PAIRS, PAIRS)
        simulation.apply(Decision(given))
    return simulation.counters.decisions / (time.perf_counter() - began)


def gym_steps_per_second(steps: int) -> float:
    """Micro-actions a second of the environment as it is registered, with random admissible actions."""
    env = gymnasium.make(policy_net.gym.ENVIRONMENT_ID)
    generator = np.random.default_rng(0)
    _, info = env.reset(seed=0)
    began = time.perf_counter()
    for _ in range(steps):
        action = generator.choice(np.flatnonzero(info["action_mask"]))
        _, _, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            _, info = env.reset()
    return steps / (time.perf_counter() - began)


def _later(workload: Workload, slots: int) -> Workload:
    shift = 1200.0 * slots
    return replace(
        workload,
        jobs=tuple(replace(job, submit_time_seconds=job.submit_time_seconds + shift) for job in workload.jobs),
    )


def _pairs_in_order(simulation: VectorSimulation, nodes: int) -> Ints:
    """The rule of `scalar_decisions_per_second` for all clusters at once."""
    environment = pooled(nodes)
    fits = simulation.present_BJ
    wanted = PAIRS * fits.astype(np.int64)
    for demand_BJ2, total in (
        (simulation.cpu_milli_BJ2, environment.nodes * environment.cpus_per_node * 1000),
        (simulation.gpu_BJ2, environment.nodes * environment.gpus_per_node),
    ):
        fits = fits & ((wanted * demand_BJ2.sum(axis=2)).cumsum(axis=1) <= total)
    return np.repeat((PAIRS * fits)[..., None], 2, axis=2)
