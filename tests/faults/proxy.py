"""A TCP proxy in front of a broker that loses answers: the broker executed the request, the client never learns of it.

Frames are forwarded whole. Of the answers to Produce requests, or to others that a test names, a part is thrown away
and the connection closed instead, as a network that breaks at the worst moment would do.
"""

import asyncio
import random
import struct
import threading
from collections import Counter
from concurrent.futures import Future
from typing import Self

PRODUCE = 0
HEAD = struct.Struct(">hhi")  # api key, version, correlation id


class LossyProxy:
    """Listens on a free port of its own; a context manager. `target` may be set once the broker's port is known."""

    def __init__(
        self, seed: int, *, losses_max: int, loss_rate: float, api_keys: frozenset[int] = frozenset({PRODUCE})
    ) -> None:
        self.target = ("127.0.0.1", 0)
        self.losses = 0
        self.losses_max = losses_max
        self.loss_rate = loss_rate
        self.lost: Counter[int] = Counter()  # by api key
        self._api_keys = api_keys
        self._random = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self, work: object) -> object:
        future: Future[object] = asyncio.run_coroutine_threadsafe(work, self._loop)  # type: ignore[arg-type]
        return future.result(10)

    async def _end(self) -> None:
        self._server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        to_lose: dict[int, int] = {}  # correlation id -> api key
        try:
            broker, to_broker = await asyncio.open_connection(*self.target)
        except OSError:
            to_client.close()
            return
        ways = [
            asyncio.ensure_future(self._requests(client, to_broker, to_lose)),
            asyncio.ensure_future(self._answers(broker, to_client, to_lose)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            pass  # the proxy comes to its end, and asyncio complains about streams whose task was cancelled
        finally:
            for way in ways:
                way.cancel()
            to_client.close()
            to_broker.close()

    async def _requests(
        self, client: asyncio.StreamReader, to_broker: asyncio.StreamWriter, to_lose: dict[int, int]
    ) -> None:
        while frame := await read_frame(client):
            api_key, _, correlation_id = HEAD.unpack_from(frame, 4)
            if api_key in self._api_keys and self._is_time_to_lose():
                to_lose[correlation_id] = api_key
            to_broker.write(frame)
            await to_broker.drain()

    async def _answers(
        self, broker: asyncio.StreamReader, to_client: asyncio.StreamWriter, to_lose: dict[int, int]
    ) -> None:
        while frame := await read_frame(broker):
            api_key = to_lose.get(struct.unpack_from(">i", frame, 4)[0])
            if api_key is not None:
                self.losses += 1
                self.lost[api_key] += 1
                return
            to_client.write(frame)
            await to_client.drain()

    def _is_time_to_lose(self) -> bool:
        return self.losses < self.losses_max and self._random.random() < self.loss_rate

    def __repr__(self) -> str:
        return f"<LossyProxy :{self.port} to {self.target}, {self.losses} answers lost>"


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """A whole frame with its length, b"" when the peer is gone."""
    try:
        length = await reader.readexactly(4)
        return length + await reader.readexactly(struct.unpack(">i", length)[0])
    except (asyncio.IncompleteReadError, OSError):
        return b""
