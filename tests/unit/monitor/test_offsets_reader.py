"""The reader of commits on a fake consumer."""

from __future__ import annotations

from typing import Any

from tests.virtual_time import LoopClock, run

from ottla.monitor.offsets_reader import OffsetsReader


class Told:
    """An error, or an irrelevant message, as returned by the library."""

    def __init__(self, name: str) -> None:
        self._name = name

    def error(self) -> Told:
        return self

    def name(self) -> str:
        return self._name

    def str(self) -> str:
        return self._name

    def partition(self) -> int:
        return 0


class Consumer:
    def __init__(self) -> None:
        self.waiting: list[Told] = []

    def incremental_assign(self, _places: object) -> None: ...

    def poll(self, _seconds: float) -> Told | None:
        return self.waiting.pop(0) if self.waiting else None

    def consume(self, _count: int, _seconds: float) -> list[Told]:
        found, self.waiting = self.waiting, []
        return found


def test_a_login_that_may_not_read_is_refused_until_it_may() -> None:
    """Its last commits would look like those of consumers that have stopped."""

    async def main() -> None:
        consumer = Consumer()
        made: Any = consumer
        reader = OffsetsReader(lambda: made, LoopClock())
        reader.follow(1, {0: 0})
        consumer.waiting = [Told("TOPIC_AUTHORIZATION_FAILED"), Told("_TRANSPORT")]
        assert reader.read() == []
        assert (reader.is_unauthorized, reader.has_read_old_commits) == (True, True)
        consumer.waiting = [Told("_PARTITION_EOF")]
        reader.read()
        assert not reader.is_unauthorized

    run(main())
