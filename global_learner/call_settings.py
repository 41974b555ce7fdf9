"""Settings of calls: how much one caller may ask of the learner, so that it takes nothing from the others.

Rates are those of one cluster, so that a fleet may come back all at once; they are kept where clusters show
certificates. Operators have no rate, and calls in progress of their own that no cluster can take.
"""

from __future__ import annotations

from pydantic import Field

from policy_net.settings import Section


class CallSettings(Section):
    """How much one cluster may ask at a time, and how often. Agents that are refused come again after a while."""

    per_cluster: int = Field(4, ge=1, le=1000)
    """Calls of one cluster and kind (updates and heads; heartbeats; the registry's) in progress, the time included that
    it takes to read the answer. An agent makes one of a kind at a time."""
    waiting_per_cluster: int = Field(16, ge=0, le=1000)
    """Beyond that, so many of a cluster's calls of a kind wait for their turn; further ones are refused at once."""
    wait_seconds: float = Field(5.0, gt=0.0, le=600.0)
    """Longest wait for a turn, after which a call is refused; half of an agent's own patience."""
    arrival_seconds: float = Field(60.0, gt=0.0, le=3600.0)
    """A call whose message has not come whole so long after its turn is ended."""
    send_seconds: float = Field(60.0, gt=0.0, le=3600.0)
    """A call whose answer has not been read so long after it was given is ended. A head of 1.3 MB over a line of
    200 kbit/s takes as long."""
    keepalive_seconds: float = Field(60.0, ge=10.0, le=3600.0)
    """A connection over which nothing came for so long is asked for a sign of life, and closed if there is none within
    a third of that."""
    burst: int = Field(20, ge=1, le=10_000)
    """So many of each of the following calls may come at once, after a pause. These rates need certificates."""
    registrations_per_minute: float = Field(30.0, gt=0.0, le=60_000.0)
    """`Register` of one cluster. An agent registers once a start; each writes to the registry's disk."""
    reports_per_minute: float = Field(60.0, gt=0.0, le=60_000.0)
    """`ShareBeliefs` of one cluster; the same of `ShareEvidence` and of `ShareSketch`. An agent shares beliefs once a
    minute, in demonstrations every five seconds, and a sketch once a day."""
    fetches_per_minute: float = Field(60.0, gt=0.0, le=60_000.0)
    """`FetchPolicy` of one cluster. An agent fetches a version once."""
    renewals_per_minute: float = Field(6.0, gt=0.0, le=60_000.0)
    """`RenewCertificate` of one cluster. An agent renews once in weeks; each costs a signature."""
