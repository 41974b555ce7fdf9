"""Versions that the learner above assigns to a region: fetched, checked, entered here, and assigned to its clusters.

A region's versions have numbers of its own, since its v1 is older than the first that comes from above; the card says
which one it was there. The file is the very same, and so is its digest. The region's key signs it for its clusters.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from global_learner.learner import Learner
from global_learner.registry.cards import VersionCard, VersionDetails, VersionOrigin, kind_of
from global_learner.registry.registry_thread import RegistryThread
from global_learner.storage.audit import Order
from policy_net.errors import LearnerRefused, PolicyFileError, VersionRejected
from policy_net.exchange.fleet_client import FleetClient
from policy_net.exchange.fleet_trust import FleetTrust
from policy_net.exchange.policy_file import PolicyFile, digest_of, parse_policy_file
from policy_net.exchange.wire import FetchedPolicy

_log = structlog.get_logger()

_ACTOR = "upstream"
"""In the audit log: the learner above."""


class VersionsFromAbove:
    """Follows what the learner above assigns.

    Args:
        next_step: makes a step of the head that no other version was entered at.

    Attributes:
        above: the number, there, of what this region's clusters act on; 0 while nothing was assigned.
        refused: the number and the reason of what was assigned and is not taken; 0 and empty: nothing.
    """

    def __init__(
        self,
        learner: Learner,
        registry: RegistryThread,
        client: FleetClient,
        trust: FleetTrust,
        next_step: Callable[[], Awaitable[int]],
        clock: Callable[[], float],
    ) -> None:
        self.above = 0
        self.refused = (0, "")
        self._here = 0
        self._learner = learner
        self._registry = registry
        self._client = client
        self._trust = trust
        self._next_step = next_step
        self._clock = clock

    async def follow(self, assigned: int) -> None:
        """Let the region's clusters act on what the learner above assigned to the region.

        Raises:
            LearnerUnreachable, LearnerRefused: it cannot be had, or is not to be trusted; all stays as it is.
        """
        if assigned not in (0, self.above):
            try:
                self._here = await self._entered(assigned)
            except LearnerRefused as error:
                self.refused = (assigned, str(error))
                raise
            self.above, self.refused = assigned, (0, "")
        if self._here and any(
            entry.assigned_version != self._here and not entry.held and not entry.rollout
            for entry in self._learner.fleet.entries()
        ):
            registry = self._registry.registry
            brought = await self._registry.call(registry.bring, self._here, Order(_ACTOR, self._clock()))
            self._learner.fleet.on_assigned(brought)

    async def _entered(self, assigned: int) -> int:
        """The number here of a version from above, which is entered if it was not yet."""
        version = await asyncio.to_thread(self._client.fetch_policy, assigned)
        try:
            policy = self._checked(version)
        except (PolicyFileError, VersionRejected) as error:
            raise LearnerRefused(f"of the learner above: {error}") from error
        except OSError as error:
            raise LearnerRefused(f"the keys of the learner above cannot be kept ({error}); mend the disk") from error
        known = await self._registry.call(self._registry.registry.versions)
        for card in known:
            if card.digest == version.digest and card.kept:
                return card.version
        step = await self._next_step()
        card = await self._registry.call(self._enter, version, policy, step)
        self._learner.maintenance.announce(card)
        return card.version

    def _checked(self, version: FetchedPolicy) -> PolicyFile:
        """The policy of a version that the fleet above signed, for this region and now.

        Raises:
            VersionRejected, PolicyFileError: it cannot be taken.
            OSError: the keys that are trusted from now on cannot be kept.
        """
        name, spec = f"v{version.version}", self._learner.spec
        if version.signed is None:
            raise VersionRejected(f"{name} comes without a signature")
        self._trust.check(version)
        if digest_of(version.data) != version.digest:
            raise VersionRejected(f"{name} has another content than was signed")
        policy = parse_policy_file(version.data, name)
        if policy.spec.digest != spec.digest:
            own = spec.digest[:12]
            raise VersionRejected(f"{name} is of spec {policy.spec.digest[:12]}, and this region's is {own}")
        return policy

    def _enter(self, version: FetchedPolicy, policy: PolicyFile, step: int) -> VersionCard:
        details = VersionDetails(
            origin=VersionOrigin.ABOVE.value,
            policy=kind_of(policy),
            prior_statistics=len(policy.priors),
            notes=f"v{version.version} of the learner above",
        )
        card = self._registry.registry.publish(policy, step, self._clock(), {}, 0.0, assign_all=False, details=details)
        _log.info("version-from-above", version=card.version, above=version.version, digest=card.digest[:12])
        if card.digest != version.digest:
            raise LearnerRefused(
                f"v{version.version} of the learner above was made by a program that writes it otherwise"
            )
        return card
