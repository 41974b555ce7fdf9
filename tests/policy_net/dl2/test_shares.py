"""A declared minimum of several tasks: the network does not see it, and gets a job no more than an equal share."""

from hypothesis import given
from hypothesis import strategies as st
from states import make_job, make_state

from policy_net.dl2.policy import build_dl2
from policy_net.domain import PolicyContext, Trigger


@given(st.floats(0.0, 1e6), st.floats(0.0, 1e6), st.integers(1, 4))
def test_a_minimum_of_several_tasks_waits_once_it_had_its_share(ran: float, waited: float, least: int) -> None:
    first = make_job(0, min_workers=least, min_ps=least, run_seconds=ran, submit_time_seconds=0.0)
    others = [make_job(number, submit_time_seconds=0.0) for number in range(1, 8)]
    state = make_state([first, *others], nodes=2, time_seconds=ran + waited)
    decision = build_dl2(PolicyContext()).decide(state, Trigger.SLOT)
    needed = 2 * least / 8  # of eight tasks for which there is room
    if least > 1 and ran * needed * len(state.jobs) > (ran + waited) * 1.001:
        assert decision.of("job-0").tasks == 0
    assert any(decision.of(job.job_id).tasks for job in others) or decision.of("job-0").tasks
