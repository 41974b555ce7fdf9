"""Background work: one piece at a time, and none is left when it is closed."""

import asyncio

from global_learner.background_task import BackgroundTask


async def test_one_piece_at_a_time_and_the_next_once_it_is_done() -> None:
    task, go, begun = BackgroundTask("a test"), asyncio.Event(), list[int]()

    async def work() -> None:
        begun.append(len(begun))
        await go.wait()

    assert task.begin(work)
    await asyncio.sleep(0)
    assert not task.begin(work)
    go.set()
    while not task.begin(work):
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert begun == [0, 1]
    await task.close()


async def test_what_is_under_way_is_given_up_and_has_ended() -> None:
    task, ended = BackgroundTask("a test"), list[str]()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")

    await task.close()  # nothing was begun
    assert task.begin(work)
    await asyncio.sleep(0)
    await task.close()
    await task.close()
    assert ended == ["ended"]


async def test_settled_waits_for_the_end_of_what_is_under_way_however_it_ends() -> None:
    task, go = BackgroundTask("a test"), asyncio.Event()

    async def work() -> None:
        await go.wait()
        raise ValueError("a fault of the work's own")

    await task.finished()  # nothing was begun
    assert task.begin(work)
    waiting = asyncio.create_task(task.finished())
    await asyncio.sleep(0)
    assert not waiting.done()
    go.set()
    await waiting
    assert task.begin(asyncio.Event().wait)  # type: ignore[arg-type]
    await task.close()
