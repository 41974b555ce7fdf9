"""Observation of the fleet, as a rollout is told of it: who joined, left, is away, and which version each one acts on.

From what heartbeats say and what the rollout knows follow the events that it has not been told yet; where nothing
changed there are none. No I/O and no clock: silences are handed in.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, model_validator

from global_learner.rollout.events import Away, Joined, Left, Pin, Seen, What
from global_learner.rollout.queries import Address
from global_learner.rollout.state import Member, Phase, Role, RolloutState
from policy_net.exchange.rollout_duty import DutyRole
from policy_net.settings import Section

MOST_EVENTS = 256
"""At once; the others follow when the fleet is looked at next."""


class PrometheusServer(Section):
    """A server whose numbers plans may use."""

    address: Address
    """As plans write it, such as http://prometheus.monitoring:9090; with a path if it has one."""
    token_file: Path | None = None
    """Holds the token that is sent as `Authorization: Bearer`; read anew for each question."""
    ca_file: Path | None = None
    """With https: whose certificates are believed (PEM); the system's unless given."""


class RolloutSettings(Section):
    """How the learner runs rollouts; what one of them does stands in its plan."""

    period_seconds: float = Field(5.0, ge=0.05, le=3600.0)
    """How often a running rollout is looked at; a fail goes to every agent with its next heartbeat behind that."""
    away_seconds: float = Field(180.0, ge=1.0, le=86_400.0)
    """Silence after which a cluster counts as away: it holds nobody up, and learns on its return what it is to do."""
    prometheus: tuple[PrometheusServer, ...] = Field((), max_length=32)
    """The servers that the queries of plans may ask. None unless named here: a plan sends the learner nowhere else."""
    query_deadline_seconds: float = Field(10.0, ge=0.1, le=600.0)
    """Longest time that a query may take; then it had no answer."""

    def below(self, folder: Path) -> RolloutSettings:
        """The settings with files that do not depend on the working directory."""
        servers = []
        for server in self.prometheus:
            files = {"token_file": server.token_file, "ca_file": server.ca_file}
            servers.append(
                server.model_copy(update={name: folder / file for name, file in files.items() if file is not None})
            )
        return self.model_copy(update={"prometheus": tuple(servers)})

    @model_validator(mode="after")
    def _each_once(self) -> RolloutSettings:
        addresses = [server.address for server in self.prometheus]
        for address in addresses:
            if addresses.count(address) > 1:
                raise ValueError(f"prometheus names {address} {addresses.count(address)} times: name it once")
        return self


@dataclass(frozen=True, slots=True)
class Heard:
    """A registered cluster as the learner knows it now.

    Attributes:
        assigned: the version that it was told to act on.
        held: an operator told it so.
        silent_seconds: since it was heard, or since the learner began.
        acting: the version that it says it acts on; None: it has said nothing since it was told something else.
        rollout: whose duty it says that it does; 0: none.
        duty: as it does it.
    """

    assigned: int
    held: bool = False
    silent_seconds: float = 0.0
    acting: int | None = None
    rollout: int = 0
    duty: str = ""


def observed(state: RolloutState, fleet: Mapping[str, Heard], gone: Collection[str], away_seconds: float) -> list[What]:
    """The events that a rollout is still to be told.

    Args:
        gone: clusters that were turned out.
    """
    if state.phase.over:
        return []
    whats: list[What] = []
    known = {member.cluster: member for member in state.members}
    for cluster, heard in sorted(fleet.items()):
        if len(whats) >= MOST_EVENTS:
            break
        member = known.get(cluster)
        if cluster in gone:
            whats += [Left(cluster=cluster)] if member is not None else []
        elif member is None:
            # Who comes in the middle of a rollback has nothing to go back from.
            if state.phase is not Phase.ROLLING_BACK:
                whats.append(Joined(cluster=cluster, incumbent=heard.assigned))
                whats += [Pin(cluster=cluster)] if heard.held else []
                whats += [Away(cluster=cluster)] if heard.silent_seconds > away_seconds else []
        elif heard.silent_seconds > away_seconds:
            whats += [] if member.away else [Away(cluster=cluster)]
        else:
            whats += _seen(state, member, heard)
    return whats


def _seen(state: RolloutState, member: Member, heard: Heard) -> list[What]:
    if heard.acting is None:
        return []
    acting = heard.acting or member.incumbent  # on none of the fleet's, so not on the candidate
    if heard.rollout == state.number and heard.duty == DutyRole.ALTERNATING:
        acting = state.candidate  # it may, at any time: one event, and not one a block
    if member.role is Role.PINNED and not member.away:
        return []
    return [Seen(cluster=member.cluster, acting=acting)] if member.away or acting != member.acting else []
