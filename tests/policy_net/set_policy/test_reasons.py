"""What a set policy says of one job: what its work was taken for, and in what prices it was weighed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from states import make_job, make_state

from policy_net.domain import Allocation, Job, JobKind, Progress, Resources
from policy_net.exchange.spec import PRICES, SESSIONS, SetSpec, split_weights
from policy_net.set_policy.policy import SetPolicy, default_set_file, set_spec_of
from policy_net.set_policy.reasons import reasons_of

SHIPPED = default_set_file()


def policy(groups: dict[str, list[float]] | None = None) -> SetPolicy:
    """The shipped one, with these groups of numbers."""
    groups = groups or {}
    spec: SetSpec = set_spec_of(SHIPPED, "set").model_copy(update=dict.fromkeys(groups, 1))
    weights = np.zeros(spec.parameter_count, dtype=np.float32)
    weights[: SHIPPED.weights.size] = SHIPPED.weights
    for name, values in groups.items():
        split_weights(weights, spec)[name][:] = values
    return SetPolicy(spec, weights, SHIPPED.priors)


def unknown(number: int, **changes: object) -> Job:
    sizes = {"requested": Allocation(2, 1), "worker_demand": Resources(2000, 1)}
    return replace(make_job(number, "vgg-16", work_known=False), submit_time_seconds=10.0 * number, **(sizes | changes))  # type: ignore[arg-type]


def test_of_a_job_that_says_its_work_and_usual_prices_there_is_nothing_more_to_say() -> None:
    state = make_state([make_job(0), make_job(1)])
    assert reasons_of(policy(), state, "job-0") == []
    assert reasons_of(policy(), state, "nobody") == []


def test_work_that_nobody_declared_is_what_such_jobs_took() -> None:
    (said,) = reasons_of(policy(), make_state([unknown(0), make_job(1)]), "job-0")
    assert said.startswith("nobody said how much work it is; it counts as ")
    assert said.endswith(" more, by how long such jobs took on this cluster")


def test_mates_of_a_session_are_named_with_what_became_of_them() -> None:
    with_sessions = policy({SESSIONS: [0.0, 0.0, 0.0]})
    mates = [unknown(number) for number in range(4)]
    with_sessions.weighed(make_state(mates))
    assert with_sessions.beliefs is not None
    ended = Progress("job-0", "vgg-16", Allocation(2, 1), 600.0, 9000.0, 90.0, 0.0, finished=True)
    with_sessions.beliefs.observe([ended, replace(ended, job_id="job-1")])
    (said,) = reasons_of(with_sessions, make_state(mates[2:]), "job-2")
    assert said.endswith("more: of 3 jobs of its size submitted with it, 2 ended")
    (alone,) = reasons_of(with_sessions, make_state([unknown(9, requested=Allocation(4, 1))]), "job-9")
    assert "by how long such jobs took" in alone


def test_prices_are_said_where_they_are_not_the_usual_ones_and_servers_only_to_those_that_have_some() -> None:
    priced = policy({PRICES: [0.0, 0.0, 0.0, 0.0, -0.693147, 0.0]})
    state = make_state([make_job(0), replace(make_job(1, "bert"), kind=JobKind.ALLREDUCE)])
    of_ps = reasons_of(priced, state, "job-0")
    said = "times what the cluster has; when it is that full, a job with a tenth of another's work counts 1.8 times as"
    assert said in of_ps[0]
    assert of_ps[1] == "a parameter server is reckoned as 0.5 workers (usually as 1)"
    assert len(reasons_of(priced, state, "job-1")) == 1


def test_asking_changes_no_decision() -> None:
    asked, other = (policy({PRICES: [-0.6, -0.6, 0.4, 0.0, -0.8, -0.5], SESSIONS: [0.1] * 3}) for _ in range(2))
    state = make_state([unknown(0), unknown(1), make_job(2)])
    reasons_of(asked, state, "job-1")
    assert asked.weighed(state)[0] == other.weighed(state)[0]


def test_a_job_that_keeps_its_size_as_resizes_cost_time_says_so() -> None:
    asked = policy()
    assert asked.beliefs is not None
    one, two = (Allocation(workers, 1) for workers in (1, 2))
    running = replace(make_job(0, "vgg-16", remaining_epochs=10.0), current=two)
    state = make_state([running])
    assert asked.weighed(state)[0][-1].size != two
    assert reasons_of(asked, state, "job-0") == []
    before = Progress("other", "resnet-50", one, 10.0, 1.0, 1.0, 0.0, False, 0.0)
    asked.beliefs.restarts.observe([before])
    asked.beliefs.restarts.observe([replace(before, allocation=two, paused_seconds=150.0)])
    (said,) = reasons_of(asked, state, "job-0")
    assert said.startswith("it keeps its size: if resizes cost nothing, it would have ")
    assert said.endswith(", but here a resize stops a job for 2.5 min, and a size lasts 31.3 min at the mean")
    assert len(reasons_of(asked, make_state([replace(running, current=Allocation(0, 0))]), "job-0")) == 0
