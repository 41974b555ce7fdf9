from dataclasses import astuple

import pytest

from global_learner.errors import BadRequest, IdentityRefused
from global_learner.identity import CallerIdentity, OperatorIdentity, check_role

NORTH = {"x509_common_name": [b"north"], "x509_subject_alternative_name": [b"north", b"agent.north.example"]}


def test_with_certificates_the_name_in_the_certificate_counts() -> None:
    identity = CallerIdentity(authenticated=True)
    assert identity.cluster("north", NORTH) == "north"
    assert identity.cluster("", NORTH) == "north"
    assert identity.cluster("agent.north.example", NORTH) == "agent.north.example"
    with pytest.raises(IdentityRefused, match="south"):
        identity.cluster("south", NORTH)


def test_a_certificate_without_a_name_is_nobody() -> None:
    with pytest.raises(IdentityRefused):
        CallerIdentity(authenticated=True).cluster("north", {})
    with pytest.raises(BadRequest):
        CallerIdentity(authenticated=True).cluster("", {})


def test_without_certificates_a_clusters_name_is_believed_and_nobody_is_an_administrator() -> None:
    assert CallerIdentity(authenticated=False).cluster("north", {}) == "north"
    with pytest.raises(IdentityRefused, match=r"operator\.sock"):
        check_role("GetFleet", *(astuple(CallerIdentity(authenticated=False).caller({}, "ipv4:127.0.0.1:7"))))
    with pytest.raises(IdentityRefused, match="may not ask about the fleet"):
        CallerIdentity(authenticated=False).person({})


def test_at_the_operators_socket_everybody_is_an_administrator_and_nobody_a_cluster() -> None:
    identity = OperatorIdentity()
    assert identity.person({}) == "operator"
    identity.anybody({})
    with pytest.raises(IdentityRefused, match="operators' socket"):
        identity.cluster("north", {})


def test_a_clusters_certificate_does_not_show_the_whole_fleet() -> None:
    identity = CallerIdentity(authenticated=True, admin_names=("policyctl",))
    assert identity.person({"x509_common_name": [b"policyctl"]}) == "policyctl"
    with pytest.raises(IdentityRefused, match="may not ask about the fleet"):
        identity.person(NORTH)


@pytest.mark.parametrize("name", ["a", "eu-west.1", "0" * 63])
def test_good_names(name: str) -> None:
    assert CallerIdentity(authenticated=False).cluster(name, {}) == name


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a b", "a/b", "é", "0" * 64, "a\n"])
def test_bad_names(name: str) -> None:
    with pytest.raises(BadRequest):
        CallerIdentity(authenticated=False).cluster(name, {})
