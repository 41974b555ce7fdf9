"""Sessions: who shares a length, what ended and unfinished mates tell of it, and what is kept."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from states import make_job, make_state

from policy_net.domain import Allocation, Job, Resources, Trigger
from policy_net.errors import BadInput, PolicyFileError
from policy_net.exchange.policy_file import PolicyFile, parse_policy_file, spec_from_json
from policy_net.exchange.spec import SESSION_COUNT, SetSpec
from policy_net.set_policy.beliefs import LIFETIMES_KEY, Lifetimes
from policy_net.set_policy.policy import SetPolicy, default_set_file, set_policy_of
from policy_net.set_policy.sessions import BINS, EDGE_RATIO, FIRST_EDGE_SECONDS, STARTS, WIDTHS, SessionTerms, bin_of

SPEC = SetSpec(sessions=1)


def job(number: int, *, gpus: int = 4, submit: float = 0.0) -> Job:
    made = make_job(number, "vgg-16", work_known=False)
    asked = {"requested": Allocation(gpus, 1), "worker_demand": Resources(2000, 1)}
    return replace(made, submit_time_seconds=submit, **asked)


def lifetimes(terms: SessionTerms | None = SessionTerms()) -> Lifetimes:  # noqa: B008  (frozen)
    made = Lifetimes()
    made.use_sessions(terms)
    return made


def see(learning: Lifetimes, jobs: list[Job], trained: dict[str, float] | None = None) -> None:
    """Jobs train a sample a second."""
    trained = trained or {}
    learning.on_jobs_present(
        {one.job_id: (trained.get(one.job_id, 0.0), 1.0) for one in jobs}, {one.job_id: one for one in jobs}
    )


def after_mates(learning: Lifetimes, lengths: list[float], *, gpus: int = 4, gap: float = 10.0) -> Job:
    """Mates have ended with these lengths, and one more of their session is there."""
    mates = [job(number, gpus=gpus, submit=gap * number) for number in range(len(lengths))]
    last = job(len(lengths), submit=gap * len(lengths))
    see(learning, [*mates, last])
    for mate, length in zip(mates, lengths, strict=True):
        learning.on_job_ended(mate.job_id, length)
    see(learning, [last])
    return last


def test_a_job_is_expected_to_be_as_long_as_those_of_its_session_were() -> None:
    with_sessions, without = lifetimes(), lifetimes(None)
    lengths = [9000.0, 11000.0, 10000.0, 9500.0]
    last = after_mates(with_sessions, lengths)
    after_mates(without, lengths)
    fresh, plain = (one.rank_seconds(0.0, last.job_id) for one in (with_sessions, without))
    assert fresh > 2.0 * plain
    for one in (with_sessions, without):
        see(one, [last], {last.job_id: 8000.0})
    nearly_done, plain = (one.rank_seconds(8000.0, last.job_id) for one in (with_sessions, without))
    assert nearly_done < plain


@pytest.mark.parametrize("apart", [{"gpus": 8}, {"gap": 1000.0}])
def test_who_asked_for_another_size_or_came_later_is_no_mate(apart: dict[str, Any]) -> None:
    with_sessions, without = lifetimes(), lifetimes(None)
    last = after_mates(with_sessions, [9000.0], **apart)
    after_mates(without, [9000.0], **apart)
    assert with_sessions.rank_seconds(0.0, last.job_id) == without.rank_seconds(0.0, last.job_id)


def test_mates_that_go_on_or_were_withdrawn_make_a_session_longer() -> None:
    ranks = []
    for trained, stay in ((0.0, True), (20000.0, True), (20000.0, False)):
        learning = lifetimes()
        mates, last = [job(number) for number in range(3)], job(3)
        see(learning, [*mates, last], {mate.job_id: trained for mate in mates})
        see(learning, [*mates, last] if stay else [last], {mate.job_id: trained for mate in mates})
        ranks.append(learning.rank_seconds(0.0, last.job_id))
    assert ranks[1] > 2.0 * ranks[0]
    assert ranks[2] > 2.0 * ranks[0]


def test_mates_that_have_nothing_in_common_say_next_to_nothing() -> None:
    """As where several people submit at once."""
    ranks = []
    for lengths in ([200.0, 200000.0, 500.0, 30000.0, 250.0, 90000.0], [30000.0] * 6):
        for terms in (None, SessionTerms()):
            learning = lifetimes(terms)
            last = after_mates(learning, lengths)
            see(learning, [last], {last.job_id: 1000.0})
            ranks.append(learning.rank_seconds(1000.0, last.job_id))
    assert ranks[1] == pytest.approx(ranks[0], rel=0.01)
    assert abs(math.log(ranks[3] / ranks[2])) > 0.1


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.floats(1.0, 3e5), max_size=6),
    st.lists(st.floats(0.0, 3e5), max_size=5),
    st.floats(0.0, 2e5),
    st.lists(st.floats(-1.0, 1.0), min_size=3, max_size=3),
)
def test_ranks_are_those_of_the_posterior(
    ended: list[float], going_on: list[float], attained: float, values: list[float]
) -> None:
    """Term by term, bin by bin, with no more than a dictionary of probabilities."""
    terms = SessionTerms(*values)
    learning, plain = lifetimes(terms), lifetimes(None)
    gone = [job(number) for number in range(len(ended))]
    others = [job(100 + number) for number in range(len(going_on))]
    mine = job(200)
    trained = dict(zip([one.job_id for one in others], going_on, strict=True)) | {mine.job_id: attained}
    for one in (learning, plain):
        see(one, [*gone, *others, mine])
        for mate, length in zip(gone, ended, strict=True):
            one.on_job_ended(mate.job_id, length)
        see(one, [*others, mine], trained)
    if not ended and all(bin_of(length) == 0 for length in going_on):
        assert learning.rank_seconds(attained, mine.job_id) == plain.rank_seconds(attained)
        return
    _, ends, reached = (part.tolist() for part in plain._compute())
    width = math.log(EDGE_RATIO)
    deviation = math.hypot(0.223 * math.exp(values[0]), width / math.sqrt(12.0))
    stranger, unrelated = (
        min(max(usual * math.exp(v), 0.01), 0.9) for usual, v in ((0.2, values[1]), (0.3, values[2]))
    )

    def below(edge: int, latent: int) -> float:
        if edge < 0 or edge >= BINS - 1:
            return float(edge >= 0)
        return 0.5 * (1.0 + math.erf((edge - latent + 0.5) * width / deviation / math.sqrt(2.0)))

    def likelihood(latent: int) -> float:
        total = 1.0
        for length in ended:
            at = bin_of(length)
            broad = (2 / 3) ** at * (1 / 3 if at < BINS - 1 else 1.0)
            total *= (1 - stranger) * (below(at, latent) - below(at - 1, latent)) + stranger * broad
        for length in going_on:
            at = bin_of(length)
            total *= (1 - stranger) * (1 - below(at - 1, latent)) + stranger * (2 / 3) ** at
        return total

    nothing = unrelated * math.prod(ends[bin_of(length)] for length in ended)
    nothing *= math.prod(reached[bin_of(length)] for length in going_on)
    weights = [(1 - unrelated) * ends[latent] * likelihood(latent) for latent in range(BINS)]
    total = math.fsum(weights) + nothing
    predicted = [
        (1 - stranger)
        * math.fsum(
            [weight * (below(at, latent) - below(at - 1, latent)) for latent, weight in enumerate(weights)]
            + [nothing * ends[at]]
        )
        / total
        + stranger * ends[at]
        for at in range(BINS)
    ]

    def rank(start: int) -> float:
        least, trained_sum, ended_sum = math.inf, 0.0, 0.0
        for at in range(start, BINS):
            trained_sum += (math.fsum(predicted[at:]) - predicted[at] / 2) * float(WIDTHS[at])
            ended_sum += predicted[at]
            least = min(least, trained_sum / ended_sum)
        return least

    at = bin_of(attained)
    share = (attained - float(STARTS[at])) / float(WIDTHS[at])
    expected = rank(at) ** (1 - share) * rank(at + 1) ** share
    assert learning.rank_seconds(attained, mine.job_id) == pytest.approx(expected, rel=1e-6)


def test_what_was_learned_survives_a_snapshot_and_goes_on_alike() -> None:
    learning = lifetimes()
    last = after_mates(learning, [9000.0, 12000.0])
    again = Lifetimes.restored(json.loads(json.dumps(learning.snapshot())))
    again.use_sessions(SessionTerms())
    assert again.digest() == learning.digest()
    more = job(9, submit=25.0)
    for one in (learning, again):
        see(one, [last, more])
    assert again.digest() == learning.digest()
    assert again.rank_seconds(0.0, more.job_id) == learning.rank_seconds(0.0, more.job_id)


def test_sessions_that_nobody_may_join_any_more_are_forgotten() -> None:
    learning = lifetimes()
    for number in range(20):
        mate = job(number, submit=2000.0 * number)
        see(learning, [mate])
        learning.on_job_ended(mate.job_id, 50.0)
    see(learning, [])
    assert len(learning.snapshot()["sessions"]["sessions"]) == 1


def test_without_the_model_nothing_is_kept_and_digests_are_what_they_were() -> None:
    plain, never = lifetimes(None), Lifetimes()
    after_mates(plain, [9000.0])
    after_mates(never, [9000.0])
    assert "sessions" not in plain.snapshot()
    assert plain.digest() == never.digest()
    on = lifetimes()
    after_mates(on, [9000.0])
    on.use_sessions(None)
    assert on.digest() == plain.digest()


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"sessions": [[4, math.nan, [0.0] * BINS, [0.0] * BINS]], "of": []},
        {"sessions": [[4, 0.0, [0.0] * 3, [0.0] * BINS]], "of": []},
        {"sessions": [[4, 0.0, [-1.0] * BINS, [0.0] * BINS]], "of": []},
        {"sessions": [], "of": [["job-0", 0, 0]]},
        {"sessions": [[4, 0.0, [0.0] * BINS, [0.0] * BINS]], "of": [["job-0", 0, BINS]]},
        {"sessions": [[4, 0.0, [0.0] * BINS, [0.0] * BINS]], "of": [["job-0", -1, 0]]},
    ],
)
def test_what_is_no_snapshot_is_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="not a snapshot of lifetimes"):
        Lifetimes.restored({**Lifetimes().snapshot(), "sessions": broken})


def test_a_file_says_whether_there_are_sessions_and_in_which_version() -> None:
    weights = np.append(default_set_file().weights, (0.5, -0.25, 0.125)).astype(np.float32)
    read = parse_policy_file(PolicyFile(SPEC, weights).to_bytes(), "mine")
    assert set_policy_of(read, "mine").session_terms == SessionTerms(0.5, -0.25, 0.125)
    assert SPEC.parameter_count == SetSpec().parameter_count + SESSION_COUNT
    assert "sessions" not in SetSpec().to_json()
    with pytest.raises(PolicyFileError, match="sessions"):
        spec_from_json(SPEC.to_json().replace('"sessions":1', '"sessions":2'))


def test_a_policy_with_sessions_that_takes_over_begins_to_learn_them_and_the_other_way_round_forgets() -> None:
    content = default_set_file()
    plain = SetPolicy(SetSpec(), content.weights, content.priors)
    weights = np.append(content.weights, [0.0] * SESSION_COUNT).astype(np.float32)
    state = make_state([job(number, submit=10.0 * number) for number in range(3)])
    plain.decide(state, Trigger.SLOT)
    session_policy = SetPolicy(SPEC, weights, content.priors)
    session_policy.inherit(plain)
    session_policy.decide(state, Trigger.SLOT)
    assert session_policy.beliefs is not None
    found: Any = session_policy.beliefs.snapshot()[LIFETIMES_KEY]
    assert [job_id for job_id, _, _ in found["sessions"]["of"]] == [one.job_id for one in state.jobs]
    after = SetPolicy(SetSpec(), content.weights, content.priors)
    after.inherit(session_policy)
    assert after.beliefs is not None
    found = after.beliefs.snapshot()[LIFETIMES_KEY]
    assert "sessions" not in found


def test_the_first_bin_is_ten_seconds() -> None:
    assert bin_of(FIRST_EDGE_SECONDS) == 0
    assert bin_of(FIRST_EDGE_SECONDS + 0.1) == 1
    assert bin_of(1e12) == BINS - 1
