"""The interface of every scheduler, and the registry of their names and builders.

Baselines, the learned policies and whatever comes later (job-selecting, event-driven) implement `SchedulerPolicy`; the
simulator, the agent and the benchmarks know nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from foundation.files import is_file
from foundation.text import nearest
from policy_net.domain import ClusterState, Decision, PolicyContext, Progress, SpeedModel, Trigger
from policy_net.errors import BadInput, UnknownPolicy

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DEFAULT_POLICY = "set-taught"
"""The policy that fedl2 proposes where nobody names one: trained, and ready to use as it ships."""


@runtime_checkable
class SchedulerPolicy(Protocol):
    """Decides how many tasks every job gets; may learn beliefs from the progress that it is shown."""

    @property
    def name(self) -> str:
        """The name under which results are reported."""
        ...

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:
        """Allocate tasks to the jobs of `state`, from zero, within its capacity and the jobs' caps."""
        ...

    def observe(self, progress: Sequence[Progress]) -> None:
        """See what the jobs did since the last decision; policies without beliefs ignore it."""
        ...


def decides_at_once(policy: SchedulerPolicy) -> bool:
    """Whether a policy stands for the queue of a cluster without an agent, which starts a job when capacity is free.

    A class says so by `decides_at_once = True`. Replays then give it a decision at every event; the shortest time
    between two decisions is an agent's, and that of all other policies.
    """
    return bool(getattr(policy, "decides_at_once", False))


class Samples(Protocol):
    """What a policy remembers of the choices of one decision; how many there were is its length.

    Legend: M actions, of which some may have been no choice.
    """

    @property
    def actions_M(self) -> NDArray[np.int64]:  # noqa: N802  (a shape suffix)
        """Which actions were taken, by their index among the 3J + 1."""
        ...

    @property
    def behaviour_M(self) -> NDArray[np.float64]:  # noqa: N802  (a shape suffix)
        """With which probability each was taken, masks and exploration included."""
        ...

    @property
    def jobs_M(self) -> NDArray[np.int64]:  # noqa: N802  (a shape suffix)
        """To which job of the state each gave; -1 for void."""
        ...

    @property
    def form(self) -> Hashable:
        """What samples must have in common to be learned from together."""
        ...

    @property
    def finite(self) -> bool:
        """Whether no figure is broken."""
        ...

    def __len__(self) -> int: ...


PolicyFactory = Callable[[PolicyContext], SchedulerPolicy]

_LONGEST_NAME = 80

factories: dict[str, PolicyFactory] = {}


def register_policy(name: str, factory: PolicyFactory) -> None:
    """Make a policy available by name; a name is registered once."""
    if name in factories:
        raise ValueError(f"policy {name!r} is registered twice")
    factories[name] = factory


def register_policy_of(module: str, builders: Mapping[str, str]) -> None:
    """Make the policies of a module available by name; the module is loaded when one of them is built.

    Args:
        builders: by the name of a policy, that of its class, or of a function of a `PolicyContext`.
    """
    for name, builder in builders.items():
        register_policy(name, _built_by(module, builder))


def _built_by(module: str, builder: str) -> PolicyFactory:
    def build(context: PolicyContext) -> SchedulerPolicy:
        found = getattr(import_module(module), builder)
        return cast(SchedulerPolicy, found() if isinstance(found, type) else found(context))

    build.__module__ = module  # of which a figure's version is taken
    return build


def policy_names() -> tuple[str, ...]:
    """All registered names, sorted."""
    return tuple(sorted(factories))


def policy_factory(name: str) -> PolicyFactory:
    """What builds a registered policy.

    Raises:
        UnknownPolicy: no policy has this name.
    """
    factory = factories.get(name)
    if factory is None:
        raise UnknownPolicy(f"unknown policy {shown_name(name)}: no such file, and not one of {advice(name)}")
    return factory


def check_known(names_or_paths: Iterable[str]) -> None:
    """See that of each a policy is registered under the name, or that there is such a file; nothing is loaded.

    Raises:
        UnknownPolicy: neither.
    """
    for name in names_or_paths:
        if name not in factories and not is_file(Path(name)):
            policy_factory(name)


def build_policy(name: str, context: PolicyContext) -> SchedulerPolicy:
    """Build a registered policy.

    Raises:
        UnknownPolicy: no policy has this name.
    """
    return policy_factory(name)(context)


def true_speeds_for(policy_name: str, context: PolicyContext) -> SpeedModel:
    """The simulator's speeds, which a policy gets in no other way, for yardsticks that no live cluster can run.

    Raises:
        BadInput: the context has none, as in a live cluster.
    """
    if context.true_speeds is None:
        raise BadInput(
            f"policy {policy_name!r} plans on the simulator's true speeds, which only a simulation has: "
            "use optimus or marginal, which learn speeds from progress"
        )
    return context.true_speeds


def shown_name(name: str) -> str:
    """A name that somebody typed, as a message shows it."""
    return repr(name) if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]!r}…"


def advice(name: str) -> str:
    """The names that there are, and the one that was probably meant."""
    near = nearest(name, policy_names())
    meant = f"; did you mean {near}?" if near else ""
    return f"{', '.join(policy_names())}{meant}"
