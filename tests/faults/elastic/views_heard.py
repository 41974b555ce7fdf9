"""Every view of a job that a test hears of."""

from elastic_runtime.control.credentials import ClientCredentials
from elastic_runtime.launcher.coordinator_connection import ViewFollower
from elastic_runtime.protocol.plan import View


def in_short(view: View) -> str:
    """What helps to understand a failure."""
    changes = [(c.number, c.clock, len(c.stages), "checkpoint" * c.checkpoint, "halt" * c.halt) for c in view.changes]
    return (
        f"{view.number}: {view.phase.value} generation {view.generation} from {view.start_step}, changes {changes}, "
        f"proposal {view.proposal}, committed {view.committed}, members {[member.task for member in view.members]}, "
        f"wanted {view.wanted}, leaving {view.leaving}, substitutes {view.substitutes} {view.failure}"
    )


class Listener(ViewFollower):
    """Keeps every view that it hears of."""

    def __init__(self, address: str, name: str, token: str, views: list[View]) -> None:
        self._views = views
        super().__init__(address, name, ClientCredentials(token), lambda: None)

    @property
    def view(self) -> View | None:  # type: ignore[override]
        return self._views[-1] if self._views else None

    @view.setter
    def view(self, view: View | None) -> None:
        if view is not None:
            self._views.append(view)
