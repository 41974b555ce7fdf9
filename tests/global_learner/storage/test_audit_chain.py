"""The chain of an audit log, with the file alone: whatever is done to its lines is named at the first that misfits."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from global_learner.storage.audit_chain import (
    IDENTITIES,
    VERSIONS,
    AuditLine,
    checked_chain,
    digest_of,
    parse_lines,
    place_of,
)

LINES = 6
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
CONTENT = st.tuples(st.floats(allow_nan=False, allow_infinity=False), TEXT, TEXT, TEXT, TEXT)


def chained(contents: list[tuple[float, str, str, str, str]], log: str = VERSIONS) -> list[AuditLine]:
    lines, before = [], ""
    for number, content in enumerate(contents, start=1):
        digest = digest_of(before, *content)
        lines.append(AuditLine(log, number, *content, before, digest))
        before = digest
    return lines


def written(log: str = VERSIONS) -> list[AuditLine]:
    return chained([(1.5e9 + n, "ada", "assigned", f"north-{n}", f"v{n} to v{n + 1}") for n in range(LINES)], log)


def file_of(lines: list[AuditLine]) -> bytes:
    return "".join(f"{line.to_json()}\n" for line in lines).encode()


def misfit(lines: list[AuditLine], after: tuple[str, ...] = ()) -> tuple[int, str]:
    found = checked_chain(VERSIONS, lines, after).misfit
    assert found is not None
    return found.line, found.what


@given(st.lists(CONTENT, max_size=8))
def test_what_was_written_fits_also_from_a_file(contents: list[tuple[float, str, str, str, str]]) -> None:
    lines = chained(contents)
    assert parse_lines(file_of(lines)) == (lines, None)
    chain = checked_chain(VERSIONS, lines)
    assert (chain.misfit, chain.lines) == (None, len(lines))
    assert chain.head == (lines[-1].digest if lines else "")


def test_the_digest_is_what_the_guide_says() -> None:
    line = written()[1]
    content = [line.before, line.unix_seconds, line.actor, line.action, line.subject, line.detail]
    assert line.digest == hashlib.sha256(json.dumps(content).encode()).hexdigest()


@given(st.integers(0, LINES - 1), st.sampled_from(["unix_seconds", "actor", "action", "subject", "detail"]), st.data())
def test_any_other_content_of_a_line_is_named(index: int, field: str, data: st.DataObject) -> None:
    lines = written()
    old = getattr(lines[index], field)
    new = data.draw((st.floats(allow_nan=False) if field == "unix_seconds" else TEXT).filter(lambda new: new != old))
    changed = replace(lines[index], **{field: new})
    line, what = misfit([*lines[:index], changed, *lines[index + 1 :]])
    assert (line, "was changed" in what) == (index + 1, True)


@pytest.mark.parametrize("index", range(LINES - 1))
def test_a_line_that_was_digested_anew_is_given_away_by_the_next(index: int) -> None:
    lines = written()
    forged = replace(lines[index], actor="eve")
    content = (forged.unix_seconds, forged.actor, forged.action, forged.subject, forged.detail)
    forged = replace(forged, digest=digest_of(forged.before, *content))
    line, what = misfit([*lines[:index], forged, *lines[index + 1 :]])
    assert (line, "does not follow the line before it" in what) == (index + 2, True)


DAMAGE: dict[str, tuple[Callable[[list[AuditLine]], list[AuditLine]], int, str]] = {
    "first-removed": (lambda x: x[1:], 2, "the lines before it are not there"),
    "one-removed": (lambda x: x[:2] + x[3:], 3, "is missing: line 4 stands there"),
    "two-removed": (lambda x: x[:2] + x[4:], 3, "those up to line 4 are missing: line 5 stands there"),
    "doubled": (lambda x: [*x[:3], x[2], *x[3:]], 4, "line 3 stands there a second time"),
    "first-doubled": (lambda x: [x[0], *x], 2, "line 1 stands there a second time"),
    "put-again-at-the-end": (lambda x: [*x, x[1]], LINES + 1, "line 2 stands there a second time"),
    "swapped": (lambda x: [x[0], x[2], x[1], *x[3:]], 2, "line 3 stands there, out of order"),
    "last-put-first": (lambda x: [x[-1], *x[:-1]], LINES, "the lines before it are not there"),
    "renumbered-over-a-gap": (
        lambda x: x[:2] + [replace(line, number=line.number - 1) for line in x[3:]],
        3,
        "does not follow the line before it",
    ),
    "first-names-one-before": (lambda x: [replace(x[0], before="0" * 64), *x[1:]], 1, "names a line before it"),
    "other-digest": (lambda x: [x[0], replace(x[1], digest="0" * 64), *x[2:]], 2, "was changed"),
    "no-digest": (lambda x: [x[0], replace(x[1], digest=""), *x[2:]], 2, "was changed"),
    "of-the-other-log": (
        lambda x: [x[0], replace(written(IDENTITIES)[1], actor="bob"), *x[2:]],
        2,
        "was changed",
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_what_is_done_to_lines_is_named_where_it_begins(kind: str) -> None:
    damage, line, says = DAMAGE[kind]
    found, what = misfit(damage(written()))
    assert found == line
    assert says in what
    assert f"log {VERSIONS}, line {line}:" in what


@pytest.mark.parametrize("kept", range(1, LINES))
def test_a_cut_end_is_known_by_a_digest_that_was_noted_elsewhere(kept: int) -> None:
    lines = written()
    cut = lines[:kept]
    assert checked_chain(VERSIONS, cut).misfit is None, "nothing in the file itself can say so"
    assert place_of(lines[-1].digest, cut) is None
    noted = place_of(lines[0].digest, cut)
    assert noted is not None
    assert noted.number == 1, "an older digest still stands in a log that went on"


def test_an_export_that_was_begun_later_follows_a_digest_that_is_named() -> None:
    lines = written()
    late = lines[3:]
    chain = checked_chain(VERSIONS, late, after=(lines[2].digest,))
    assert (chain.misfit, chain.first, chain.lines, chain.head) == (None, 4, 3, lines[-1].digest)
    assert misfit(late)[0] == 4
    assert misfit(late, after=(lines[1].digest,))[0] == 4
    assert misfit([replace(late[0], before=""), *late[1:]], after=("",))[0] == 4


@given(st.data())
def test_no_bit_of_a_file_is_free_to_be_otherwise(data: st.DataObject) -> None:
    lines = written()
    good = file_of(lines)
    at, bit = data.draw(st.integers(0, len(good) - 1)), data.draw(st.integers(0, 7))
    bad = bytearray(good)
    bad[at] ^= 1 << bit
    parsed, unread = parse_lines(bytes(bad))
    assert unread is not None or checked_chain(VERSIONS, parsed).misfit is not None
    number = good[:at].count(b"\n") + 1
    first = unread.line if unread is not None else misfit(parsed)[0]
    assert first in (number, number + 1), "it is named where it is, or by the line that follows"


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (lambda good: good[:-1], LINES),
        (lambda good: good[:-20], LINES),
        (lambda good: good + b"\n", LINES + 1),
        (lambda good: good + b"{}\n", LINES + 1),
        (lambda good: good.replace(b"\n", b"\r\n"), 1),
        (lambda good: b"\xef\xbb\xbf" + good, 1),
        (lambda good: good.replace(b'"actor": "ada"', b'"actor": "eve", "actor": "ada"', 1), 1),
        (lambda good: good.replace(b'"digest"', b'"more": 1, "digest"', 1), 1),
        (lambda good: good.replace(b'"number": 2', b'"number": true', 1), 2),
        (lambda good: good.replace(b'"number": 2', b'"number": 2.0', 1), 2),
        (lambda good: good.replace(b'"number": 2', b'"number": -2', 1), 2),
        (lambda good: good.replace(b'"log": "versions", "number": 3', b'"log": "others", "number": 3', 1), 3),
        (lambda good: b"[" * 100_000 + b"\n" + good, 1),
        (lambda good: b"\x00" * 100 + good, 1),
        (lambda good: b"null\n" + good, 1),
    ],
)
def test_what_no_export_writes_is_named_by_its_line(damage: Callable[[bytes], bytes], line: int) -> None:
    parsed, unread = parse_lines(damage(file_of(written())))
    assert unread is not None
    assert unread.line == line
    assert len(parsed) == line - 1
