import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from teachers import plain_line, watched, write_plain

from policy_net.domain import Allocation, JobKind
from policy_net.errors import BadInput
from policy_net.laboratory.logged import DecisionFile

SMALL = {"time_s": 0, "nodes": [{"count": 2, "cpus": 8, "gpus": 4}], "jobs": [{"id": "a", "type": "bert"}]}


def read(path: Path):
    return list(DecisionFile(path, 1200.0))


def write(path: Path, *lines: object) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_plain_log_says_what_the_scheduler_saw_and_did(tmp_path: Path) -> None:
    decisions = watched("optimus", jobs=12)
    again = read(write_plain(tmp_path / "plain.jsonl", decisions))
    assert len(again) == len(decisions)
    for theirs, ours in zip(decisions, again, strict=True):
        jobs = theirs.state.jobs
        assert [job.job_id for job in ours.state.jobs] == [job.job_id for job in jobs]
        assert [ours.of(job.job_id) for job in jobs] == [theirs.of(job.job_id) for job in jobs]
        assert [job.current for job in ours.state.jobs] == [job.current for job in jobs]
        assert ours.state.total == theirs.state.total


def test_speeds_follow_from_the_work_that_is_left(tmp_path: Path) -> None:
    decisions = watched("optimus", jobs=12)
    again = read(write_plain(tmp_path / "plain.jsonl", decisions))
    compared = 0
    for theirs, ours in zip(decisions, again, strict=True):
        truth = {entry.job_id: entry for entry in theirs.observed if not entry.finished}
        for entry in ours.observed:
            assert entry.allocation == truth[entry.job_id].allocation
            assert entry.samples == pytest.approx(truth[entry.job_id].samples, rel=1e-6, abs=1e-3)
            compared += 1
    assert compared > 20


def test_most_fields_may_be_left_out(tmp_path: Path) -> None:
    later = {"time_s": 600, "jobs": [{"id": "a", "type": "bert"}, {"id": "b", "type": "vgg-16", "workers": 2, "ps": 1}]}
    first, second = read(
        write(tmp_path / "plain.jsonl", SMALL | {"jobs": [{"id": "a", "type": "bert", "workers": 3}]}, later)
    )
    (job,) = first.state.jobs
    assert (job.kind, job.requested, job.work_known, job.worker_demand.gpu) == (
        JobKind.ALLREDUCE,
        Allocation(3, 0),
        False,
        1,
    )
    held, new = second.state.jobs
    assert (held.current, held.run_seconds, held.submit_time_seconds) == (Allocation(3, 0), 600.0, 0.0)
    assert (new.kind, second.of("b"), second.of("a")) == (JobKind.PS, Allocation(2, 1), Allocation(0, 0))
    assert second.state.nodes == first.state.nodes


@pytest.mark.parametrize(
    ("entry", "most"),
    [
        ({"workers": 3}, 16),
        ({"workers": 40}, 40),
        ({"requested_workers": 30}, 30),
        ({"requested_workers": 100}, 64),
        ({"workers": 2, "max_workers": 64}, 64),
        ({"workers": 20, "max_workers": 4}, 20),
        ({"workers": 40, "ps": 2}, 16),
        ({"workers": 8, "ps": 2, "max_workers": 4}, 8),
    ],
)
def test_a_job_may_have_the_usual_number_of_workers_or_what_it_asked_for(
    tmp_path: Path, entry: dict[str, int], most: int
) -> None:
    (found,) = read(write(tmp_path / "plain.jsonl", SMALL | {"jobs": [{"id": "a", "type": "t", **entry}]}))
    assert found.state.jobs[0].max_workers == most


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            SMALL | {"jobs": [{"id": "a", "type": "t", "max_workers": 65}]},
            "field jobs.0.max_workers = 65: must be less than or equal to 64",
        ),
        (SMALL | {"jobs": [{"id": "a", "type": "t", "ps": 1, "max_workers": 17}]}, "max_workers is 17: with parameter"),
        ({"time_s": 0, "jobs": []}, "nodes"),
        (SMALL | {"jobs": [{"id": "a"}]}, "field jobs.0.type is missing; give text"),
        (
            SMALL | {"jobs": [{"id": "a", "type": "t", "wokers": 2}]},
            "unknown field jobs.0.wokers; did you mean workers?",
        ),
        (
            SMALL | {"jobs": [{"id": "a", "type": 7}]},
            'field jobs.0.type = 7: use text, in quotes where it is a number: "7"',
        ),
        (SMALL | {"jobs": {"a": 1}}, 'is a list; write "jobs": [{"id": …, "type": …}]'),
        (SMALL | {"nodes": 4}, 'is a list; write "nodes": [{"count": 4, "cpus": …}]'),
        (SMALL | {"jobs": [{"id": "a", "type": "t", "kind": "PS"}]}, "jobs.0.kind = 'PS': must be 'ps'"),
        (
            SMALL | {"jobs": [{"id": "a", "type": "t", "worker": {"gpu": 1}}]},
            "unknown field jobs.0.worker.gpu; did you mean gpus?",
        ),
        (SMALL | {"jobs": [{"id": "a", "type": "t", "worker": 2}]}, 'is an object; write "worker": {"cpus": 2}'),
        (
            SMALL | {"jobs": [{"id": "a", "type": "t"}, {"id": "a", "type": "t"}]},
            "field jobs: two jobs have the id 'a'; give each its own",
        ),
        (SMALL | {"jobs": [{"id": "a", "type": "t", "kind": "allreduce", "ps": 2}]}, "parameter servers"),
        (SMALL | {"time_s": "noon"}, "field time_s = 'noon': use a number"),
        ([], 'line 1: [] is not an object; write {"time_s": …, "jobs": …}'),
    ],
)
def test_a_line_that_cannot_be_used_is_named(tmp_path: Path, line: object, said: str) -> None:
    with pytest.raises(BadInput, match="line 1") as error:
        read(write(tmp_path / "plain.jsonl", line))
    assert said in str(error.value)


def test_time_that_runs_backwards_is_named_and_a_torn_last_line_is_passed_over(tmp_path: Path) -> None:
    path = write(tmp_path / "plain.jsonl", SMALL | {"time_s": 10}, SMALL | {"time_s": 5})
    with pytest.raises(BadInput, match=r"line 2: time_s"):
        read(path)
    path = write(tmp_path / "plain.jsonl", SMALL, SMALL)
    path.write_text(path.read_text()[:-20])
    assert len(read(path)) == 1


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "type", "gpus", "x"]), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["time_s", "nodes", "jobs", "state", "checkpoint"]), json_values))
def test_whatever_a_line_holds_it_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, line: dict[str, object]
) -> None:
    path = write(tmp_path_factory.mktemp("log") / "any.jsonl", SMALL | line)
    try:
        read(path)
    except BadInput as error:
        message = str(error)
        assert path.name in message


def test_of_a_made_up_line_nothing_is_lost(tmp_path: Path) -> None:
    decision = watched("optimus", jobs=12)[5]
    path = write(tmp_path / "plain.jsonl", plain_line(decision, first=True))
    (again,) = read(path)
    assert again.allocation == {job_id: held for job_id, held in decision.allocation.items() if held.tasks}
