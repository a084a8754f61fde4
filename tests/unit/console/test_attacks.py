"""What somebody may try who means no good: each of these once worked, or ended in an error of ours."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.console.test_api import PEOPLE, TOPICS, Place, run, signed_in
from tests.unit.console.test_messages import LOGS, ORDERS, _places, lines

CLUSTER = "/api/clusters/default"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    yield from _places(tmp_path)


def test_half_a_character_in_a_message_does_not_hide_the_others(place: Place) -> None:
    LOGS.logs[0].append([b'{"\\ud800": ["\\udfff x"]}'])

    async def ask() -> None:
        status, page, _ = await place.ask("GET", f"{ORDERS}/messages")
        assert status == 200
        assert len(page["messages"]) == 6
        _, found, _ = await place.ask("GET", f"{ORDERS}/search?q=offset%20%3D%203")
        assert next(line["hit"] for line in lines(found) if "hit" in line)["value"]["json"] == {"\ufffd": ["\ufffd x"]}

    run(place, ask)
