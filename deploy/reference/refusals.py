"""The page of what is refused, read from the words that the programs count by; each says what it means."""

from __future__ import annotations

import ast
import inspect
import textwrap
from enum import StrEnum
from itertools import pairwise

from global_learner.errors import (
    BeliefRefusal,
    CallRefusal,
    EnrollmentRefusal,
    EvidenceRefusal,
    IdentityRefusal,
    Rejection,
)
from global_learner.service.http_server import HttpRefusal

_HEAD = """# What is refused

Whatever cannot be taken is refused in one line that says what, where and what to do, changes nothing, and is counted
by a word of a fixed set. Callers hear what was wrong with their request, never what failed inside: that is in the
learner's log.

- **Before a method is reached** a call must be readable, uncompressed, and within its method's size (a gradient and 1
  MiB for `Push`, `Reply` and `ShareBeliefs`, 1 MiB for others, 32 KiB to enroll). Connections beyond
  four for each of `ingest.max_clusters` are closed at once, those without a handshake after 20 s. From three quarters
  of that on, connections that never made a call are closed, of the address that has most of them (on Linux).
- **Each caller has a share.** Updates and heads, heartbeats, the registry's calls, polls and operators' calls wait in
  lanes of their own. In each a cluster has four calls in progress and a queue behind them. A call
  counts until its answer has been read, or a minute is over. `Register`, `ShareBeliefs`, `FetchPolicy`
  and `RenewCertificate` have a rate for each cluster. Without certificates a caller is a connection.
- **Updates that change nothing**, duplicates and rejections, are answered at once up to the rate of updates
  (`ingest.updates_per_second`, 512 at once), beyond it after half a second, as are `too-fast` and
  `too-often`.
- **Pages** of the HTTP port take heads of up to 16 KiB; a longer one is answered with 431 (414 for the first line).
- **`/readyz`** says 503 while callers were refused in the last half minute though they had not had their share, while
  the disk is full, and once the learner ends.
- **In the log** the first of a caller's refused calls for a reason stands in full, those within ten seconds as one
  line (`calls-refused`, `updates-answered`). The counters have every one.
- **Handshakes** that fail never become calls, so no counter has them.
- **Clusters** whose updates keep being faulty are [quarantined](aggregation.md#quarantine).
- **Configuration files** are checked whole before anything starts: unknown or repeated keys, values of another type
  or out of range, anchors, tags, and files beyond 1 MiB are errors in one line, with exit code 2.
- **Agents** go on with the policy that they have. An answer that cannot be used counts as `unusable` in
  `fedl2_agent_learner_calls_total`, a version that cannot act in `fedl2_agent_rejected_versions_total`; a learner
  that hangs is left at `learner.retry.call_seconds`.
- **Elastic jobs**: [what users get wrong](elastic-operations.md#what-users-get-wrong).
- **State directories** are checked when a program starts: what is damaged is refused (exit code 2), or mended with a
  warning where that loses nothing that was acknowledged. A changed byte in a value of the registry that no index
  covers is not noticed.

This page is made from the programs by `make reference`.
"""

_WORDS: tuple[tuple[str, str, type[StrEnum]], ...] = (
    ("Calls", "fedl2_learner_refusals_total", CallRefusal),
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
