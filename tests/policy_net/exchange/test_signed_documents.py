import dataclasses

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from policy_net.errors import NotTrusted
from policy_net.exchange.rollout_assignment import AssignmentRole, RolloutAssignment
from policy_net.exchange.signed_documents import (
    Distrust,
    KeyRole,
    Root,
    SignedDocument,
    Timestamp,
    VersionStatement,
    follow_roots,
    public_hex,
    signed,
    timestamp,
    version_statement,
)

KEYS = {role: Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number, role in enumerate(KeyRole)}
OTHER = Ed25519PrivateKey.from_private_bytes(bytes([9]) * 32)
ROOT = Root("f" * 32, 1, {role: (public_hex(key),) for role, key in KEYS.items()})
FIRST = signed(ROOT.to_bytes(), [KEYS[KeyRole.ROOT]])
STATEMENT = VersionStatement(ROOT.fleet, 3, 2, 200, "d" * 64, "5" * 64)


def following(root: Root, **changes: object) -> Root:
    return dataclasses.replace(root, number=root.number + 1, **changes)  # type: ignore[arg-type]


def refused(reason: Distrust) -> pytest.RaisesExc[NotTrusted]:
    return pytest.raises(NotTrusted, check=lambda error: error.reason == reason)


def test_a_statement_comes_back_as_it_was_signed_also_from_a_file() -> None:
    document = signed(STATEMENT.to_bytes(), [KEYS[KeyRole.VERSION]])
    assert version_statement(document, ROOT) == STATEMENT
    assert version_statement(SignedDocument.from_json(document.to_json()), ROOT) == STATEMENT
    assert SignedDocument.of(document.message()) == document


@given(st.data())
def test_no_changed_byte_of_a_statement_or_its_signature_is_believed(data: st.DataObject) -> None:
    document = signed(STATEMENT.to_bytes(), [KEYS[KeyRole.VERSION]])
    ((key, signature),) = document.signatures
    parts = [document.payload, key, signature]
    which = data.draw(st.integers(0, 2))
    at = data.draw(st.integers(0, len(parts[which]) - 1))
    changed = bytearray(parts[which])
    changed[at] ^= 1 << data.draw(st.integers(0, 7))
    parts[which] = bytes(changed)
    with refused(Distrust.BAD_SIGNATURE):
        version_statement(SignedDocument(parts[0], ((parts[1], parts[2]),)), ROOT)


@pytest.mark.parametrize("key", [KEYS[KeyRole.TIMESTAMP], KEYS[KeyRole.ROOT], OTHER])
def test_a_key_of_another_role_or_fleet_signs_no_version(key: Ed25519PrivateKey) -> None:
    with refused(Distrust.BAD_SIGNATURE):
        version_statement(signed(STATEMENT.to_bytes(), [key]), ROOT)


def test_a_statement_of_one_kind_is_none_of_another() -> None:
    stamp = Timestamp(ROOT.fleet, "north", 1, 3, 10)
    with refused(Distrust.UNREADABLE):
        version_statement(signed(stamp.to_bytes(), [KEYS[KeyRole.VERSION]]), ROOT)
    with refused(Distrust.OTHER_FLEET):
        foreign = dataclasses.replace(stamp, fleet="other")
        timestamp(signed(foreign.to_bytes(), [KEYS[KeyRole.TIMESTAMP]]), ROOT)


def test_a_timestamp_says_the_duty_and_without_one_what_it_always_said() -> None:
    stamp = Timestamp(ROOT.fleet, "north", 1, 3, 10)
    assert b"duty" not in stamp.to_bytes()
    rollout_assignment = RolloutAssignment(2, AssignmentRole.SHADOW, 4, 0, 7200.0, 0.0)
    for said in (stamp, dataclasses.replace(stamp, rollout_assignment=rollout_assignment)):
        assert timestamp(signed(said.to_bytes(), [KEYS[KeyRole.TIMESTAMP]]), ROOT) == said


def test_a_timestamp_whose_duty_is_none_is_refused() -> None:
    rollout_assignment = RolloutAssignment(2, AssignmentRole.SHADOW, 4, 0, 7200.0, 0.0)
    payload = Timestamp(ROOT.fleet, "north", 1, 3, 10, rollout_assignment).to_bytes().replace(b'"shadow"', b'"acting"')
    with refused(Distrust.UNREADABLE):
        timestamp(signed(payload, [KEYS[KeyRole.TIMESTAMP]]), ROOT)


@given(st.binary(max_size=200))
def test_whatever_is_signed_it_is_read_or_refused(payload: bytes) -> None:
    with pytest.raises(NotTrusted):
        version_statement(signed(payload, [KEYS[KeyRole.VERSION]]), ROOT)


def test_a_rotated_root_is_followed_where_the_old_and_the_new_key_sign() -> None:
    second = following(ROOT, keys={**ROOT.keys, KeyRole.ROOT: (public_hex(OTHER),)})
    document = signed(second.to_bytes(), [KEYS[KeyRole.ROOT], OTHER])
    assert follow_roots([FIRST, document]) == second
    assert follow_roots([FIRST, document], pinned=FIRST) == second
    for keys in ([KEYS[KeyRole.ROOT]], [OTHER]):
        with refused(Distrust.BAD_SIGNATURE):
            follow_roots([FIRST, signed(second.to_bytes(), keys)])


def test_a_chain_that_ends_before_the_pinned_root_is_refused() -> None:
    document = signed(following(ROOT).to_bytes(), [KEYS[KeyRole.ROOT]])
    with refused(Distrust.OLD_ROOT):
        follow_roots([FIRST], pinned=document)


def test_a_chain_of_another_fleet_is_refused() -> None:
    other = dataclasses.replace(ROOT, fleet="0" * 32)
    with refused(Distrust.OTHER_FLEET):
        follow_roots([signed(other.to_bytes(), [KEYS[KeyRole.ROOT]])], pinned=FIRST)


def test_a_chain_with_a_gap_or_without_its_beginning_is_refused() -> None:
    second = following(ROOT)
    third = signed(following(second).to_bytes(), [KEYS[KeyRole.ROOT]])
    for chain in ([FIRST, third], [third]):
        with refused(Distrust.UNREADABLE):
            follow_roots(chain)
    with refused(Distrust.UNSIGNED):
        follow_roots([])
