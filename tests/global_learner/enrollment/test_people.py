"""People: a certificate says the role, a name has one, and whoever is turned out is out."""

from __future__ import annotations

import datetime
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from identity_makers import NOON, Enrolling, enrolling

from global_learner.enrollment.authority import Authority, read_authority
from global_learner.enrollment.tables import EnrollmentState
from global_learner.errors import BadRequest, IdentityRefused, NoAuthority, UnknownPerson
from global_learner.identity import PEOPLE, Caller, CallerIdentity, CallerRole, role_uri
from policy_net.exchange.identity_file import IdentityFile, new_key, parse_identity, read_identity, signing_request

YEAR = 365 * 86_400.0


async def enrolled(here: Enrolling, name: str, role: CallerRole) -> IdentityFile:
    key = new_key()
    grant, _ = await here.identities.registrar.enroll_person(name, role, signing_request(key, "whatever"), "policyctl")
    return parse_identity(key + grant.pem + here.identities.registrar.authority_pem)


def caller(here: Enrolling, identity: IdentityFile) -> Caller:
    return here.identities.identity.caller(here.context(identity), "ipv4:127.0.0.1:7")


def uris(identity: IdentityFile) -> list[str]:
    names = x509.load_pem_x509_certificate(identity.certificate).extensions
    found = names.get_extension_for_class(x509.SubjectAlternativeName).value
    return found.get_values_for_type(x509.UniformResourceIdentifier)


@pytest.mark.parametrize("role", PEOPLE)
async def test_a_certificate_says_name_and_role_and_is_good_for_them(tmp_path: Path, role: CallerRole) -> None:
    with enrolling(tmp_path) as here:
        ada = await enrolled(here, "ada", role)
        assert (ada.name, uris(ada)) == ("ada", [f"fedl2:role:{role}"])
        assert caller(here, ada) == Caller("ada", role)
        assert here.identities.identity.person(here.context(ada)) == "ada"
        for claimed in ("ada", "", role_uri(role)):
            with pytest.raises(IdentityRefused, match=f"says {role}, and is no cluster's"):
                here.identities.identity.cluster(claimed, here.context(ada))
        (person,) = [entry for entry in await here.identities.registrar.people() if entry.name == "ada"]
        assert (person.role, person.state, person.fingerprint) == (role, EnrollmentState.ENROLLED, ada.fingerprint)
        assert "ada" not in [entry.cluster for entry in await here.identities.registrar.clusters()]
        line = here.identities.registrar.store.audit(0.0)[-1]
        assert (line.actor, line.action, line.subject) == ("policyctl", "operator-enrolled", "ada")
        assert line.detail == f"as {role}, certificate {ada.fingerprint[:16]}, in place of 0"


async def test_whoever_is_enrolled_again_has_the_new_role_alone(tmp_path: Path) -> None:
    with enrolling(tmp_path) as here:
        before = await enrolled(here, "ada", CallerRole.ADMIN)
        after = await enrolled(here, "ada", CallerRole.VIEWER)
        assert caller(here, after) == Caller("ada", CallerRole.VIEWER)
        with pytest.raises(IdentityRefused, match="was revoked"):
            caller(here, before)
        admin = read_identity(here.folder / "admin.pem")
        assert caller(here, admin) == Caller("policyctl", CallerRole.ADMIN)


async def test_whoever_is_revoked_is_out_and_may_come_back(tmp_path: Path) -> None:
    with enrolling(tmp_path) as here:
        registrar = here.identities.registrar
        ada, bob = await enrolled(here, "ada", CallerRole.OPERATOR), await enrolled(here, "bob", CallerRole.VIEWER)
        assert await registrar.revoke_person("ada", "bob") == 1
        assert await registrar.revoke_person("ada", "bob") == 0
        with pytest.raises(IdentityRefused, match="was revoked"):
            caller(here, ada)
        assert caller(here, bob).role is CallerRole.VIEWER
        states = {entry.name: entry.state for entry in await registrar.people()}
        assert states == {
            "ada": EnrollmentState.REVOKED,
            "bob": EnrollmentState.ENROLLED,
            "policyctl": EnrollmentState.ENROLLED,
        }
        with pytest.raises(UnknownPerson, match="nobody called eve"):
            await registrar.revoke_person("eve", "bob")
        again = await enrolled(here, "ada", CallerRole.OPERATOR)
        assert caller(here, again).role is CallerRole.OPERATOR
        here.clock.now += YEAR + 1
        with pytest.raises(IdentityRefused, match="expired"):
            caller(here, again)
        assert {entry.state for entry in await registrar.people()} == {EnrollmentState.EXPIRED}


async def test_a_name_is_a_persons_or_a_clusters_and_never_both(tmp_path: Path) -> None:
    with enrolling(tmp_path) as here:
        registrar = here.identities.registrar
        await here.member("north")
        await registrar.invite("south", "policyctl")
        await enrolled(here, "ada", CallerRole.VIEWER)
        for name in ("north", "south"):
            with pytest.raises(BadRequest, match=f"{name} is a cluster's name"):
                await enrolled(here, name, CallerRole.VIEWER)
        with pytest.raises(BadRequest, match="ada is a person's name"):
            await registrar.invite("ada", "policyctl")
        await registrar.revoke_person("ada", "policyctl")
        with pytest.raises(BadRequest, match="ada is a person's name"):
            await registrar.invite("ada", "policyctl")


@pytest.mark.parametrize(
    ("name", "role", "says"),
    [
        ("ada", "root", "there is no role 'root' for people: it is viewer, operator, admin"),
        ("ada", "cluster", "there is no role 'cluster'"),
        ("ada", "uncertified", "there is no role"),
        ("ada", "", "there is no role"),
        ("ada", "Viewer", "there is no role"),
        ("", "viewer", "is no person name"),
        ("Ada Lovelace", "viewer", "is no person name"),
        ("fedl2:role:admin", "viewer", "is no person name"),
        ("policyctl", "viewer", "the learner's own name"),
        ("operator", "viewer", "the learner's own name"),
        ("global-learner", "viewer", "the learner's own name"),
        ("localhost", "viewer", "the learner's own name"),
        ("unknown", "viewer", "the learner's own name"),
    ],
)
async def test_bad_names_and_roles_change_nothing(tmp_path: Path, name: str, role: str, says: str) -> None:
    with enrolling(tmp_path) as here:
        registrar = here.identities.registrar
        before = await registrar.people()
        with pytest.raises(BadRequest, match=says):
            await registrar.enroll_person(name, role, signing_request(new_key(), "x"), "policyctl")
        with pytest.raises(BadRequest):
            await registrar.enroll_person("ada", "viewer", b"no request", "policyctl")
        assert await registrar.people() == before


async def test_the_learners_own_identity_file_is_not_revoked_by_name(tmp_path: Path) -> None:
    with enrolling(tmp_path) as here:
        with pytest.raises(BadRequest, match=r"remove identity/admin\.pem"):
            await here.identities.registrar.revoke_person("policyctl", "ada")
        admin = read_identity(here.folder / "admin.pem")
        assert uris(admin) == ["fedl2:role:admin"]


async def test_a_role_that_was_changed_in_the_database_is_not_believed(tmp_path: Path) -> None:
    with enrolling(tmp_path) as here:
        ada = await enrolled(here, "ada", CallerRole.VIEWER)
    with closing(sqlite3.connect(here.folder / "identities.sqlite")) as connection:
        connection.execute("UPDATE certificates SET role = 'admin' WHERE name = 'ada'")
        connection.commit()
    with enrolling(tmp_path) as here, pytest.raises(IdentityRefused, match="says viewer, and was entered as admin"):
        caller(here, ada)


@pytest.mark.parametrize("role", PEOPLE)
async def test_a_cluster_that_the_database_makes_a_person_is_none(tmp_path: Path, role: CallerRole) -> None:
    with enrolling(tmp_path) as here:
        north = await here.member("north")
    with closing(sqlite3.connect(here.folder / "identities.sqlite")) as connection:
        connection.execute("UPDATE certificates SET role = ? WHERE name = 'north'", (role,))
        connection.commit()
    with enrolling(tmp_path) as here, pytest.raises(IdentityRefused, match=f"says no role, and was entered as {role}"):
        caller(here, north)


async def test_an_admins_certificate_of_before_there_were_roles_stays_an_admins(tmp_path: Path) -> None:
    with enrolling(tmp_path) as here:
        authority = read_authority(here.folder / "ca.pem", here.folder / "ca.key", NOON)
        old = certificate(authority, "policyctl", None)
        old.write(here.folder / "admin.pem")
        with closing(sqlite3.connect(here.folder / "identities.sqlite")) as connection:
            connection.execute("UPDATE certificates SET fingerprint = ? WHERE name = 'policyctl'", (old.fingerprint,))
            connection.commit()
    with enrolling(tmp_path) as here:
        assert uris(old) == []
        assert caller(here, old) == Caller("policyctl", CallerRole.ADMIN)


def certificate(authority: Authority, name: str, role: CallerRole | None) -> IdentityFile:
    key = new_key()
    public = serialization.load_pem_private_key(key, None).public_key()
    issued = authority.for_client(public, name, NOON, YEAR, role or CallerRole.CLUSTER)
    return parse_identity(key + issued.pem + authority.pem)


def elsewhere(name: str, *names: x509.GeneralName) -> dict[str, list[bytes]]:
    """What gRPC says of a caller whose certificate was made elsewhere."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    day = datetime.timedelta(days=1)
    noon = datetime.datetime.fromtimestamp(NOON, datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
    builder = builder.serial_number(7).not_valid_before(noon - day).not_valid_after(noon + day)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    made = builder.sign(key, hashes.SHA256())
    return {
        "x509_common_name": [name.encode()],
        "x509_subject_alternative_name": [str(one.value).encode() for one in names],
        "x509_pem_cert": [made.public_bytes(serialization.Encoding.PEM)],
    }


def uri(text: str) -> x509.GeneralName:
    return x509.UniformResourceIdentifier(text)


def test_of_certificates_made_elsewhere_a_uri_lessens_what_a_named_admin_may() -> None:
    identity = CallerIdentity(authenticated=True, admin_names=("ada", "bob"), clock=lambda: NOON)
    assert identity.caller(elsewhere("ada"), "") == Caller("ada", CallerRole.ADMIN), "as before there were roles"
    for role in PEOPLE:
        assert identity.caller(elsewhere("ada", uri(role_uri(role))), "") == Caller("ada", role)
    spiffe = elsewhere("bob", x509.DNSName("bob"), uri("spiffe://example.org/bob"))
    assert identity.caller(spiffe, "") == Caller("bob", CallerRole.ADMIN)


def test_of_certificates_made_elsewhere_a_uri_makes_nobody_more_than_the_settings_say() -> None:
    identity = CallerIdentity(authenticated=True, admin_names=("ada",), clock=lambda: NOON)
    assert identity.caller(elsewhere("north", x509.DNSName("north")), "") == Caller("north", CallerRole.CLUSTER)
    for role in PEOPLE:
        posing = elsewhere("north", x509.DNSName("north"), uri(role_uri(role)))
        for asked in (
            lambda context: identity.caller(context, ""),
            lambda context: identity.cluster("north", context),
            identity.person,
            identity.anybody,
        ):
            with pytest.raises(IdentityRefused, match=f"says {role}, and is none of tls.admin_names"):
                asked(posing)
    with pytest.raises(IdentityRefused, match="it must be one of"):
        identity.caller(elsewhere("ada", uri("fedl2:role:root")), "")


async def test_without_an_authority_nobody_is_enrolled(tmp_path: Path) -> None:
    from learner_in_process import serving

    from policy_net.exchange.generated import fleet_pb2 as pb

    async with serving(tmp_path) as here:
        request = pb.EnrollOperatorRequest(name="ada", role="viewer", signing_request=signing_request(new_key(), "x"))
        for method, asked in (("EnrollOperator", request), ("RevokeOperator", pb.RevokeOperatorRequest(name="ada"))):
            assert (await here.refused(method, asked)).name == "FAILED_PRECONDITION"
        assert not (await here.call("ListOperators", pb.ListOperatorsRequest())).operators
    assert NoAuthority.exit_code == 1
