"""Whoever dies at whatever moment: the job finishes with the numbers of one quiet server."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_protocol import LAYOUT, assert_equal, quiet
from whole_job import WholeJob

from elastic_runtime.model.optimizers import Adam

STEPS = 14
SIZES = st.tuples(st.integers(1, 3), st.integers(1, 3))


@pytest.mark.heavy
@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    loss=st.sampled_from([0.0, 0.1]),
    sizes=st.lists(SIZES, max_size=2),
    deaths=st.integers(0, 4),
    often=st.sampled_from([0.001, 0.005]),
)
def test_deaths_at_any_moment_change_no_bit(
    seed: int, loss: float, sizes: list[tuple[int, int]], deaths: int, often: float
) -> None:
    job = WholeJob(LAYOUT, Adam(0.01), seed, loss, last_step=STEPS)
    asked = 0

    def go_on() -> bool:
        nonlocal asked
        chance = job.random.random()
        if asked < len(sizes) and chance < 0.003 and not job.done:
            job.resize(f"request {asked}", *sizes[asked])
            asked += 1
        elif job.deaths < deaths and chance > 1 - often and not job.done:
            victim = job.random.choice([*job.alive(), "coordinator"])
            if victim == "coordinator":
                job.deaths += 1
                job.kill_coordinator()
            else:
                job.kill(victim)
        return job.done

    job.run_until(go_on)
    assert_equal(job, quiet(LAYOUT, Adam(0.01), job.workers_of_steps()))
    assert all(row.ended for row in job.machine.status(job.now).requests)


@pytest.mark.heavy
@settings(max_examples=15)
@given(
    seed=st.integers(0, 10**6),
    loss=st.sampled_from([0.0, 0.1]),
    sizes=st.lists(SIZES, max_size=2),
    deaths=st.integers(1, 4),
    often=st.sampled_from([0.001, 0.005]),
    clip=st.sampled_from([None, 0.5]),
)
def test_with_two_holders_deaths_change_no_bit_and_single_ones_undo_no_step(
    seed: int, loss: float, sizes: list[tuple[int, int]], deaths: int, often: float, clip: float | None
) -> None:
    optimizer = Adam(0.01)
    job = WholeJob(LAYOUT, optimizer, seed, loss, clip_norm=clip, last_step=STEPS, servers_wanted=3, replicas_wanted=2)
    asked = 0

    def go_on() -> bool:
        nonlocal asked
        chance = job.random.random()
        if asked < len(sizes) and chance < 0.003 and not job.done:
            job.resize(f"request {asked}", *sizes[asked])
            asked += 1
        elif job.deaths < deaths and chance > 1 - often and not job.done:
            victim = job.random.choice([*job.servers, *job.alive(), "coordinator"])
            if victim == "coordinator":
                job.deaths += 1
                job.kill_coordinator()
            else:
                job.kill(victim)
        return job.done

    job.run_until(go_on)
    assert_equal(job, quiet(LAYOUT, optimizer, job.workers_of_steps(), clip=clip))
    assert all(row.ended for row in job.machine.status(job.now).requests)
