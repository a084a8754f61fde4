"""Tasks that fail are noticed, and loops go on."""

from __future__ import annotations

import asyncio
import gc
import itertools

import pytest
from tests.virtual_time import run

from ottla.base import tasks


def test_a_loop_that_fails_is_begun_anew_after_ever_longer_pauses(caplog: pytest.LogCaptureFixture) -> None:
    begun: list[float] = []

    async def work() -> None:
        begun.append(asyncio.get_running_loop().time())
        if len(begun) < 5:
            raise ValueError("no")

    before = tasks.counts.restarted

    async def scene() -> None:
        await tasks.spawn_restarting(work, "a loop")

    run(scene())
    pauses = [round(later - earlier, 3) for earlier, later in itertools.pairwise(begun)]
    assert pauses == [0.1, 0.2, 0.4, 0.8]
    assert tasks.counts.restarted == before + 4
    assert caplog.text.count("a loop failed; it begins anew") == 4


def test_a_loop_that_ran_well_for_long_begins_with_the_shortest_pause() -> None:
    begun: list[float] = []

    async def work() -> None:
        begun.append(asyncio.get_running_loop().time())
        if len(begun) == 6:
            return
        await asyncio.sleep(tasks.STABLE_SECONDS if len(begun) == 4 else 0)
        raise ValueError("no")

    async def scene() -> None:
        await tasks.spawn_restarting(work, "a loop")

    run(scene())
    assert round(begun[4] - begun[3] - tasks.STABLE_SECONDS, 3) == 0.1


def test_a_cancelled_loop_ends() -> None:
    async def scene() -> None:
        task = tasks.spawn_restarting(lambda: asyncio.sleep(100), "a loop")
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(scene())


def test_work_that_fails_is_logged_and_closes_what_depends_on_it(caplog: pytest.LogCaptureFixture) -> None:
    closed: list[str] = []

    async def work() -> None:
        await asyncio.sleep(1)
        raise ValueError("no")

    before = tasks.counts.failed

    async def scene() -> None:
        await tasks.spawn(work(), "some work", on_failure=lambda: closed.append("the connection"))

    run(scene())
    assert closed == ["the connection"]
    assert tasks.counts.failed == before + 1
    assert "some work failed" in caplog.text


def test_a_task_without_references_is_not_collected() -> None:
    done: list[int] = []

    async def work() -> None:
        waited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(1, waited.set_result, None)
        await waited
        done.append(1)

    async def scene() -> None:
        tasks.spawn(work(), "some work")
        gc.collect()
        await asyncio.sleep(2)

    run(scene())
    assert done == [1]


def test_the_failure_of_a_spawned_task_reaches_the_awaiting_code(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> int:
        raise ValueError("no")

    async def scene() -> None:
        answer = tasks.spawn_awaited(fail(), "a question")
        with pytest.raises(ValueError, match="no"):
            await answer
        tasks.spawn_awaited(fail(), "a task that is not awaited any more")
        await asyncio.sleep(1)

    run(scene())
    gc.collect()
    assert caplog.text == ""


def test_a_thread_that_fails_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    before = tasks.counts.failed
    thread = tasks.start_thread(lambda: 1 / 0, "divider")
    thread.join()
    assert thread.daemon
    assert tasks.counts.failed == before + 1
    assert "the thread divider failed" in caplog.text
