"""Coroutines that are begun at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.virtual_time import run

from ottla.base.eager_tasks import CompletedTask, run_eagerly


def test_a_coroutine_that_never_waits_is_done_at_once() -> None:
    async def work() -> int:
        return 7

    assert run_eagerly(work()) == CompletedTask(7)


def test_an_immediate_failure_is_reported() -> None:
    async def work() -> int:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run_eagerly(work())


def test_what_has_to_wait_goes_on_in_a_task() -> None:
    done: list[str] = []

    async def work() -> list[str]:
        done.append("begun")
        await asyncio.sleep(0)
        done.append("again")
        await asyncio.sleep(5)
        async with asyncio.timeout(1):
            done.append(await asyncio.sleep(0.5, "slept"))
        return done

    async def scene() -> Any:
        rest = run_eagerly(work())
        assert done == ["begun"]
        assert not isinstance(rest, CompletedTask)
        return await asyncio.create_task(rest)

    assert run(scene()) == ["begun", "again", "slept"]


def test_a_failure_while_it_waits_is_its_own() -> None:
    async def work() -> str:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            await asyncio.sleep(1)
            return "cleaned up"
        return "slept"

    async def scene() -> Any:
        rest = run_eagerly(work())
        assert not isinstance(rest, CompletedTask)
        task = asyncio.create_task(rest)
        await asyncio.sleep(1)
        task.cancel()
        return await task

    assert run(scene()) == "cleaned up"
