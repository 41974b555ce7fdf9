"""Section of events: what happened in the fleet and what somebody should look at, each with its moment."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
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
        made_unix_seconds: when the learner told this. An alert on a lost cluster is of when it was heard last, another
            one of now.
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
    """What people did, one event for what one of them did to several things at once.

    Args:
        entries: of the audit log, those whose action is one of `ACTS`.
        rollouts_shown: numbers of the rollouts whose own events are there already.
        named: the reader may see names and reasons. Without them nothing is told of who may call the learner.
    """
    reset_why = {
        (line.subject, step): why for line in entries if line.action == _RESET_WHY for step, why in [_parted(line)]
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
        what, why = _ACTIONS[action](listed(sorted(subjects), 6), detail)
        if action == _RESET:
            why = reset_why.get((subjects[0], f"step {detail.rpartition('now step ')[2]}"), "")
        found.append(
            _event(
                unix_seconds, what if named else f"an operator {what}", actor if named else None, why if named else ""
            )
        )
    return found


def _parted(line: fleet_pb2.AuditEntry) -> tuple[str, str]:
    said, _, why = line.detail.partition(": ")
    return said, why


def _moved(words: str) -> Callable[[str, str], tuple[str, str]]:
    """Words of a move: `{0}` clusters, `{1}` the version that they had, `{2}` that they have; and why."""

    def said(clusters: str, detail: str) -> tuple[str, str]:
        move, _, why = detail.partition(": ")
        before, _, after = move.partition(" to ")
        return words.format(clusters, before, after), why

    return said


def _with_reason(words: str) -> Callable[[str, str], tuple[str, str]]:
    """Words of an act whose reason is all that the log has besides; `{0}` is to whom or what."""
    return lambda subject, detail: (words.format(subject), detail)


def _with_word(words: str) -> Callable[[str, str], tuple[str, str]]:
    """Words of an act of which the log has a cluster or an alias, and a reason behind it; `{1}` is that word."""

    def said(subject: str, detail: str) -> tuple[str, str]:
        word, _, why = detail.partition(": ")
        return words.format(subject, word), why

    return said


def _with_counts(words: str) -> Callable[[str, str], tuple[str, str]]:
    """Words of an act of which the log has more than people need here, and a reason behind them."""
    return lambda subject, detail: (words.format(subject), detail.partition(": ")[2])


_ROLLOUT = "rollout "
_RESET, _RESET_WHY = "head-reset", "head-reset-reason"
_OF_PEOPLE = frozenset({"operator-enrolled", "operator-revoked"})
_ACTIONS: Mapping[str, Callable[[str, str], tuple[str, str]]] = MappingProxyType(
    {
        "assigned": _moved("assigned {2} to {0}, in place of {1}"),
        "unassigned": _moved("took the assignment from {0}: {2} in place of {1}"),
        "rolled-back": _moved("took {0} back from {1} to {2}"),
        "pinned": _with_reason("pinned {0}"),
        "unpinned": _with_reason("unpinned {0}"),
        "published": _with_reason("published {0} by hand"),
        "restored": _with_reason("put a file of {0} back"),
        "noted": _with_reason("noted on {0}"),
        "note-removed": lambda version, _: (f"removed the note on {version}", ""),
        "alias-given": _with_word("gave {0} the alias {1}"),
        "alias-removed": _with_word("took the alias {1} from {0}"),
        _RESET: lambda version, detail: (f"reset the head to {version}, {detail.partition(' to ')[0]}", ""),
        _RESET_WHY: _with_reason("reset the head to {0}"),
        "released": _with_counts("let {0} out of quarantine"),
        "key-rotated": lambda role, _: (f"put a new {role} key in place", ""),
        "loss-accepted": _with_reason("accepted a loss: {0}"),
        "rollout-started": _with_counts("began {0}"),
        "rollout-promoted": _with_counts("promoted {0}"),
        "rollout-paused": _with_counts("paused {0}"),
        "rollout-resumed": _with_reason("resumed {0}"),
        "rollout-pinned": _with_word("pinned {1} in {0}"),
        "rollout-rolling-back": _with_counts("aborted {0}"),
        "invited": lambda cluster, _: (f"invited {cluster}", ""),
        "revoked": _with_counts("revoked {0}"),
        "forgotten": _with_counts("took {0} from the list of clusters"),
        "operator-enrolled": lambda name, _: (f"gave {name} a certificate", ""),
        "operator-revoked": _with_counts("revoked {0}"),
    }
)
"""By the audit log's word: what was done, as it stands behind the name of whoever did it, and why."""
ACTS = frozenset(_ACTIONS)
"""Words of the audit log for what people do; what agents and the learner do is told elsewhere on the page."""


def _event(unix_seconds: float, text: str, actor: str | None = None, why: str = "") -> dict[str, Any]:
    return {"unix_seconds": unix_seconds, "kind": _EVENT, "text": text, "actor": actor, "why": why}


def _published(card: fleet_pb2.VersionCard) -> str:
    if not card.parent:
        return f"v{card.version} is there: {card.details.origin or 'the first version'}"
    learned = f"after {card.updates} updates" if card.updates else "without an update"
    return f"v{card.version} published, {learned}"
