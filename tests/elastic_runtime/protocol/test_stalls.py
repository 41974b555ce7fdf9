"""How long pushes waited for a block that was on its way: of each step the slowest, and the steps added up."""

from collections.abc import Iterable

from elastic_runtime.model.layout import TensorSpec, build_layout
from elastic_runtime.model.optimizers import SGD
from elastic_runtime.protocol.messages import Push, State
from elastic_runtime.protocol.plan import Change, ChangeStage, JobPhase, Plan, Timeline, View
from elastic_runtime.server.protocol.block_table import Rules
from elastic_runtime.server.protocol.snapshots import Snapshots
from elastic_runtime.server.protocol.synchronous import SynchronousPart
from elastic_runtime.server.store import BlockStore

LAYOUT = build_layout([TensorSpec("weight", (4 * 2048,), "float32")], [])
PAYLOAD = [memoryview(bytes(LAYOUT.blocks[0].size_bytes))]
START = Plan(("worker-0",), ("ps-0",) * len(LAYOUT.blocks))
CHANGE = Change(1, 5, (ChangeStage({0: "ps-1", 1: "ps-1"}), ChangeStage({2: "ps-1"})))


class NewOwner:
    """The server that gets three blocks: two at step 5 and one at step 6."""

    def __init__(self) -> None:
        self.now = 0.0

        def no_sink(change: int, step: int, blocks: Iterable[int]) -> None:
            raise AssertionError(f"no checkpoint was asked for, and one of step {step} is begun")

        store = BlockStore(LAYOUT, SGD(lr=0.1))
        rules = Rules(lambda _: 4, 1, 100, 100)
        self.server_part = SynchronousPart("ps-1", LAYOUT, store, rules, Snapshots(no_sink), lambda: self.now)  # type: ignore[arg-type]
        view = View(1, 1, JobPhase.RUNNING, 0, "", START, (CHANGE,))
        self.server_part.start(view)
        self.server_part.on_loaded(view)

    def push(self, block: int, step: int, now: float) -> None:
        self.now = now
        self.server_part.handle("worker-0", Push(1, step, 0, 1, block, 1), PAYLOAD)

    def state(self, block: int, step: int, now: float) -> None:
        self.now = now
        self.server_part.handle("ps-0", State(1, step, block, 1), PAYLOAD)


def test_a_block_that_came_first_was_waited_for_by_nobody() -> None:
    owner = NewOwner()
    owner.state(0, 5, 1.0)
    owner.push(0, 5, 3.0)
    assert owner.server_part.stall_seconds == 0.0
    assert owner.server_part.lowest_version == 6


def test_of_one_step_the_slowest_block_counts_and_steps_add_up() -> None:
    owner = NewOwner()
    owner.push(0, 5, 1.0)
    owner.push(1, 5, 1.0)
    owner.state(0, 5, 1.5)
    assert owner.server_part.stall_seconds == 0.5
    owner.state(1, 5, 1.75)
    assert owner.server_part.stall_seconds == 0.75
    owner.push(2, 6, 2.0)
    owner.state(2, 6, 2.25)
    assert owner.server_part.stall_seconds == 1.0


def test_a_worker_knows_at_which_steps_plans_change() -> None:
    timeline = Timeline(View(1, 1, JobPhase.RUNNING, 0, "", START, (CHANGE,)))
    assert [step for step in range(10) if timeline.changes_at(step)] == [5, 6]
