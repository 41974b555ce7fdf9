import asyncio

from global_learner.maintenance import BACKLOG, WorkQueue

DEADLINE_SECONDS = 60.0


async def test_work_is_done_in_order_and_finished_before_the_end() -> None:
    done: list[int] = []
    queue = WorkQueue(failed=lambda error: None)
    queue.start()
    for number in range(5):

        async def work(number: int = number) -> None:
            await asyncio.sleep(0)
            done.append(number)

        queue.add(work)
    await asyncio.wait_for(queue.close(), DEADLINE_SECONDS)
    assert done == [0, 1, 2, 3, 4]


async def test_a_failure_is_told_once_and_nothing_follows_it() -> None:
    errors: list[BaseException] = []
    followed: list[str] = []
    queue = WorkQueue(errors.append)

    async def fails() -> None:
        raise OSError("disk")

    async def follows() -> None:
        followed.append("ran")

    queue.add(fails)
    queue.add(follows)
    queue.start()
    await asyncio.wait_for(queue.close(), DEADLINE_SECONDS)
    assert [str(error) for error in errors] == ["disk"]
    assert followed == []


async def test_a_long_backlog_holds_updates_up_until_there_is_room() -> None:
    gate, moved = asyncio.Event(), asyncio.Event()
    queue = WorkQueue(failed=lambda error: None, moved=moved.set)
    for _ in range(BACKLOG):
        assert queue.has_space
        queue.add(gate.wait)  # type: ignore[arg-type]
    assert not queue.has_space
    queue.start()
    await asyncio.wait_for(moved.wait(), DEADLINE_SECONDS)
    assert queue.has_space
    gate.set()
    await asyncio.wait_for(queue.close(), DEADLINE_SECONDS)


async def test_a_failure_lets_those_go_who_wait_for_room() -> None:
    async def fails() -> None:
        raise OSError("disk")

    seen: list[bool] = []
    queue = WorkQueue(failed=lambda error: None, moved=lambda: seen.append(queue.has_space))
    for _ in range(2 * BACKLOG):
        queue.add(fails)
    queue.start()
    await asyncio.wait_for(queue.close(), DEADLINE_SECONDS)
    assert seen == [False, True]
