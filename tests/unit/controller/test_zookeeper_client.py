"""The multi-read request byte by byte, and results that pass from kazoo's thread to the loop."""

import asyncio
import struct
import threading

from kazoo.exceptions import NoAuthError

from ottla.controller.stores.store import Node
from ottla.controller.stores.zookeeper.client import GET_CHILDREN, GET_DATA, Found, LoopResult, MultiRead

STAT = struct.Struct("!qqqqiiiqiiq")
HEADER = struct.Struct("!iBi")
END = HEADER.pack(-1, 1, -1)


def text(value: str) -> bytes:
    return struct.pack("!i", len(value)) + value.encode()


def test_reads_are_written_as_zookeeper_wants_them() -> None:
    request = MultiRead([(GET_DATA, "/a"), (GET_CHILDREN, "/bc")])
    assert request.type == 22
    assert request.serialize() == (
        HEADER.pack(4, 0, -1) + text("/a") + b"\0" + HEADER.pack(8, 0, -1) + text("/bc") + b"\0" + END
    )


def test_answers_are_nodes_names_and_nothing() -> None:
    stat = STAT.pack(11, 12, 0, 0, 3, 0, 0, 77, 2, 5, 0)
    answer = (
        b"head"
        + HEADER.pack(4, 0, 0)
        + struct.pack("!i", 2)
        + b"xy"
        + stat
        + HEADER.pack(-1, 0, -101)
        + struct.pack("!i", -101)
        + HEADER.pack(8, 0, 0)
        + struct.pack("!i", 2)
        + text("one")
        + text("zwö"[:2])
        + HEADER.pack(4, 0, 0)
        + struct.pack("!i", -1)
        + stat
        + END
    )
    results = MultiRead([]).deserialize(answer, 4)
    assert results == [
        Found(Node(b"xy", 3, 11, 12), 12, 77, 5),
        None,
        ["one", "zw"],
        Found(Node(b"", 3, 11, 12), 12, 77, 5),
    ]


def test_a_node_that_may_not_be_read_is_not_a_node_that_does_not_exist() -> None:
    answer = HEADER.pack(-1, 0, -102) + struct.pack("!i", -102) + END
    (result,) = MultiRead([]).deserialize(answer, 0)
    assert isinstance(result, NoAuthError)


def test_a_result_crosses_to_the_loop_from_another_thread() -> None:
    async def body() -> tuple[object, int]:
        result = LoopResult(asyncio.get_running_loop())
        threading.Thread(target=result.set, args=("answer",)).start()
        answer = await result.future
        result.set("too late")
        result.set_exception(ValueError())
        await asyncio.sleep(0)
        return answer, threading.get_ident()

    assert asyncio.run(body()) == ("answer", threading.get_ident())


def test_a_loop_that_is_closed_needs_no_answer() -> None:
    async def body() -> LoopResult:
        return LoopResult(asyncio.get_running_loop())

    result = asyncio.run(body())
    result.set("ignored")
