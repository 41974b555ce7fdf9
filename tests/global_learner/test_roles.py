"""Roles: every method of every service has a row, and each role may do exactly what its row says."""

from itertools import pairwise

import pytest

from global_learner.errors import IdentityRefusal, IdentityRefused
from global_learner.identity import NEEDS, PEOPLE, CallerRole, check_role, role_uri, stated_role
from policy_net.exchange.generated import fleet_pb2

SERVICES = fleet_pb2.DESCRIPTOR.services_by_name
METHODS = [(service, method.name) for service in SERVICES for method in SERVICES[service].methods]
NAMES = [name for _, name in METHODS]


def may(method: str, role: CallerRole) -> bool:
    try:
        check_role(method, "ada", role)
    except IdentityRefused:
        return False
    return True


def test_every_method_of_every_service_has_a_row_and_no_row_is_left_over() -> None:
    assert len(set(NAMES)) == len(NAMES), "rows go by a method's name alone"
    assert set(NEEDS) == set(NAMES), "a new method needs a line in roles.NEEDS, a removed one must leave it"


@pytest.mark.parametrize(("service", "method"), METHODS)
def test_who_is_more_may_whatever_who_is_less_may(service: str, method: str) -> None:
    for less, more in pairwise(PEOPLE):
        assert may(method, more) or not may(method, less)
    assert any(may(method, role) for role in CallerRole), "somebody may call it"
    people = [role for role in PEOPLE if may(method, role)]
    if service == "Admin":
        assert CallerRole.ADMIN in people
        assert not may(method, CallerRole.CLUSTER)
        assert not may(method, CallerRole.UNCERTIFIED)
        only_looks = method.startswith(("List", "Show", "Get"))
        assert (CallerRole.VIEWER in people) is only_looks, (
            "who looks changes nothing; what changes something is no viewer's"
        )
    elif service == "Fleet":
        assert may(method, CallerRole.CLUSTER)
        assert may(method, CallerRole.UNCERTIFIED), "on loopback, as it was before there were roles"
        assert (people == list(PEOPLE)) if method == "FetchPolicy" else (people == [])
    else:
        assert [role for role in CallerRole if may(method, role)] == [CallerRole.UNCERTIFIED]


def test_what_says_who_belongs_to_the_fleet_is_an_admins_alone() -> None:
    admins = {method for _, method in METHODS if may(method, CallerRole.ADMIN) and not may(method, CallerRole.OPERATOR)}
    people = {"EnrollOperator", "RevokeOperator"}
    assert admins == {"EnrollCluster", "RevokeCluster", "ForgetCluster", *people, "RotateKey"}


@pytest.mark.parametrize("method", ["", "Unknown", "getfleet", "GetFleet "])
def test_what_has_no_row_nobody_may_call(method: str) -> None:
    assert not any(may(method, role) for role in CallerRole)


@pytest.mark.parametrize(
    ("method", "role", "says"),
    [
        (
            "AssignVersion",
            CallerRole.VIEWER,
            "AssignVersion: ada is a viewer, and it takes an operator; ask an admin for",
        ),
        ("RotateKey", CallerRole.OPERATOR, "RotateKey: ada is an operator, and it takes an admin; ask an admin for"),
        (
            "GetFleet",
            CallerRole.CLUSTER,
            "GetFleet: ada is a cluster, and may not ask about the fleet; it takes a viewer's",
        ),
        ("Push", CallerRole.ADMIN, "Push: ada is an admin, and only clusters may; agents use their own certificate"),
        ("GetFleet", CallerRole.UNCERTIFIED, "GetFleet: without certificates only the learner's own user may ask this"),
    ],
)
def test_a_refusal_says_who_with_which_role_and_what_is_needed(method: str, role: CallerRole, says: str) -> None:
    with pytest.raises(IdentityRefused) as caught:
        check_role(method, "ada", role)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.reason is IdentityRefusal.WRONG_ROLE


def test_a_certificate_states_one_role_of_people_or_none() -> None:
    assert stated_role([]) is None
    assert stated_role(["spiffe://example.org/north", "fedl2:rolex:admin", "FEDL2:role:admin"]) is None
    for role in PEOPLE:
        assert stated_role(["https://example.org", role_uri(role)]) is role
        assert stated_role([role_uri(role), role_uri(role)]) is role
    for uris in (
        [role_uri(CallerRole.VIEWER), role_uri(CallerRole.ADMIN)],
        ["fedl2:role:"],
        ["fedl2:role:root"],
        ["fedl2:role:ADMIN"],
        ["fedl2:role:cluster"],
        ["fedl2:role:uncertified"],
        [role_uri(CallerRole.VIEWER), "fedl2:role:root"],
    ):
        with pytest.raises(IdentityRefused, match="it must be one of viewer, operator, admin"):
            stated_role(uris)
