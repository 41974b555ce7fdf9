"""Jobs of one type and of two kinds have two names, which stay the same as long as anything is known."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policy_net.domain import JobKind
from policy_net.throughput.beliefs import type_of_kind

PS, ASYNC, RING = JobKind.PS, JobKind.ASYNC, JobKind.ALLREDUCE
KINDS = st.sampled_from(JobKind)


def test_the_kind_that_a_type_has_first_keeps_its_name() -> None:
    assert type_of_kind("digits", PS, {}.get) == "digits"
    assert type_of_kind("digits", PS, {"digits": PS}.get) == "digits"
    assert type_of_kind("digits", ASYNC, {"digits": PS}.get) == "digits", "what trains as one trains as the other"
    assert type_of_kind("digits", RING, {"digits": PS}.get) == "digits-allreduce"
    assert type_of_kind("digits", PS, {"digits": RING}.get) == "digits-ps"


def test_a_name_that_is_the_other_kinds_too_is_passed_over() -> None:
    known = {"digits": PS, "digits-allreduce": PS}
    assert type_of_kind("digits", RING, known.get) == "digits-allreduce-allreduce"


def test_what_is_known_by_the_longer_name_alone_keeps_it() -> None:
    """The job that had the short one is gone, and nothing was measured of it."""
    assert type_of_kind("digits", RING, {"digits-allreduce": RING}.get) == "digits-allreduce"


@given(
    st.lists(st.tuples(st.sampled_from(["a", "a-ps", "a-allreduce", "b"]), KINDS), max_size=12),
    st.sets(st.sampled_from(["a-ps", "a-allreduce"])),
)
def test_no_name_is_ever_of_two_kinds_and_names_do_not_change(
    jobs: list[tuple[str, JobKind]], others: set[str]
) -> None:
    known: dict[str, JobKind] = {}
    names = []
    for job_type, kind in jobs:
        name = type_of_kind(job_type, kind, known.get, lambda: others)
        names.append(name)
        assert known.setdefault(name, kind).uses_ps is kind.uses_ps
    uses_ps = {(job_type, kind.uses_ps) for job_type, kind in jobs}
    for job_type, ps in uses_ps:
        of_it = {name for name, job in zip(names, jobs, strict=True) if (job[0], job[1].uses_ps) == (job_type, ps)}
        assert len(of_it) <= 2, "it may change once: when the first name turns out to be of the other kind"
