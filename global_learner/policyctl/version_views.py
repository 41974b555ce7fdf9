"""Output of `policyctl version`: plain values for `-o json`, tables for people."""

from __future__ import annotations

from typing import Any

from foundation.tables import NOTHING, Column, FactSheet, FittedTable, in_words, name_in_words
from global_learner.policyctl.views import (
    Facts,
    change_words,
    facts_of,
    moment,
    privacy_facts,
    version_name,
    whole_moment,
)
from policy_net.exchange.generated import fleet_pb2

SHOWN_OF_A_DIGEST = 12
_KILOBYTE, _MEGABYTE = 1e3, 1e6
_IN_THE_TITLE = ("version", "name")
_LABELS = {
    "created_unix_seconds": "created",
    "size_bytes": "size",
    "head_size_bytes": "size of its head",
    "spec_digest": "spec's digest",
    "steps_since_parent": "steps since its parent",
    "staleness_p50": "staleness, median",
    "staleness_p90": "staleness, 90th percentile",
    "staleness_max": "staleness, largest",
    "prior_statistics": "speeds observed",
    "notes": "how it began",
    "policy": "kind of policy",
}


def version_facts(card: fleet_pb2.VersionCard) -> Facts:
    """Facts of a card, as JSON shows them."""
    details = card.details
    return {
        "version": card.version,
        "name": f"v{card.version}",
        "head_step": card.head_step,
        "parent": card.parent,
        "steps_since_parent": card.updates,
        "digest": card.digest,
        "spec_digest": card.spec_digest,
        "policy": details.policy,
        "origin": details.origin,
        "created_unix_seconds": card.created_unix_seconds,
        "size_bytes": card.size_bytes,
        "head_size_bytes": card.head_size_bytes,
        "kept": card.kept,
        "pinned": card.pinned,
        "updates": card.updates,
        "contributions": dict(sorted(card.contributions.items())),
        "rejections": dict(sorted(details.rejections.items())),
        "staleness_p50": card.staleness_p50,
        "staleness_p90": details.staleness_p90,
        "staleness_max": details.staleness_max,
        "aggregation": details.aggregation,
        "prior_statistics": details.prior_statistics,
        "notes": details.notes,
        "note": note_facts(card),
        "aliases": list(card.aliases),
        "privacy": privacy_facts(details),
        "score": score_facts(card.score),
    }


def note_facts(card: fleet_pb2.VersionCard) -> Facts | None:
    """An operator's note on a version, as JSON shows it; None without one."""
    return facts_of(card.note) if card.note.text else None


def score_facts(score: fleet_pb2.ReplayScore) -> Facts:
    """A version's score on the fixed replays, as JSON shows it."""
    return {
        **facts_of(score, without=("decisions",), or_none=("scored_unix_seconds",)),
        "state": score.state or "waiting",
        "over": {name: round(ratio, 6) for name, ratio in sorted(score.over.items())},
        "replays": [facts_of(entry) for entry in score.replays],
    }


def versions_table(versions: list[Facts]) -> FittedTable:
    """All versions, oldest first; what their files take in the title."""
    kept = [card for card in versions if card["kept"]]
    files = sum(card["size_bytes"] + card["head_size_bytes"] for card in kept)
    columns = (
        Column("version"),
        Column("over\ndrf"),
        Column("created\nUTC", 1, text=True),
        Column("head\nstep", 2),
        Column("parent", 3),
        Column("files", 4),
        Column("updates", 5),
        Column("from", 6, text=True),
        Column("stale", 7),
        Column("digest", 8, text=True),
        Column("[alias] note" if any(card["aliases"] for card in versions) else "note", words=True),
    )
    rows = [
        (
            card["name"],
            _over_drf(card["score"]),
            moment(card["created_unix_seconds"]),
            str(card["head_step"]),
            version_name(card["parent"]),
            (_size(card["size_bytes"] + card["head_size_bytes"]) if card["kept"] else "gone")
            + (", pinned" if card["pinned"] else ""),
            str(card["updates"]),
            _source(card),
            f"{card['staleness_p50']:g}",
            card["digest"][:SHOWN_OF_A_DIGEST],
            " ".join(filter(None, [card["aliases"] and f"[{', '.join(card['aliases'])}]", _noted(card)])),
        )
        for card in versions
    ]
    for_programs = [
        (
            row[0],
            f"{card['score']['over']['drf'] - 1.0:.6g}" if "drf" in card["score"]["over"] else NOTHING,
            whole_moment(card["created_unix_seconds"]),
            *row[3:5],
            str(card["size_bytes"] + card["head_size_bytes"] if card["kept"] else 0),
            row[6],
            row[7] if len(card["contributions"]) < 2 else NOTHING,
            row[8],
            card["digest"],
            _noted(card),
            card["score"]["state"],
            "yes" if card["pinned"] else "no",
            str(len(card["contributions"])),
            ", ".join(card["aliases"]),
        )
        for card, row in zip(versions, rows, strict=True)
    ]
    title = f"{len(kept)} of {len(versions)} versions kept, {_size(files)}"
    return FittedTable(title, columns, rows, for_programs=for_programs, program_headings=_OF_PROGRAMS)


_OF_PROGRAMS = (
    *("version", "over drf", "created UTC", "head step", "parent", "files", "updates", "from", "stale", "digest"),
    *("note", "score", "pinned", "clusters", "aliases"),
)


def _noted(card: Facts) -> str:
    return card["note"]["text"] if card["note"] else ""


def _source(card: Facts) -> str:
    contributions = card["contributions"]
    if len(contributions) > 1:
        return f"{len(contributions)} clusters"
    return next(iter(contributions), "") or card["origin"] or NOTHING


def _size(size_bytes: int) -> str:
    if size_bytes < _MEGABYTE:
        return f"{size_bytes / _KILOBYTE:.0f} kB"
    return f"{size_bytes / _MEGABYTE:.1f} MB"


def _over_drf(score: Facts) -> str:
    ratio = score["over"].get("drf")
    if ratio is None:
        return "no score" if score["state"] == "failed" else NOTHING
    return f"{ratio - 1.0:+.1%}"


def version_table(version: Facts) -> FactSheet:
    """One version, a line a fact."""
    rows: list[tuple[str, str]] = []
    for key, value in version.items():
        if key == "score":
            rows += _score_rows(value, kept=version["kept"])
        elif key not in _IN_THE_TITLE:
            rows.append((card_label(key), card_words(key, value)))
    return FactSheet(version["name"], rows)


def card_label(key: str) -> str:
    """A field of a card as people read it."""
    return _LABELS.get(key, name_in_words(key))


def card_words(key: str, value: Any) -> str:
    """What a field of a card says, in words."""
    if key.endswith("_unix_seconds"):
        return f"{moment(value)} UTC" if value else NOTHING
    if key.endswith("_bytes"):
        return f"{value:,} bytes" if value else NOTHING
    if key == "note":
        return note_words(value)
    if key == "parent":
        return version_name(value)
    if key == "signed_by":
        return value["problem"] or f"key {value['key']} of fleet {value['fleet']}"
    return in_words(value)


def note_words(note: Facts | None) -> str:
    """A note with who said it when."""
    return NOTHING if note is None else f"{note['text']} ({note['actor']}, {moment(note['unix_seconds'])} UTC)"


def _score_rows(score: Facts, *, kept: bool) -> list[tuple[str, str]]:
    if score["state"] == "failed":
        return [("score", f"no score: {score['reason']}")]
    if score["state"] != "scored" and not kept:
        return [("score", "none: its file went before its turn")]
    if score["state"] == "off":
        return [("score", "none: scores.enabled is off in the learner's configuration")]
    if score["state"] != "scored":
        return [("score", "none yet: it waits for its turn")]
    rows = [("scored on", f"{score['replay_set']} ({score['replay_set_digest'][:SHOWN_OF_A_DIGEST]})")]
    rows += [(f"average JCT over {name}", f"{ratio - 1.0:+.1%}") for name, ratio in score["over"].items()]
    for entry in score["replays"]:
        baselines = ", ".join(f"{name} {jct:.0f}" for name, jct in entry["baseline_jct_seconds"].items())
        rows.append((f"avg JCT, {entry['replay']}", f"{entry['avg_jct_seconds']:.0f} s ({baselines})"))
    return rows


def pin_table(facts: Facts) -> FittedTable:
    """A version that was pinned, or is no longer."""
    columns = (Column("version"), Column("pinned", text=True), Column("changed", words=True))
    pinned = "yes" if facts["pinned"] else "no"
    return FittedTable("", columns, [(facts["name"], pinned, change_words(facts["changed"]))])


def note_table(facts: Facts) -> FactSheet:
    """A version's note."""
    note, changed = note_words(facts["note"]), change_words(facts["changed"])
    return FactSheet("", [("version", facts["name"]), ("note", note), ("changed", changed)])


def alias_facts(alias: str, before: int, now: int) -> Facts:
    """An alias's versions, as JSON shows them; no version is null."""
    return {"alias": alias, "version": now or None, "from_version": before or None, "changed": before != now}


def alias_table(facts: Facts) -> FactSheet:
    """An alias and its version, with the one before."""
    rows = [("alias", facts["alias"]), ("version", version_name(facts["version"]))]
    if facts["from_version"] and facts["changed"]:
        rows.append(("before", version_name(facts["from_version"])))
    return FactSheet("", [*rows, ("changed", change_words(facts["changed"]))])
