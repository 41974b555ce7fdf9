"""A deleted TrainingJob that asked for a last checkpoint, with an end of the agent or a fault at any write on its way.

It goes, with its checkpoint or with a told reason; that there is none is never told of one that was written. What was
told in an Event and not sent yet is gone with the process. The cluster pretends, the controller is the real one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import pytest
from apiserver.asked import Fault
from fault_table import STRIKES, Once, Strike
from simulated_training import Killed
from test_training_writes import BIG, FIRST, LASTS_SECONDS, NOTHING, POLL_SECONDS, UID, Cluster, check

from cluster_agent.backends.kubernetes.training.story.statuses import Granted
from cluster_agent.kubernetes.errors import ApiUnanswered
from elastic_runtime.protocol.plan import JobPhase
from policy_net.domain import Allocation

LAST_CHECKPOINT_SECONDS = 300.0
"""The default of the setting."""
GONE_SECONDS = 120.0
"""Two decisions after its deletion, or after the end of what went wrong."""
NONE = "no last checkpoint"


class Site(Cluster):
    """A job that asks for a last checkpoint; what is lost of it, and what was told of that.

    Attributes:
        sent: Events that were sent, and not only told.
        last_words: of its status, when it went.
        has_trained: once, whatever became of it.
        is_quick: its tasks are gone before anybody sees that it is suspended.
        nobody_knows: all pods went before anybody had noted what its coordinator said last.
    """

    def __init__(self) -> None:
        self.sent, self.last_words, self._was_lost = 0, "", False
        self.has_trained = self.nobody_knows = self.is_quick = False
        super().__init__()
        self.change_spec(checkpoints={"claimName": "shared", "lastOnDelete": True})

    @property
    def is_lost(self) -> bool:
        """Whether nobody can save any more what it has trained, or could not when it went."""
        brain = self.brain
        return self._was_lost if brain is None else brain.unsaved and brain.phase is not JobPhase.FINISHED

    def start_agent(self) -> None:
        del self.told_events[self.sent :]
        super().start_agent()

    def live(self) -> None:
        super().live()
        if self.is_quick and self.brain is not None and self.brain.phase is JobPhase.SUSPENDED:
            super().live()
        self.has_trained = self.has_trained or (self.brain is not None and self.brain.unsaved)

    def poll(self) -> None:
        self.sent = len(self.told_events)
        super().poll()

    def vanish(self, name: str) -> None:
        self._was_lost = self.is_lost
        super().vanish(name)

    def end(self, name: str, code: int, words: str = "") -> None:
        self._was_lost = self.is_lost
        super().end(name, code, words)

    def collect(self) -> None:
        self._was_lost, self.last_words = self.is_lost, str(self.status.get("message"))
        super().collect()

    def lose_pods(self) -> None:
        """Whoever collects garbage deletes them before their owner; each has its time to end."""
        self.nobody_knows = self.status.get("phase") not in ("Queued", "Suspended", "Complete")
        for name in [name for name in ["coordinator", *self.tasks()] if self.exists(name)]:
            pod = self.task(name)
            self.put({**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "now"}})
        for _ in range(3):
            self.live()


class Departure:
    """Plays a job up to a moment, and then its way out; a fault may strike at one write.

    Args:
        kills: the agent ends there; else, with `restart`, after the look in which it struck.
        pods_go: before another one follows it, all pods are deleted.
    """

    def __init__(
        self, once: Once | None = None, *, kills: bool = False, restart: bool = False, pods_go: bool = False
    ) -> None:
        self.once, self.kills, self.restart, self.pods_go = once, kills, restart, pods_go
        self.site, self.seen, self.struck_at = Site(), list[tuple[str, str]](), -1.0
        self.decisions = 0

    def decide(self, size: Allocation) -> None:
        self.decisions += 1
        self.site.controller.grant(UID, Granted(size, f"d{self.decisions}", "v1", "", 7, 1e9))

    def poll(self) -> None:
        self.site.now += POLL_SECONDS
        self.site.live()
        self.site.poll()
        check(self.site)

    def until(self, holds: Callable[[], object]) -> None:
        for _ in range(60):
            if holds():
                return
            self.poll()
        raise AssertionError(f"it does not come to it: {self.site.status}, {self.site.brain}")

    def watch(self) -> None:
        """From now on writes count."""
        after = self.once is not None and self.once.strike.comes_after
        self.site.before_write, self.site.after_write = (self.note, self.strike) if after else (self.both, NOTHING)

    def both(self, verb: str, path: str) -> None:
        self.note(verb, path)
        self.strike(verb, path)

    def note(self, verb: str, path: str) -> None:
        self.seen.append((verb, path))

    def strike(self, verb: str, path: str) -> None:
        once, is_new = self.once, self.struck_at < 0.0
        if once is None or (self.kills and not is_new):
            return
        is_hit = once.hits(len(self.seen) - 1, verb, path)
        is_call = verb in ("ask", "report") and is_new and once.struck is not None
        if not (is_hit or is_call):
            return
        self.struck_at = self.site.now if is_new else self.struck_at
        if self.kills:
            raise Killed
        raise ApiUnanswered(f"{verb} {path}: no answer") if is_call else once.strike.error(f"{verb} {path}")

    def leave(self) -> None:
        """It is deleted, and looked after until it is gone."""
        site, since = self.site, self.site.now
        if not site.is_gone:
            site.delete_job()
        while not site.is_gone:
            was_struck = self.struck_at
            self.poll()
            if self.struck_at != was_struck:
                since = self.struck_at
                if self.restart:
                    site.start_agent()
                if self.pods_go and not site.is_gone:
                    site.lose_pods()
            if self.once is not None and self.struck_at >= 0.0 and not self.once.strike.ends_alone and not self.kills:
                since = self.struck_at + LASTS_SECONDS
                self.once.is_over = site.now >= since
            assert site.now - since <= GONE_SECONDS, f"it is still there: {site.status}, {site.brain}, {site.tasks()}"
        reported = any(reason == "NoLastCheckpoint" for reason, _ in site.told_events) or NONE in site.last_words
        line = f"lost: {site.is_lost}, told: {site.told_events}, {site.last_words!r}"
        assert reported or not site.is_lost, line
        assert not reported or site.is_lost or site.nobody_knows or not site.has_trained, line


def waits(life: Departure) -> None:
    life.site.others = life.site.room_asks
    life.poll()
    life.decide(FIRST)
    life.poll()


def starts(life: Departure) -> None:
    life.site.images = lambda task: not task.startswith("worker")
    life.poll()
    life.decide(FIRST)
    life.until(life.site.tasks)


def trains(life: Departure) -> None:
    life.poll()
    life.decide(FIRST)
    life.until(lambda: life.site.status.get("phase") == "Running")


def grows(life: Departure) -> None:
    trains(life)
    life.decide(BIG)
    life.until(lambda: life.site.brain is not None and life.site.brain.phase is JobPhase.RESIZING)


def is_being_suspended(life: Departure) -> None:
    trains(life)
    life.site.change_spec(suspend=True)
    life.until(lambda: life.site.brain is not None and life.site.brain.phase is JobPhase.SUSPENDING)


def is_suspended(life: Departure) -> None:
    is_being_suspended(life)
    life.until(lambda: life.site.status.get("phase") == "Suspended" and not life.site.exists("coordinator"))


def goes_on(life: Departure) -> None:
    is_suspended(life)
    life.site.change_spec(suspend=False)
    life.until(lambda: life.site.exists("coordinator"))
    life.until(lambda: life.site.status.get("phase") == "Running")


def finishes(life: Departure) -> None:
    trains(life)
    assert life.site.brain is not None
    life.site.brain.phase = JobPhase.FINISHED
    life.site.keep()


def has_lost_its_coordinator(life: Departure) -> None:
    trains(life)
    life.site.vanish("coordinator")


MOMENTS: Mapping[str, Callable[[Departure], None]] = MappingProxyType(
    {
        made.__name__.replace("_", " "): made
        for made in (
            waits,
            starts,
            trains,
            grows,
            is_being_suspended,
            is_suspended,
            goes_on,
            finishes,
            has_lost_its_coordinator,
        )
    }
)
KILLS = {"before": Strike(Fault(500)), "after": Strike(Fault(cut=True))}


def deleted(moment: str, departure: Departure) -> Departure:
    MOMENTS[moment](departure)
    departure.watch()
    departure.leave()
    return departure


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_deleted_job_goes_and_what_is_lost_is_told(moment: str) -> None:
    life = deleted(moment, Departure())
    reasons = {reason for reason, _ in life.site.told_events}
    if moment in ("trains", "grows", "is being suspended", "goes on"):
        assert "LastCheckpoint" in reasons
    assert ("NoLastCheckpoint" in reasons) == (moment == "has lost its coordinator")


@pytest.mark.parametrize("pods_go", [False, True], ids=["pods-stay", "pods-go"])
@pytest.mark.parametrize("when", KILLS)
@pytest.mark.parametrize("moment", MOMENTS)
def test_an_agent_that_is_killed_on_the_way_is_followed_by_one_that_lets_it_go(
    moment: str, when: str, pods_go: bool
) -> None:
    for number in range(len(deleted(moment, Departure()).seen)):
        life = deleted(moment, Departure(Once(number, KILLS[when]), kills=True, pods_go=pods_go))
        assert life.struck_at >= 0.0 or when == "after", number


@pytest.mark.parametrize("name", STRIKES)
def test_a_fault_at_any_write_on_the_way_is_survived(name: str) -> None:
    for moment in ("trains", "is being suspended", "has lost its coordinator"):
        for number, (verb, _) in enumerate(deleted(moment, Departure()).seen):
            if verb in STRIKES[name].verbs or verb in ("ask", "report"):
                deleted(moment, Departure(Once(number, STRIKES[name]), restart=bool(number % 2)))


def lives(departure: Departure) -> None:
    """All that such a job does before anybody deletes it; no more than that once the agent was killed."""
    site = departure.site
    stages: tuple[tuple[Callable[[], None], Callable[[], object]], ...] = (
        (lambda: departure.decide(FIRST), lambda: site.status.get("phase") == "Running"),
        (lambda: departure.decide(BIG), lambda: site.brain is not None and len(site.brain.of("worker", "member")) == 3),
        (lambda: site.change_spec(suspend=True), lambda: site.status.get("phase") == "Suspended"),
        (lambda: None, lambda: not site.tasks() and not site.exists("coordinator")),
        (lambda: site.change_spec(suspend=False), lambda: site.status.get("phase") == "Running"),
        (lambda: finishes_now(site), lambda: site.status.get("phase") == "Complete"),
    )
    departure.poll()
    for begin, holds in stages:
        begin()
        departure.until(lambda holds=holds: holds() or departure.struck_at >= 0.0)  # type: ignore[misc]
        if departure.struck_at >= 0.0:
            return


def finishes_now(site: Site) -> None:
    assert site.brain is not None
    site.brain.phase = JobPhase.FINISHED
    site.keep()


@pytest.mark.parametrize("is_quick", [False, True], ids=["slow", "quick"])
@pytest.mark.parametrize("pods_go", [False, True], ids=["pods-stay", "pods-go"])
@pytest.mark.parametrize("when", KILLS)
def test_a_job_that_is_deleted_while_no_agent_looks_is_let_go_by_the_next_one(
    when: str, pods_go: bool, is_quick: bool
) -> None:
    undisturbed = Departure()
    undisturbed.site.is_quick = is_quick
    undisturbed.watch()
    lives(undisturbed)
    for number in range(len(undisturbed.seen)):
        life = Departure(Once(number, KILLS[when]), kills=True)
        life.site.is_quick = is_quick
        life.watch()
        lives(life)
        assert life.struck_at >= 0.0 or when == "after", number
        site = life.site
        if not site.job["metadata"].get("finalizers"):
            continue  # it was not asked for yet, or nothing is left to save
        site.delete_job()
        if pods_go:
            site.lose_pods()
        try:
            life.leave()
        except AssertionError as error:
            raise AssertionError(f"killed {when} write {number}, {undisturbed.seen[number]}: {error}") from error


@pytest.mark.parametrize("restarts", [False, True])
def test_a_coordinator_that_is_silent_is_waited_for_no_longer_than_was_said(restarts: bool) -> None:
    life = Departure()
    trains(life)
    life.site.answers = False
    life.site.delete_job()
    began = life.site.now
    while not life.site.is_gone:
        life.poll()
        if restarts and not life.site.is_gone:
            life.site.start_agent()
        assert life.site.now - began <= LAST_CHECKPOINT_SECONDS + 2 * POLL_SECONDS, life.site.status
    assert life.site.now - began >= LAST_CHECKPOINT_SECONDS
    assert "within 300 s" in life.site.last_words


def test_the_way_out_has_every_write_of_it() -> None:
    seen = deleted("trains", Departure()).seen
    kinds = {verb if verb in ("ask", "report") else f"{verb} {path.rpartition('/')[2]}" for verb, path in seen}
    assert kinds == {"ask", "patch status", "patch digits"}
