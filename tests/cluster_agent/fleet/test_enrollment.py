"""The agent's side of identity: what is kept, what is refused, and what a fresh start goes on from."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from agent_identity_makers import LIFE_SECONDS, NOON, certificate, enrolled, invite
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policy_net.errors import IdentityFileError, SecretExposed
from policy_net.exchange.enrolled_identity import EnrolledIdentity, read_enrollment
from policy_net.exchange.identity_file import new_key, parse_identity, read_identity


def test_the_key_is_kept_private_before_it_is_shown_and_asked_with_again_after_a_kill(tmp_path: Path) -> None:
    first = EnrolledIdentity(tmp_path / "identity", "north", invite(tmp_path)).first_request()
    [pending] = (tmp_path / "identity").iterdir()
    assert pending.stat().st_mode & 0o077 == 0
    assert EnrolledIdentity(tmp_path / "identity", "north", invite(tmp_path)).first_request().key == first.key


def test_a_key_that_was_cut_short_is_made_anew(tmp_path: Path) -> None:
    identity = EnrolledIdentity(tmp_path / "identity", "north", invite(tmp_path))
    first = identity.first_request()
    pending = tmp_path / "identity" / "pending.key"
    pending.write_bytes(first.key[:40])
    assert identity.first_request().key not in (first.key, first.key[:40])


def test_an_enrolled_agent_starts_without_its_enrollment_file_and_does_not_use_it_twice(tmp_path: Path) -> None:
    present = enrolled(tmp_path).present
    again = EnrolledIdentity(tmp_path / "identity", "north", tmp_path / "north.enrollment")
    assert again.present == present
    assert again.invitation() is None
    (tmp_path / "north.enrollment").unlink()
    assert EnrolledIdentity(tmp_path / "identity", "north", tmp_path / "north.enrollment").invitation() is None
    assert {path.name for path in (tmp_path / "identity").iterdir()} == {"identity.pem", "token.sha256"}


def test_a_newer_enrollment_file_is_noticed_also_while_the_agent_runs(tmp_path: Path) -> None:
    identity = enrolled(tmp_path)
    assert identity.invitation() is None
    invite(tmp_path, "another token")
    invitation = identity.invitation()
    assert invitation is not None
    assert invitation.token == "another token"  # noqa: S105


def test_renewal_is_due_after_two_thirds_of_a_life(tmp_path: Path) -> None:
    present = enrolled(tmp_path).present
    assert present is not None
    assert present.renewal_unix_seconds() == pytest.approx(NOON + LIFE_SECONDS * 2 / 3)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda key: certificate(new_key()), "do not belong together"),
        (lambda key: certificate(key, "south"), "is for south"),
        (lambda key: certificate(key)[:100], "cut short"),
        (lambda key: b"", "cut short"),
    ],
)
def test_a_certificate_that_is_not_ours_is_not_kept(tmp_path: Path, make: Callable[[bytes], bytes], says: str) -> None:
    identity = EnrolledIdentity(tmp_path / "identity", "north", invite(tmp_path))
    request = identity.first_request()
    with pytest.raises(IdentityFileError, match=says):
        identity.received(request.key, make(request.key), certificate(new_key(), "authority"))
    assert identity.present is None
    assert not (tmp_path / "identity" / "identity.pem").exists()


def test_what_cannot_be_used_stops_the_start_with_one_line(tmp_path: Path) -> None:
    def start(cluster: str = "north") -> str:
        with pytest.raises(IdentityFileError) as caught:
            EnrolledIdentity(tmp_path / "identity", cluster, tmp_path / "north.enrollment")
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "cannot be read" in start()
    path = invite(tmp_path)
    assert "is cluster north's" in start("south")
    path.chmod(0o644)
    assert "chmod 600" in start()
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:50])
    assert "cut short" in start()
    path.write_text("{}")
    assert "no enrollment file" in start()
    enrolled(tmp_path)
    assert "state_dir of its own" in start_as_south(tmp_path)
    (tmp_path / "identity" / "identity.pem").chmod(0o644)
    assert "chmod 600" in start()


def start_as_south(folder: Path) -> str:
    (folder / "north.enrollment").unlink()
    with pytest.raises(IdentityFileError) as caught:
        EnrolledIdentity(folder / "identity", "south", folder / "north.enrollment")
    return str(caught.value)


def test_what_a_group_may_read_is_taken_but_not_what_it_may_write(tmp_path: Path) -> None:
    path = invite(tmp_path)
    path.chmod(0o440)
    assert read_enrollment(path).cluster == "north"
    path.chmod(0o460)
    with pytest.raises(SecretExposed):
        read_enrollment(path)


KEY = new_key()
WHOLE = KEY + certificate(KEY) + certificate(new_key(), "authority")


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(length=st.integers(0, len(WHOLE) - 2))
def test_an_identity_file_cut_anywhere_is_said_to_be_cut_or_damaged(tmp_path: Path, length: int) -> None:
    path = tmp_path / "identity.pem"
    path.unlink(missing_ok=True)
    path.touch(0o600)
    path.write_bytes(WHOLE[:length])
    with pytest.raises(IdentityFileError, match=r"cut short|damaged"):
        read_identity(path)


@given(data=st.binary(max_size=400))
def test_noise_is_no_identity(data: bytes) -> None:
    with pytest.raises(IdentityFileError):
        parse_identity(data)


@pytest.mark.heavy
@given(content=st.text(max_size=200))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_noise_is_no_enrollment(tmp_path: Path, content: str) -> None:
    path = tmp_path / "enrollment"
    path.unlink(missing_ok=True)
    path.touch(0o600)
    path.write_bytes(content.encode("utf-8", "surrogatepass"))
    with pytest.raises(IdentityFileError):
        read_enrollment(path)


@settings(
    deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(place=st.integers(0, len(WHOLE) - 1), bit=st.integers(0, 7))
def test_a_flipped_bit_is_a_clear_refusal_or_does_no_harm(place: int, bit: int) -> None:
    data = bytearray(WHOLE)
    data[place] ^= 1 << bit
    with contextlib.suppress(IdentityFileError):  # anything else that it raises fails the test
        assert parse_identity(bytes(data)).key
