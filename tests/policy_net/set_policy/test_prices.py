"""Prices of the planner: usual ones are what they were, others are among the weights, and say what they should."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from states import make_job, make_state, states

from policy_net.domain import SUSPENDED, Allocation, ClusterState, Trigger
from policy_net.errors import PolicyFileError
from policy_net.exchange.policy_file import PolicyFile, parse_policy_file, spec_from_json
from policy_net.exchange.spec import PRICE_COUNT, SetSpec
from policy_net.set_policy.policy import DEFAULT_SET_FILE, SetPolicy, default_set_file, set_policy_of
from policy_net.set_policy.residual import initial_residual
from policy_net.set_policy.steps import USUAL_PRICES, Prices, PriceTerms, StepTable, StepTables, contention_of

PLAIN, PRICED = SetSpec(), SetSpec(prices=1)


def with_prices(*values: float) -> np.ndarray:
    return np.append(default_set_file().weights, values).astype(np.float32)


def decided(policy: SetPolicy, state: ClusterState) -> dict[str, Allocation]:
    return dict(policy.decide(state, Trigger.SLOT).allocation)


def test_a_spec_without_prices_is_what_it_was_before_there_were_any() -> None:
    """The digest is that of files, heads and logs of earlier versions."""
    assert PLAIN.digest == "42fc36461d928f131f2cef8881bbda9e2d95bea5b59b8dbb2db67ab97b712e06"
    assert "prices" not in PLAIN.to_json()
    assert default_set_file().to_bytes() == DEFAULT_SET_FILE.read_bytes()
    assert PRICED.parameter_count == PLAIN.parameter_count + PRICE_COUNT
    assert PRICED.digest != PLAIN.digest


def test_a_file_with_prices_is_read_as_it_was_written_and_one_of_a_later_version_is_refused() -> None:
    content = PolicyFile(PRICED, with_prices(0.5, -0.25, 0.125, 0.0, -1.0, 0.75), {"why": "a test"})
    read = parse_policy_file(content.to_bytes(), "mine")
    assert read.spec == PRICED == spec_from_json(PRICED.to_json())
    terms = set_policy_of(read, "mine").price_terms
    assert terms == PriceTerms((0.5, -0.25), (0.125, 0.0), (-1.0, 0.75))
    assert terms.flat == (0.5, -0.25, 0.125, 0.0, -1.0, 0.75)
    with pytest.raises(PolicyFileError, match="prices"):
        spec_from_json(PRICED.to_json().replace('"prices":1', '"prices":2'))


@pytest.mark.heavy
@settings(max_examples=40, deadline=None)
@given(states(most_jobs=12))
def test_terms_of_zero_decide_as_a_policy_without_any(state: ClusterState) -> None:
    content = default_set_file()
    assert isinstance(content.spec, SetSpec)
    without = SetPolicy(content.spec, content.weights, content.priors)
    zeros = SetPolicy(PRICED, with_prices(*[0.0] * PRICE_COUNT), content.priors)
    assert decided(zeros, state) == decided(without, state)


@settings(max_examples=40, deadline=None)
@given(states(most_jobs=12))
def test_prices_end_with_the_weights_that_they_are_of(state: ClusterState) -> None:
    """A policy that has acted in other prices, and is given the usual ones again, decides as ever."""
    content = default_set_file()
    policy = SetPolicy(PRICED, with_prices(-1.0, 0.5, 0.5, 0.0, -2.0, 0.3), content.priors)
    decided(policy, state)
    policy.load_weights(with_prices(*[0.0] * PRICE_COUNT))
    assert decided(policy, state) == decided(SetPolicy(PLAIN, content.weights, content.priors), state)


def test_usual_terms_are_the_usual_prices_to_the_last_bit_and_others_are_bounded() -> None:
    assert PriceTerms().usual
    assert PriceTerms().at(1.5) == USUAL_PRICES
    prices = PriceTerms((-0.5, -0.5), (math.log(2.0), 0.0), (0.0, -1.0)).at(1.0)
    assert prices.speed_exponent == pytest.approx(0.25 * math.exp(-1.0))
    assert prices.work_exponent == pytest.approx(0.5)
    assert prices.ps_price == pytest.approx(math.exp(-1.0))
    extreme = PriceTerms((1e9, 0.0), (-1e9, 1e9), (0.0, 1e30)).at(1.0)
    assert extreme == Prices(0.25 * math.exp(3.0), 0.25, math.exp(3.0))


def test_a_step_is_the_steepest_for_what_it_costs() -> None:
    grid = np.zeros((17, 17))
    grid[1, 1], grid[4, 1] = 1.0, 16.0
    table = StepTable(grid, 16, 16, Allocation(1, 1))
    first = table.step(SUSPENDED)
    assert first is not None
    assert (first.size, first.slope) == (Allocation(1, 1), pytest.approx(4.0 / 2.0))  # (4·2 − 0) / 5 is less
    table.count_in(Prices(0.25, 0.25, 0.25))
    first = table.step(SUSPENDED)
    assert first is not None
    assert (first.size, first.slope) == (Allocation(1, 4), pytest.approx(8.0 / 2.0))  # 4 / 1.25 is less
    table.count_in(Prices(1.0, 0.25, 1.0))
    first = table.step(SUSPENDED)
    assert first is not None
    assert (first.size, first.slope) == (Allocation(1, 4), pytest.approx(16.0 / 5.0))


def test_contention_is_half_the_log_of_what_could_be_used_over_what_there_is() -> None:
    grid = np.zeros((17, 17))
    grid[1, 2] = 5.0
    jobs = [make_job(number, "vgg-16") for number in range(4)]
    state = make_state(jobs, nodes=1)
    tables = [StepTable(grid, 16, 16, Allocation(1, 1)) for _ in jobs]
    total, job = state.total, jobs[0]
    share = max(
        (2 * job.worker_demand.cpu_milli + job.ps_demand.cpu_milli) / total.cpu_milli,
        2 * job.worker_demand.gpu / total.gpu,
    )
    expected = math.log(4 * share) / 2
    found = contention_of(state, tables)
    assert abs(found - expected) <= 0.0625
    assert found / 0.125 == round(found / 0.125)
    assert contention_of(replace(state, jobs=()), []) == -1.5
    blind = [StepTable(np.zeros((17, 17)), 16, 16, Allocation(1, 1)) for _ in jobs]
    assert contention_of(state, blind) == -1.5


def test_a_cheap_server_lets_jobs_have_more_of_them() -> None:
    state = make_state([make_job(number, "wlm") for number in range(12)], nodes=4)
    content = default_set_file()
    servers = []
    for log_price in (1.0, 0.0, -2.0):
        policy = SetPolicy(PRICED, with_prices(0.0, 0.0, 0.0, 0.0, log_price, 0.0), content.priors)
        servers.append(sum(allocation.ps for allocation in decided(policy, state).values()))
    assert servers[0] <= servers[1] < servers[2]


def test_a_larger_work_exponent_puts_the_short_job_first() -> None:
    jobs = [make_job(0, "resnet-50", total_epochs=400.0, remaining_epochs=400.0), make_job(1, "resnet-50")]
    jobs[1] = replace(jobs[1], total_epochs=4.0, remaining_epochs=4.0)
    state = make_state(jobs, nodes=4)
    weights = np.zeros(PRICED.parameter_count, dtype=np.float32)
    tasks = []
    for log_exponent in (-2.0, 0.0, 2.0):
        weights[-4] = log_exponent
        found = decided(SetPolicy(PRICED, weights, default_set_file().priors), state)
        tasks.append(found["job-1"].tasks)
    assert tasks[0] <= tasks[1] <= tasks[2]
    assert tasks[0] < tasks[2]


def test_new_weights_have_usual_prices() -> None:
    assert PriceTerms.of(PRICED, initial_residual(PRICED, 0)).usual


def test_tables_of_one_type_count_in_the_prices_of_the_decision_and_not_of_the_one_before() -> None:
    """Contention changes between two states of one policy; a policy that never saw the first decides alike."""
    content, weights = default_set_file(), with_prices(-0.6, -0.6, 0.5, 0.2, -0.8, -0.5)
    crowded = make_state([make_job(number, "vgg-16") for number in range(12)], nodes=2)
    empty = make_state([make_job(0, "vgg-16")], nodes=20)
    tables = StepTables(SetPolicy(PRICED, weights, content.priors).beliefs)  # type: ignore[arg-type]
    in_crowd = contention_of(crowded, [tables.of(job) for job in crowded.jobs])
    assert in_crowd > contention_of(empty, [tables.of(job) for job in empty.jobs])
    one, other = (SetPolicy(PRICED, weights, content.priors) for _ in range(2))
    decided(one, crowded)
    assert decided(one, empty) == decided(other, empty)
