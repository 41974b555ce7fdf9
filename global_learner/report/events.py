"""Section of events: what happened in the fleet and what somebody should look at, each with its moment."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from global_learner.report.words import listed
from policy_net.exchange.generated import fleet_pb2

MOST_EVENTS = 400
"""The newest ones; `policyctl audit` has everything."""
_ALERT, _EVENT = "alert", "event"


def fleet_events(
    clusters: Sequence[Mapping[str, Any]],
    cards: Sequence[fleet_pb2.VersionCard],
    rollouts: Sequence[Mapping[str, Any]],
    made_unix_seconds: float,
    acts: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Publications, what rollouts and operators did, and alerts: bad verdicts, clusters that need somebody.

    Args:
        clusters: rows of the fleet.
        rollouts: cards of the newest rollouts.
        made_unix_seconds: moment of the learner's answer, and of alerts; of a lost cluster, when it was heard last.
        acts: of operators (`act_events`).
    """
    found = [_event(card.created_unix_seconds, _published(card)) for card in cards]
    for rollout in rollouts:
        for entry in rollout["history"]:
            said = f"rollout {rollout['number']} of v{rollout['version']}: {entry['text']}"
            event = _event(entry["unix_seconds"], said, entry["actor"], entry["why"])
            found.append({**event, "kind": _ALERT if entry["alert"] else _EVENT})
    for row in clusters:
        if row["state"]["tone"] == "bad":
            silent = row["seconds_since_heard"] if row["state"]["word"] == "lost" else 0.0
            said = f"{row['cluster']}: {row['state']['detail']}"
            found.append({**_event(made_unix_seconds - silent, said), "kind": _ALERT})
    found.extend(map(dict, acts))
    found.sort(key=lambda entry: (-entry["unix_seconds"], entry["kind"]))
    return {"entries": found[:MOST_EVENTS], "left_out": max(len(found) - MOST_EVENTS, 0)}


def act_events(
    entries: Sequence[fleet_pb2.AuditEntry], rollouts_shown: Collection[int], named: bool
) -> list[dict[str, Any]]:
    """Acts of people, one event for what one of them did to several things at once.

    Args:
        entries: of the audit log, those whose action is one of `ACTS`.
        rollouts_shown: numbers of the rollouts whose own events are there already.
        named: the reader may see names and reasons; others also read nothing of who may call the learner.
    """
    reset_why = {
        (line.subject, step): why
        for line in entries
        if line.action == _RESET_WHY
        for step, _, why in [line.detail.partition(": ")]
    }
    together: dict[tuple[float, str, str, str], list[str]] = {}
    for line in entries:
        if line.action == _RESET_WHY or (not named and line.action in _OF_PEOPLE):
            continue
        if line.subject.startswith(_ROLLOUT) and line.subject.removeprefix(_ROLLOUT) in map(str, rollouts_shown):
            continue
        together.setdefault((line.unix_seconds, line.actor, line.action, line.detail), []).append(line.subject)
    found = []
    for (unix_seconds, actor, action, detail), subjects in together.items():
        words, reason = _ACTIONS[action]
        said, _, rest = detail.partition(": ")
        before, _, after = said.partition(" to ")
        what = words.format(listed(sorted(subjects), 6), said, before, after)
        why = {_ALL: detail, _REST: rest, _NOTHING: ""}[reason]
        if action == _RESET:
            why = reset_why.get((subjects[0], f"step {detail.rpartition('now step ')[2]}"), "")
        found.append(_event(unix_seconds, what, actor, why) if named else _event(unix_seconds, f"an operator {what}"))
    return found


_ROLLOUT = "rollout "
_RESET, _RESET_WHY = "head-reset", "head-reset-reason"
_OF_PEOPLE = frozenset({"operator-enrolled", "operator-revoked"})
_ALL, _REST, _NOTHING = "all", "rest", "nothing"
"""Part of a line's detail that is the reason: all of it, what follows the first colon, or none."""
_ACTIONS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "assigned": ("assigned {3} to {0}, in place of {2}", _REST),
        "unassigned": ("took the assignment from {0}: {3} in place of {2}", _REST),
        "rolled-back": ("took {0} back from {2} to {3}", _REST),
        "pinned": ("pinned {0}", _ALL),
        "unpinned": ("unpinned {0}", _ALL),
        "published": ("published {0} by hand", _ALL),
        "restored": ("put a file of {0} back", _ALL),
        "noted": ("noted on {0}", _ALL),
        "note-removed": ("removed the note on {0}", _NOTHING),
        "alias-given": ("gave {0} the alias {1}", _REST),
        "alias-removed": ("took the alias {1} from {0}", _REST),
        _RESET: ("reset the head to {0}, {2}", _NOTHING),
        _RESET_WHY: ("reset the head to {0}", _ALL),
        "released": ("let {0} out of quarantine", _REST),
        "key-rotated": ("put a new {0} key in place", _NOTHING),
        "loss-accepted": ("accepted a loss: {0}", _ALL),
        "rollout-started": ("began {0}", _REST),
        "rollout-promoted": ("promoted {0}", _REST),
        "rollout-paused": ("paused {0}", _REST),
        "rollout-resumed": ("resumed {0}", _ALL),
        "rollout-pinned": ("pinned {1} in {0}", _REST),
        "rollout-rolling-back": ("aborted {0}", _REST),
        "invited": ("invited {0}", _NOTHING),
        "revoked": ("revoked {0}", _REST),
        "forgotten": ("took {0} from the list of clusters", _REST),
        "operator-enrolled": ("gave {0} a certificate", _NOTHING),
        "operator-revoked": ("revoked {0}", _REST),
    }
)
"""By the audit log's word: what was done, as it stands behind the name of whoever did it, and which part of the detail
is the reason. {0} is to whom or what, {1} the detail before the first colon, {2} and {3} what stands there before and
after `to`."""
ACTS = frozenset(_ACTIONS)
"""Actions of people in the audit log; those of agents and the learner stand elsewhere on the page."""


def _event(unix_seconds: float, text: str, actor: str | None = None, why: str = "") -> dict[str, Any]:
    return {"unix_seconds": unix_seconds, "kind": _EVENT, "text": text, "actor": actor, "why": why}


def _published(card: fleet_pb2.VersionCard) -> str:
    if not card.parent:
        return f"v{card.version} is there: {card.details.origin or 'the first version'}"
    learned = f"after {card.updates} updates" if card.updates else "without an update"
    return f"v{card.version} published, {learned}"
