"""A coordinator's answer as something that a handler can await."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from ottla.coordination.machine import Decision, Machine
from ottla.coordination.runtime import Runtime

M = TypeVar("M", bound=Machine)


async def answer_of(runtime: Runtime[M], key: str, decide: Callable[[M, Any, int], Decision]) -> Any:
    """Let the machine that the key belongs to decide; its answer, when it is committed."""
    answer = start_answer(runtime, key, decide)
    return answer.result() if answer.done() else await answer


def start_answer(runtime: Runtime[M], key: str, decide: Callable[[M, Any, int], Decision]) -> asyncio.Future[Any]:
    """The same, decided and written when this returns."""
    shard = runtime.shard(key)
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def reply_to(response: Any) -> None:
        if not answer.done():
            answer.set_result(response)

    runtime.run(shard, decide(shard.machine, reply_to, runtime.now_ms()))
    return answer
