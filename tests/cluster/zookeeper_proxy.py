"""A TCP proxy in front of ZooKeeper that knows its frames: it can lose a transaction, or only the answer to one, cut
the line, or keep it open and say nothing. Runs on the loop of the test."""

import asyncio
import contextlib
import struct
from enum import Enum
from typing import Self

TRANSACTION = 14
HEAD = struct.Struct(">ii")  # number of the request, type


class Fault(Enum):
    LOSE_REQUEST = "the next transaction does not arrive"
    LOSE_ANSWER = "the next transaction is done, its answer does not arrive"


class ZooKeeperProxy:
    """Listens on a free port; `fault` strikes once, `is_cut` refuses all connections, `is_silent` forwards nothing."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.port = 0
        self.fault: Fault | None = None
        self.is_cut = False
        self.is_silent = False
        self.silent_after: int | None = None  # so many requests
        self.requests = 0
        self.connections = 0
        self.transactions = 0
        self.gate = asyncio.Event()  # held open answers and requests pass
        self.gate.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_details: object) -> None:
        assert self._server is not None
        self._server.close()
        self.drop_all()

    @property
    def connect(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cut(self) -> None:
        self.is_cut = True
        self.drop_all()

    def heal(self) -> None:
        self.is_cut = False
        self.is_silent = False

    def drop_all(self) -> None:
        for writer in list(self._writers):
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.is_cut:
            writer.close()
            return
        answers, requests = await asyncio.open_connection("127.0.0.1", self.target)
        self._writers |= {writer, requests}
        is_deaf = asyncio.Event()  # the client gets no more answers on this connection
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await asyncio.gather(
                    self._forward_requests(reader, requests, is_deaf), self._forward_answers(answers, writer, is_deaf)
                )
        finally:
            for each in (writer, requests):
                each.close()
                self._writers.discard(each)

    async def _forward_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_deaf: asyncio.Event
    ) -> None:
        is_first = True
        while True:
            head = await reader.readexactly(4)
            body = await reader.readexactly(int.from_bytes(head, "big"))
            if self.requests == self.silent_after:
                self.is_silent = True
            self.requests += 1
            await self._wait_while_silent()
            is_transaction = not is_first and HEAD.unpack_from(body)[1] == TRANSACTION
            is_first = False
            self.transactions += is_transaction
            fault = self.fault if is_transaction else None
            if fault is not None:
                self.fault = None
                if fault is Fault.LOSE_REQUEST:
                    raise ConnectionError
                is_deaf.set()
            writer.write(head + body)
            await writer.drain()

    async def _forward_answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_deaf: asyncio.Event
    ) -> None:
        while data := await reader.read(65536):
            await self._wait_while_silent()
            if is_deaf.is_set():
                await self.gate.wait()
                raise ConnectionError
            writer.write(data)
            await writer.drain()
        raise ConnectionError

    async def _wait_while_silent(self) -> None:
        while self.is_silent:
            await asyncio.sleep(0.01)
