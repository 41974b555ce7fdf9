"""Enrolling, renewing and turning out: what is given, what is refused, what is remembered."""

import asyncio
import base64
import sqlite3
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from identity_makers import NOON, Clock, enrolling
from made_certificates import MadeAuthority

from global_learner.enrollment.identity_store import IdentityStore
from global_learner.enrollment.tables import EnrollmentState
from global_learner.errors import (
    BadLearnerConfig,
    BadRequest,
    EnrollmentRefused,
    IdentityRefused,
    LearnerError,
    NoAuthority,
    UnknownCluster,
)
from global_learner.service.identity_setup import keep_administrator
from policy_net.errors import SecretExposed
from policy_net.exchange.identity_file import new_key, read_identity, signing_request

pytestmark = pytest.mark.usefixtures("each_database")

HOUR = 3600.0
DAY = 24 * HOUR
REQUEST = signing_request(new_key(), "north")


async def test_a_token_becomes_a_certificate_of_its_name_and_is_kept_as_a_hash_only(tmp_path: Path) -> None:
    with enrolling(tmp_path) as here:
        invitation = await here.identities.registrar.invite("north", "policyctl")
        north = await here.enroll("north", invitation.token)
        assert north.name == "north"
        assert here.identities.identity.cluster("north", here.context(north)) == "north"
        assert here.identities.identity.cluster("", here.context(north)) == "north"
        with pytest.raises(IdentityRefused):
            here.identities.identity.cluster("south", here.context(north))
    stored = b"".join(path.read_bytes() for path in here.folder.iterdir())
    assert invitation.token.encode() not in stored


async def test_a_token_is_good_once_but_the_same_key_may_ask_again(tmp_path: Path) -> None:
    with enrolling(tmp_path) as here:
        invitation = await here.identities.registrar.invite("north", "policyctl")
        key = new_key()
        first = await here.enroll("north", invitation.token, key)
        again = await here.enroll("north", invitation.token, key)
        assert again.fingerprint == first.fingerprint
        assert here.counted("repeated") == 1
        with pytest.raises(EnrollmentRefused, match="used-token"):
            await here.enroll("north", invitation.token)
        assert here.identities.identity.cluster("", here.context(first)) == "north"


@pytest.mark.parametrize(
    ("cluster", "token", "later", "reason"),
    [
        ("north", "made-up", 0.0, "unknown-token"),
        ("south", None, 0.0, "wrong-name"),
        ("north", None, HOUR + 1, "expired-token"),
    ],
)
async def test_a_bad_token_is_refused_counted_and_changes_nothing(
    tmp_path: Path, cluster: str, token: str | None, later: float, reason: str
) -> None:
    with enrolling(tmp_path, token_minutes=60) as here:
        invitation = await here.identities.registrar.invite("north", "policyctl")
        here.clock.now += later
        before = await here.identities.registrar.clusters()
        with pytest.raises(EnrollmentRefused, match=reason) as caught:
            await here.enroll(cluster, token or invitation.token)
        assert invitation.token not in str(caught.value)
        assert await here.identities.registrar.clusters() == before
        here.clock.now = NOON
        assert (await here.enroll("north", invitation.token)).name == "north", "the true holder is not harmed"


async def test_a_newer_token_voids_the_one_before(tmp_path: Path) -> None:
    with enrolling(tmp_path) as here:
        old = await here.identities.registrar.invite("north", "policyctl")
        await here.identities.registrar.invite("north", "policyctl")
        with pytest.raises(EnrollmentRefused, match="unknown-token"):
            await here.enroll("north", old.token)


async def test_an_invitation_alone_takes_nothing_from_the_present_holder(tmp_path: Path) -> None:
    with enrolling(tmp_path) as here:
        old = await here.member("north")
        invitation = await here.identities.registrar.invite("north", "policyctl")
        assert here.identities.identity.cluster("", here.context(old)) == "north"
        new = await here.enroll("north", invitation.token)
        assert here.identities.identity.cluster("", here.context(new)) == "north"
        with pytest.raises(IdentityRefused, match="revoked"):
            here.identities.identity.cluster("", here.context(old))


async def test_a_revoked_cluster_is_refused_at_its_next_call_and_can_be_enrolled_again(tmp_path: Path) -> None:
    with enrolling(tmp_path) as here:
        north, south = await here.member("north"), await here.member("south")
        await here.identities.registrar.invite("north", "policyctl")
        assert await here.identities.registrar.revoke("north", "policyctl") == (1, 1)
        for asked in (here.identities.identity.anybody, lambda context: here.identities.identity.cluster("", context)):
            with pytest.raises(IdentityRefused, match="revoked") as caught:
                asked(here.context(north))
            assert caught.value.reason == "revoked"
        with pytest.raises(EnrollmentRefused, match="revoked"):
            await here.identities.registrar.renew("north", north.fingerprint, REQUEST)
        assert here.identities.identity.cluster("", here.context(south)) == "south"
        again = await here.member("north")
        assert here.identities.identity.cluster("", here.context(again)) == "north"
        with pytest.raises(UnknownCluster, match="east"):
            await here.identities.registrar.revoke("east", "policyctl")


async def test_what_a_revoked_cluster_said_counts_no_longer_until_it_is_enrolled_again(tmp_path: Path) -> None:
    with enrolling(tmp_path) as here:
        registrar = here.identities.registrar
        await here.member("north")
        await here.member("south")
        assert not registrar.store.turned_out("north", NOON)
        await registrar.revoke("north", "policyctl")
        assert registrar.store.turned_out("north", NOON)
        assert not registrar.store.turned_out("south", NOON)
        assert not registrar.store.turned_out("east", NOON), "on loopback nobody has a certificate"
        await here.member("north")
        assert not registrar.store.turned_out("north", NOON)


def test_of_certificates_made_elsewhere_a_name_counts_for_what_it_said_after_it_was_revoked(tmp_path: Path) -> None:
    store = IdentityStore(tmp_path)
    store.revoke_name("north", "policyctl", NOON)
    assert store.turned_out("north", NOON - 1)
    assert not store.turned_out("north", NOON + 1)
    assert not store.turned_out("south", NOON - 1)
    store.close()


async def test_a_renewed_certificate_stands_beside_the_present_one_and_unreceived_ones_go(tmp_path: Path) -> None:
    with enrolling(tmp_path) as here:
        first = await here.member("north")

        async def renewed(presented: str) -> object:
            here.clock.now += 1
            return await here.identities.registrar.renew("north", presented, signing_request(new_key(), "north"))

        lost = await renewed(first.fingerprint)
        kept = await renewed(first.fingerprint)
        known = IdentityStore(here.folder).known
        assert {first.fingerprint, kept.fingerprint} <= set(known)  # type: ignore[attr-defined]
        assert lost.fingerprint not in known  # type: ignore[attr-defined]
        [status] = await here.identities.registrar.clusters()
        assert (status.state, status.fingerprint) == (EnrollmentState.ENROLLED, kept.fingerprint)  # type: ignore[attr-defined]


async def test_a_certificate_that_ran_out_is_refused_on_a_connection_that_lasts(tmp_path: Path) -> None:
    with enrolling(tmp_path, certificate_days=30) as here:
        north = await here.member("north")
        here.clock.now += 30 * DAY + 1
        with pytest.raises(IdentityRefused, match="expired"):
            here.identities.identity.cluster("", here.context(north))
        [status] = await here.identities.registrar.clusters()
        assert status.state == EnrollmentState.EXPIRED


async def test_a_certificate_of_another_authority_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with enrolling(tmp_path / "other") as other:
        foreign = await other.member("north")
    with enrolling(tmp_path) as here:
        await here.member("north")
        with pytest.raises(IdentityRefused, match="none that this learner issued"):
            here.identities.identity.cluster("north", here.context(foreign))


async def test_roles_do_not_mix(tmp_path: Path) -> None:
    with enrolling(tmp_path) as here:
        admin = read_identity(here.folder / "admin.pem")
        north = await here.member("north")
        assert here.identities.identity.person(here.context(admin)) == "policyctl"
        with pytest.raises(IdentityRefused, match="may not ask about the fleet"):
            here.identities.identity.person(here.context(north))
        with pytest.raises(IdentityRefused, match="says admin, and is no cluster's"):
            here.identities.identity.cluster("", here.context(admin))
        for reserved in ("policyctl", "global-learner", "127.0.0.1"):
            with pytest.raises(BadRequest, match="name the cluster otherwise"):
                await here.identities.registrar.invite(reserved, "policyctl")


async def test_everything_is_remembered_after_a_restart(tmp_path: Path) -> None:
    with enrolling(tmp_path) as here:
        north, south = await here.member("north"), await here.member("south")
        await here.identities.registrar.revoke("south", "policyctl")
        invitation = await here.identities.registrar.invite("east", "policyctl")
        admin = (here.folder / "admin.pem").read_bytes()
    with enrolling(tmp_path) as here:
        assert here.identities.identity.cluster("", here.context(north)) == "north"
        with pytest.raises(IdentityRefused, match="revoked"):
            here.identities.identity.cluster("", here.context(south))
        assert (await here.enroll("east", invitation.token)).authority == north.authority
        assert (here.folder / "admin.pem").read_bytes() == admin


async def test_the_audit_log_says_who_did_what_and_a_flood_of_refusals_is_one_line(tmp_path: Path) -> None:
    with enrolling(tmp_path) as here:
        await here.member("north")
        invitation = await here.identities.registrar.invite("north", "ada")
        for _ in range(5):
            with pytest.raises(EnrollmentRefused):
                await here.enroll("south", invitation.token)
        await here.identities.registrar.revoke("north", "ada")
        lines = [(line.actor, line.action, line.subject) for line in IdentityStore(here.folder).audit()]
    assert lines == [
        ("global-learner", "administrator", "policyctl"),
        ("test", "invited", "north"),
        ("north", "enrolled", "north"),
        ("ada", "invited", "north"),
        ("unknown", "refused", "north"),
        ("ada", "revoked", "north"),
    ]


async def test_a_lost_administrators_file_is_made_anew_and_the_lost_one_counts_no_more(tmp_path: Path) -> None:
    with enrolling(tmp_path) as here:
        lost = read_identity(here.folder / "admin.pem")
    (here.folder / "admin.pem").unlink()
    with enrolling(tmp_path) as here:
        with pytest.raises(IdentityRefused, match="revoked"):
            here.identities.identity.person(here.context(lost))
        new = read_identity(here.folder / "admin.pem")
        assert here.identities.identity.person(here.context(new)) == "policyctl"


def test_an_administrators_file_is_renewed_by_a_start_in_its_last_third(tmp_path: Path) -> None:
    clock = Clock()
    with enrolling(tmp_path, clock) as here:
        first = read_identity(here.folder / "admin.pem")
    clock.now += 300 * DAY
    with enrolling(tmp_path, clock) as here:
        second = read_identity(here.folder / "admin.pem")
    assert second.ends_unix_seconds > first.ends_unix_seconds + 299 * DAY


def test_a_renewed_authority_leaves_the_administrators_file_good_and_writes_another_one(tmp_path: Path) -> None:
    clock, made = Clock(), MadeAuthority("platform-ca")
    files = {"ca_certificate_file": str(tmp_path / "ca.pem"), "ca_key_file": str(tmp_path / "ca.key")}
    (tmp_path / "ca.key").write_bytes(made.private_key())
    (tmp_path / "ca.key").chmod(0o600)
    seen = []
    for days in (400, 4000):
        (tmp_path / "ca.pem").write_bytes(made.certificate(clock.now - DAY, clock.now + days * DAY))
        with enrolling(tmp_path, clock, **files) as here:
            seen.append(read_identity(here.folder / "admin.pem"))
            for identity in seen:
                assert here.identities.identity.person(here.context(identity)) == "policyctl"
    assert seen[0].authority != seen[1].authority == (tmp_path / "ca.pem").read_bytes()


def test_secrets_are_for_their_owner_only_and_an_exposed_key_is_not_used(tmp_path: Path) -> None:
    with enrolling(tmp_path) as here:
        assert here.folder.stat().st_mode & 0o077 == 0
        for path in here.folder.iterdir():
            assert path.stat().st_mode & 0o077 == 0, path
    (here.folder / "ca.key").chmod(0o644)
    with pytest.raises(SecretExposed, match="chmod 600"), enrolling(tmp_path):
        pass


def _rename(certificate: Path) -> None:
    """One bit of the authority's name: a sound certificate still, but for its signature."""
    parsed = x509.load_pem_x509_certificate(certificate.read_bytes()).public_bytes(Encoding.DER)
    changed = x509.load_der_x509_certificate(parsed.replace(b"fedl2 fleet", b"fedl2 flees"))
    certificate.write_bytes(changed.public_bytes(Encoding.PEM))


def _of_an_unknown_kind(path: Path) -> None:
    """A bit flipped in the name of the kind of its key."""
    der = bytearray(x509.load_pem_x509_certificate(path.read_bytes()).public_bytes(Encoding.DER))
    der[der.rindex(bytes.fromhex("2a8648ce3d0201")) + 2] ^= 1
    body = base64.encodebytes(bytes(der)).decode()
    path.write_text(f"-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n")


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda folder: (folder / "ca.key").unlink(), "ca.key: the authority's key is gone"),
        (lambda folder: (folder / "ca.key").write_bytes((folder / "ca.key").read_bytes()[:80]), "no private key"),
        (lambda folder: (folder / "ca.pem").write_bytes(b"-----BEGIN"), "no authority's certificate"),
        (lambda folder: _of_an_unknown_kind(folder / "ca.pem"), "no authority's certificate"),
        (lambda folder: (folder / "ca.key").write_bytes(new_key()), "is not the key of"),
        (lambda folder: _rename(folder / "ca.pem"), "ca.pem is damaged: it is not what its key signed"),
    ],
)
def test_a_damaged_authority_stops_the_start_and_is_not_replaced(tmp_path: Path, damage, says: str) -> None:
    with enrolling(tmp_path) as here:
        pass
    damage(here.folder)
    with pytest.raises(LearnerError, match=says), enrolling(tmp_path):
        pass


def test_an_authority_that_ran_out_stops_the_start(tmp_path: Path) -> None:
    clock = Clock()
    with enrolling(tmp_path, clock):
        pass
    clock.now += 3651 * DAY
    with pytest.raises(BadLearnerConfig, match="has expired"), enrolling(tmp_path, clock):
        pass


async def test_an_authority_of_ones_own_signs(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with enrolling(tmp_path / "other") as other:
        files = {"ca_certificate_file": other.folder / "ca.pem", "ca_key_file": other.folder / "ca.key"}
        authority = (other.folder / "ca.pem").read_bytes()
    with enrolling(tmp_path, **files) as here:
        assert (await here.member("north")).authority == authority
        assert not (here.folder / "ca.key").exists()


async def test_nobody_is_invited_where_nobody_can_enroll(tmp_path: Path) -> None:
    with enrolling(tmp_path, enroll_port=None) as here:
        here.identities.registrar.enroll_port = 0
        with pytest.raises(NoAuthority, match="enroll_port"):
            await here.identities.registrar.invite("north", "policyctl")


@pytest.mark.heavy
@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data())
@pytest.mark.parametrize("each_database", ["sqlite"], indirect=True)
async def test_no_damaged_request_gets_a_certificate(tmp_path: Path, data: st.DataObject) -> None:
    request = bytearray(REQUEST)
    how = data.draw(st.sampled_from(("cut", "flip", "noise", "long")))
    if how == "cut":
        request = request[: data.draw(st.integers(0, len(request) - 1))]
    elif how == "flip":
        request[data.draw(st.integers(0, len(request) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    elif how == "noise":
        request = bytearray(data.draw(st.binary(max_size=300)))
    else:
        request += bytes(9000)
    with enrolling(tmp_path) as here:
        invitation = await here.identities.registrar.invite("north", "policyctl")
        with pytest.raises(BadRequest):
            await here.identities.registrar.enroll("north", invitation.token, bytes(request))
        assert (await here.enroll("north", invitation.token)).name == "north", "the token was not used up"


@pytest.mark.heavy
@given(name=st.text(max_size=80), token=st.text(max_size=200))
@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@pytest.mark.parametrize("each_database", ["sqlite"], indirect=True)
async def test_no_name_and_no_token_of_strangers_get_in(tmp_path: Path, name: str, token: str) -> None:
    with enrolling(tmp_path) as here:
        with pytest.raises((BadRequest, EnrollmentRefused)):
            await here.identities.registrar.enroll(name, token, signing_request(new_key(), "x"))
        assert await here.identities.registrar.clusters() == []


@pytest.mark.parametrize("each_database", ["sqlite"], indirect=True)
def test_a_book_that_is_none_stops_the_start(tmp_path: Path) -> None:
    with enrolling(tmp_path) as here:
        pass
    (here.folder / "identities.sqlite").write_bytes(b"no database at all, but long enough to look at" * 40)
    for name in ("identities.sqlite-wal", "identities.sqlite-shm"):
        (here.folder / name).unlink(missing_ok=True)
    with pytest.raises(Exception, match="no usable book of identities"), enrolling(tmp_path):
        pass
    with pytest.raises(sqlite3.DatabaseError):
        sqlite3.connect(here.folder / "identities.sqlite").execute("select * from audit")


def odd_request() -> bytes:
    """A request for an RSA key of a size that is taken, with an exponent as long as its modulus."""

    def tagged(tag: int, *parts: bytes) -> bytes:
        body = b"".join(parts)
        return bytes([tag]) + (bytes([len(body)]) if len(body) < 128 else b"\x82" + len(body).to_bytes(2, "big")) + body

    name, digest = bytes.fromhex("300d06092a864886f70d0101010500"), bytes.fromhex("300d06092a864886f70d01010b0500")
    modulus, exponent = (tagged(2, first + b"\x55" * 382 + b"\x01") for first in (b"\x00\xc0", b"\x40"))
    key = tagged(3, b"\x00", tagged(0x30, modulus, exponent))
    asked = tagged(0x30, tagged(2, b"\x00"), tagged(0x30), tagged(0x30, name, key), tagged(0xA0))
    return tagged(0x30, asked, digest, tagged(3, b"\x00", b"\x55" * 384))


async def test_the_token_is_looked_at_before_anything_that_takes_long(tmp_path: Path) -> None:
    with enrolling(tmp_path) as here:
        invitation = await here.identities.registrar.invite("north", "policyctl")
        for request in (odd_request(), b"no request at all"):
            with pytest.raises(EnrollmentRefused, match="unknown-token"):
                await here.identities.registrar.enroll("north", "x" * 43, request)
        with pytest.raises(BadRequest, match="RSA of 2048 to 4096 bits"):
            await here.identities.registrar.enroll("north", invitation.token, odd_request())
        assert (await here.enroll("north", invitation.token)).name == "north"


async def test_a_token_from_before_a_restart_is_still_known(tmp_path: Path) -> None:
    with enrolling(tmp_path) as here:
        invitation = await here.identities.registrar.invite("north", "policyctl")
    with enrolling(tmp_path) as here:
        assert (await here.enroll("north", invitation.token)).name == "north"


async def test_an_administrators_file_is_renewed_while_the_learner_runs_and_copies_of_it_stay_good(
    tmp_path: Path,
) -> None:
    with enrolling(tmp_path) as here:
        passed = []

        async def sleep(seconds: float) -> None:
            passed.append(seconds)
            here.clock.now += 30 * DAY
            if len(passed) == 10:
                raise asyncio.CancelledError

        copy = read_identity(here.folder / "admin.pem")
        with pytest.raises(asyncio.CancelledError):
            await keep_administrator(here.identities, here.thread, sleep)
        renewed = read_identity(here.folder / "admin.pem")
        assert renewed.fingerprint != copy.fingerprint
        assert set(passed) == {3600.0}
        here.clock.now = NOON + 300 * DAY
        for identity in (copy, renewed):
            assert here.identities.identity.person(here.context(identity)) == "policyctl"
        here.clock.now = NOON + 400 * DAY
        assert here.identities.identity.person(here.context(renewed)) == "policyctl"
        with pytest.raises(IdentityRefused, match="expired"):
            here.identities.identity.person(here.context(copy))
