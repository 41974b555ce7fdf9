"""The page of what is refused, read from the words that the programs count by; each says what it means."""

from __future__ import annotations

import ast
import inspect
import textwrap
from enum import StrEnum
from itertools import pairwise

from global_learner.enrollment.types import EnrollmentRefusal
from global_learner.errors import BeliefRefusal, EvidenceRefusal, IdentityRefusal, Refusal, Rejection
from global_learner.service.http_server import HttpRefusal

_HEAD = """# What is refused

Whatever cannot be taken is refused in one line that says what, where and what to do, changes nothing, and is counted
by a word of a fixed set. Callers are told what was wrong with their request, never what failed inside: that is in the
learner's log. A good caller beside a bad one notices nothing.

- **Before a method is reached** a call must be readable, within its method's size (a gradient and 1 MiB for `Push`,
  `Reply` and `ShareBeliefs`, 1 MiB for all others, 32 KiB to enroll), and uncompressed. Connections beyond
  `ingest.max_connections` are closed at once, those that make no handshake after 20 s. From three quarters of that on,
  connections that never made a call are closed, of the address that has most of them (on Linux).
- **No caller takes another's room.** Calls have lanes: updates and heads, heartbeats, the registry's, polls, and one
  for operators that no cluster can enter. In each a cluster has `calls.per_cluster` calls in progress and a queue of
  its own behind them; free seats go round. A call keeps its seat until its answer has been read, or
  `calls.send_seconds` are over, and its message is not even taken from the connection before it has one. `Register`,
  `ShareBeliefs`, `FetchPolicy` and `RenewCertificate` have a rate for each cluster. Without certificates a caller is a
  connection.
- **Pages** of the HTTP port are for heads (the request's line and its headers) of up to 16 KiB, cookies included. A
  longer one is answered with 431 (414 where the first line alone is too long) and its connection closed; nothing of
  it is kept.
- **`/readyz`** says 503 and why while callers were refused in the last half minute though they had not had their share:
  then there is too little room for all of them. That one caller asks too much leaves it at 200. It also says 503 while
  updates are refused because the disk is full, and once the learner ends.
- **In the log** the first of one caller's refused calls for a reason stands in full, those that follow within ten
  seconds as one line with their number (`calls-refused`). So it is with updates that change nothing, duplicates and
  rejections, once a cluster gets more of them than it may send updates (`updates-answered`). The counters have every
  one.
- **Updates that change nothing**, duplicates and rejections, are answered at once up to the rate of updates
  (`ingest.updates_per_second`, and `ingest.burst_updates` after a silence), beyond it after half a second, as are calls
  that are refused as `too-fast` and `too-often`. Without a rate, as on loopback unless it is set, none waits.
- **Handshakes** that fail (no certificate, another authority's, an expired one, plain text) never become calls, so no
  counter has them; the caller sees a connection that fails.
- **Clusters** whose updates keep being faulty are [quarantined](aggregation.md).
- **Configuration files** are checked whole before anything starts: an unknown key, a key given twice, a value of
  another type or out of range, anchors, tags, and files beyond 1 MiB are errors in one line, with exit code 2.
  Commands end with exit code 2 on bad usage or input, 1 when something failed, 3 when the learner does not answer.

- **Agents** go on with the policy that they have. An answer that cannot be used (weights that are not finite, a head
  that goes back, another version than was asked for) counts as `unusable` in `fedl2_agent_learner_calls_total`, a
  version that cannot act in `fedl2_agent_rejected_versions_total`; a learner that hangs is left at
  `learner.retry.call_seconds`.
- **Elastic jobs**: [what users get wrong](elastic-operations.md#what-users-get-wrong). Whatever a member or a scheduler
  says, a job's coordinator goes on.
- **State directories** are checked when a program starts: what is damaged is named and refused (exit code 2), or mended
  where that loses nothing that was acknowledged, with a warning. A program never begins anew over what is left of an
  earlier life. A changed byte in a value of the registry that no index covers is not noticed.

This page is made from the programs by `make reference`.
"""

_WORDS: tuple[tuple[str, str, type[StrEnum]], ...] = (
    ("Calls", "fedl2_learner_refusals_total", Refusal),
    ("Updates", "fedl2_learner_rejections_total", Rejection),
    ("Identities", "fedl2_learner_identity_refusals_total", IdentityRefusal),
    ("Enrollments", "fedl2_learner_enrollments_total", EnrollmentRefusal),
    ("Reports of speeds", "fedl2_learner_belief_reports_total", BeliefRefusal),
    ("Evidence of rollouts", "fedl2_learner_rollout_evidence_total", EvidenceRefusal),
    ("Pages of the HTTP port", "fedl2_learner_http_refusals_total", HttpRefusal),
)


def refusals_page() -> str:
    """The whole page, in Markdown."""
    parts = [_HEAD]
    for title, metric, words in _WORDS:
        parts.append(f"\n## {title}\n\nCounted by `{metric}`.\n\n| word | why |\n|---|---|\n")
        meanings = _meanings(words)
        parts += [f"| `{word.value}` | {meanings.get(word.name, '')} |\n" for word in words]
    return "".join(parts)


def _meanings(words: type[StrEnum]) -> dict[str, str]:
    """The strings that stand under an enumeration's members in its source."""
    body = ast.parse(textwrap.dedent(inspect.getsource(words))).body[0]
    if not isinstance(body, ast.ClassDef):
        return {}
    return {
        target.id: " ".join(str(text.value.value).split())
        for member, text in pairwise(body.body)
        if isinstance(member, ast.Assign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
        for target in member.targets
        if isinstance(target, ast.Name)
    }
