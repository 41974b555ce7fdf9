"""What authors write: bad specs say one line, and the CRD's schema takes what the agent takes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from apiserver.store import Refused
from apiserver.writing.custom import admitted, schemas_of, served_by
from hypothesis import given
from hypothesis import strategies as st
from training_objects import all_reduce_spec, crd, job, job_object, spec, template

from cluster_agent.kubernetes.training.training_job import TrainingJob, training_job
from policy_net.domain import SUSPENDED, Allocation

Json = dict[str, Any]
CRD = crd()
(SERVED,) = served_by(CRD)
SCHEMA = schemas_of(CRD)["v1alpha1"]
NOTHING = {"spec": {"containers": [{"name": "main", "image": "x"}]}}


def of(made: Json) -> TrainingJob:
    return training_job({**job_object(), "spec": made})


def role(least: Any = 1, most: Any = 4, **more: Any) -> Json:
    return {"min": least, "max": most, "template": template(), **more}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"worker": role(3, 2)}, "spec.worker.max is 2, below spec.worker.min, which is 3"),
        ({"worker": role(0)}, "spec.worker.min is 0: use 1 to 16"),
        ({"worker": role(1, 17)}, "spec.worker.max is 17: use 1 to 16"),
        ({"worker": role(True)}, "spec.worker.min is True"),
        ({"worker": {"template": template()}}, "spec.worker.max is missing"),
        ({"worker": None}, "spec.worker is missing"),
        ({"ps": []}, "spec.ps is missing"),
        ({"work": {"epochs": 3, "steps": 4}}, "give either epochs or steps"),
        ({"work": {}}, "give either epochs or steps"),
        ({"work": {"steps": 0.5}}, "spec.work.steps is 0.5"),
        ({"work": {"epochs": float("nan")}}, "spec.work.epochs is nan"),
        ({"worker": {"max": 2}}, "spec.worker.template.spec.containers is missing"),
        ({"worker": {"max": 2, "template": {"spec": {"containers": []}}}}, "containers is empty"),
        ({"worker": {"max": 2, "template": NOTHING}}, "requests neither CPU nor GPUs"),
        ({"updateMode": "Sometimes"}, "spec.updateMode is 'Sometimes': use Auto, Off, Frozen"),
        ({"placement": ["Prefer"]}, "spec.placement is ['Prefer']"),
        ({"communication": "MPI"}, "spec.communication is 'MPI': use PS, AllReduce"),
        ({"suspend": "yes"}, "spec.suspend is 'yes'"),
        ({"modelType": ""}, "spec.modelType is ''"),
        ({"checkpoints": {}}, "spec.checkpoints.claimName is missing"),
        ({"checkpoints": {"claimName": "a", "store": "s3://b/c"}}, "spec.checkpoints: give either claimName or store"),
        ({"checkpoints": {"store": "s3:/b"}}, "spec.checkpoints.store is 's3:/b': use a URL such as"),
        ({"checkpoints": {"store": "S3://b"}}, "use a URL such as"),
        ({"checkpoints": {"store": "s3://b/c?x=1"}}, "use a URL such as"),
        ({"checkpoints": {"store": 7}}, "use a URL such as"),
        ({"checkpoints": {"store": "s3://" + "b" * 1020}}, "use a URL such as"),
        ({"checkpoints": {"store": "ftp://me:secret@host/b"}}, "holds a password: put it into the Secret"),
        ({"checkpoints": {"store": "s3://b", "secretName": ""}}, "spec.checkpoints.secretName is ''"),
        ({"checkpoints": {"claimName": "a", "lastOnDelete": "yes"}}, "spec.checkpoints.lastOnDelete is 'yes'"),
        ({"checkpoints": {"claimName": "a", "secretName": "b"}}, "secretName is for a store"),
        ({"coordinator": {"journal": {"claimName": ""}}}, "spec.coordinator.journal.claimName is ''"),
        ({"coordinator": "me"}, "not what the CRD says"),
    ],
)
def test_what_cannot_be_used_is_said_in_a_line(change: Json, line: str) -> None:
    found = of(spec(**change))
    assert line in found.problem
    assert "\n" not in found.problem


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"ps": {"max": 2}}, "spec.ps is given: an all-reduce job has none; leave it out"),
        ({"coordinator": {}}, "spec.coordinator is given: an all-reduce job has none; leave it out"),
        ({"worker": role(1, 65)}, "spec.worker.max is 65: use 1 to 64"),
        ({"backoffLimit": -1}, "spec.backoffLimit is -1: use 0 to 100"),
        ({"backoffLimit": True}, "spec.backoffLimit is True"),
        ({"backoffLimit": 1.5}, "spec.backoffLimit is 1.5"),
    ],
)
def test_what_an_all_reduce_job_cannot_have_is_said_in_a_line(change: Json, line: str) -> None:
    assert line in of(all_reduce_spec(**change)).problem


def test_an_all_reduce_job_has_no_servers_and_is_resized_by_checkpoints_only() -> None:
    found = of(all_reduce_spec((2, 3)))
    assert not found.problem
    assert (found.least, found.most, found.backoff_limit) == (Allocation(2), Allocation(3), 3)
    assert (found.is_all_reduce, found.is_resizable) == (True, True)
    assert not of({**all_reduce_spec(), "checkpoints": None}).is_resizable
    assert of(all_reduce_spec(backoffLimit=0)).backoff_limit == 0
    assert "backoffLimit is given: it is for all-reduce jobs" in of(spec(backoffLimit=3)).problem


def test_an_all_reduce_job_may_have_64_workers_and_keep_what_it_was_granted() -> None:
    made = all_reduce_spec((17, 64))
    granted = {"allocation": {"workers": 64, "ps": 0}}
    found = training_job({**job_object(status=granted), "spec": made})
    assert not found.problem
    assert (found.least, found.most, found.granted) == (Allocation(17), Allocation(64), Allocation(64))
    beyond = {"allocation": {"workers": 65, "ps": 0}}
    assert training_job({**job_object(status=beyond), "spec": made}).granted == SUSPENDED
    with_servers = {"allocation": {"workers": 17, "ps": 1}}
    assert training_job({**job_object(status=with_servers), "spec": spec()}).granted == SUSPENDED


def test_what_an_all_reduce_job_was_granted_has_no_servers() -> None:
    def granted(ps: int) -> Allocation:
        status = {"allocation": {"workers": 3, "ps": ps}}
        return training_job({**job_object(status=status), "spec": all_reduce_spec()}).granted

    assert (granted(0), granted(1)) == (Allocation(3), SUSPENDED)


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (all_reduce_spec(), ""),
        (all_reduce_spec(backoffLimit=100), ""),
        (all_reduce_spec((1, 64)), ""),
        (all_reduce_spec((1, 65)), "worker.max"),
        (spec(worker=role(1, 16)), ""),
        (spec(worker=role(1, 17)), "a job with parameter servers has at most 16 workers"),
        (spec(ps={"max": 17}), "ps.max"),
        (spec(), ""),
        ({name: value for name, value in spec().items() if name != "ps"}, "give ps, or communication: AllReduce"),
        (all_reduce_spec(ps={"max": 2}), "an all-reduce job has neither ps nor coordinator"),
        (all_reduce_spec(coordinator={}), "an all-reduce job has neither ps nor coordinator"),
        (spec(backoffLimit=3), "backoffLimit is for all-reduce jobs"),
        (all_reduce_spec(backoffLimit=101), "backoffLimit"),
    ],
)
def test_the_rules_of_the_definition_say_the_same(made: Json, line: str) -> None:
    found = {**job_object(), "spec": copy.deepcopy(made)}
    if not line:
        admitted(SERVED, SCHEMA, found)
        return
    with pytest.raises(Refused) as caught:
        admitted(SERVED, SCHEMA, found)
    assert line in str(caught.value.status)


def test_a_quantity_that_is_none_is_said() -> None:
    made = template()
    made["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "lots"
    assert "spec.worker.template: its requests cannot be read" in of(spec(worker={"max": 2, "template": made})).problem


@pytest.mark.parametrize("name", ["1st", "a.b", "a" * 49, "a-", "-a"])
def test_names_that_pods_and_services_cannot_have(name: str) -> None:
    assert "at most 48" in job(name).problem


def test_gpus_alone_say_what_a_worker_takes() -> None:
    made = template()
    made["spec"]["containers"][0]["resources"]["requests"] = {"nvidia.com/gpu": 1}
    found = of(spec(worker={"max": 2, "template": made}))
    assert not found.problem
    assert found.worker.requests["nvidia.com/gpu"] == 1


def test_a_job_from_before_there_were_stores_has_the_digest_that_it_began_with() -> None:
    assert job().digest == "8f04fadec5e5177d"
    store, other = (job(checkpoints={"store": "s3://b", "secretName": name}) for name in ("keys", "others"))
    assert len({job().digest, store.digest, other.digest, job(checkpoints=None).digest}) == 4
    assert (store.checkpoints_store, store.store_secret, store.keeps_checkpoints) == ("s3://b", "keys", True)


def test_templates_that_were_changed_are_told_and_back_again_they_are_not() -> None:
    began = job(status={"templateDigest": job().digest})
    assert not began.problem
    other = job_object(status={"templateDigest": began.digest})
    other["spec"]["worker"]["template"]["spec"]["containers"][0]["image"] = "newer"
    assert "its templates were changed" in training_job(other).problem
    bounds = job_object(status={"templateDigest": began.digest}, workers=(2, 3))
    assert not training_job(bounds).problem, "bounds may be changed"


@pytest.mark.parametrize(
    ("decided", "has"),
    [
        (Allocation(4, 2), Allocation(3, 2)),
        (Allocation(1, 1), Allocation(2, 1)),
        (SUSPENDED, SUSPENDED),
    ],
)
def test_a_size_that_was_decided_before_stays_within_the_bounds_of_now(decided: Allocation, has: Allocation) -> None:
    assert job(workers=(2, 3)).within(decided) == has


def test_a_status_that_makes_no_sense_says_nothing() -> None:
    for status in ([], "x", {"allocation": 3}, {"allocation": {"workers": "2", "ps": 1}}, {"conditions": [1, {}]}):
        found = training_job({**job_object(), "status": status})
        assert found.granted == SUSPENDED
        assert not found.outcome
    assert training_job(job_object(status={"allocation": {"workers": 99, "ps": 1}})).granted == SUSPENDED


nonsense = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = sorted(CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"])


@given(changes=st.dictionaries(st.sampled_from(FIELDS), nonsense, min_size=1, max_size=3))
def test_nonsense_never_raises(changes: Json) -> None:
    found = of({**spec(), **changes})
    assert "\n" not in found.problem


@given(nonsense)
def test_a_spec_that_is_none_at_all_says_a_line(found: Any) -> None:
    assert of(found).problem


@st.composite
def nearly_right(draw: st.DrawFn) -> Json:
    """A spec in which one or two fields are another value, good or bad."""
    made = spec()
    counts = st.integers(-1, 18) | st.sampled_from(["2", 1.5, True])
    claim = st.fixed_dictionaries({}, optional={"claimName": st.sampled_from(["", "data", "x" * 253, "x" * 254, 7])})
    urls = [
        "s3://b",
        "s3://b/c/",
        "s3://",
        "b/c",
        "s3://b?c",
        "S3://b",
        "abfs://c@a.net/x",
        "ftp://u:p@h/x",
        "file:///mnt/x",
        "file:///",
        7,
        "",
    ]
    kept = st.fixed_dictionaries(
        {"store": st.sampled_from([*urls, "s3://" + "b" * 1020])},
        optional={
            "lastOnDelete": st.sampled_from([True, "yes"]),
            "claimName": st.just("data"),
            "secretName": st.sampled_from(["", "keys", "x" * 254]),
        },
    )
    values = {
        "modelType": st.sampled_from(["", "m", "m" * 63, "m" * 64, 3]),
        "communication": st.sampled_from(["PS", "ps", "", 1]),
        "suspend": st.sampled_from([True, False, "true", 0]),
        "updateMode": st.sampled_from(["Auto", "Off", "Frozen", "auto", False]),
        "placement": st.sampled_from(["Prefer", "Require", "Scheduler", "None"]),
        "checkpoints": claim | kept,
        "work": st.fixed_dictionaries(
            {},
            optional={
                "epochs": st.sampled_from([0, 0.001, 0.0005, 3, 1e6, 1e7, "3", True]),
                "steps": st.sampled_from([0, 1, 10**12, 10**13, 0.5, "3"]),
            },
        ),
        "coordinator": st.fixed_dictionaries(
            {}, optional={"journal": claim, "template": st.sampled_from([{}, {"spec": {}}, template(), 3])}
        ),
        "worker": st.builds(role, counts, counts),
        "ps": st.builds(
            lambda least, most, made: {"min": least, "max": most, **made},
            counts,
            counts,
            st.sampled_from(
                [{}, {"template": {}}, {"template": {"spec": {"containers": []}}}, {"template": template()}]
            ),
        ),
    }
    for name in draw(st.lists(st.sampled_from(sorted(values)), min_size=1, max_size=2, unique=True)):
        made[name] = draw(values[name])
    return made


def schema_takes(made: Json) -> bool:
    """What the server says: its schema, and its rules."""
    try:
        admitted(SERVED, SCHEMA, {**job_object(), "spec": copy.deepcopy(made)})
    except Refused:
        return False
    return True


@given(nearly_right())
def test_the_schema_takes_what_the_agent_takes(made: Json) -> None:
    found = of(made)
    lists = [
        made[name]["template"]["spec"]["containers"] for name in ("ps",) if made[name].get("template", {}).get("spec")
    ]
    if [] in lists:  # minItems: the test server has no eye for it
        assert found.problem
        return
    assert schema_takes(made) == (not found.problem), found.problem
