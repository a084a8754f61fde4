"""Conversations with the coordinators, each in a text file below groups/, new_groups/ and transactions/.

`OTTLA_WRITE_DIALOGUES=1 pytest tests/dialogues` writes down what was heard: read the difference before you keep it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.dialogues.classic_stage import ClassicStage
from tests.dialogues.new_stage import NewStage
from tests.dialogues.stage import play
from tests.dialogues.transaction_stage import TransactionStage

from ottla.groups.settings import GroupSettings
from ottla.transactions.machine import TransactionSettings

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("*/*.txt"))


@pytest.mark.parametrize("path", FILES, ids=[f"{path.parent.name}/{path.stem}" for path in FILES])
def test_the_dialogue_is_as_it_was_written_down(path: Path) -> None:
    text = path.read_text()
    heard = play(text, STAGES[path.parent.name](text))
    if os.environ.get("OTTLA_WRITE_DIALOGUES"):
        path.write_text(heard)
    assert heard == text


def classic_stage(text: str) -> Callable[[str], list[str]]:
    numbers, is_held = settings_of(text)
    return ClassicStage(GroupSettings(**numbers), is_held).perform


def new_stage(text: str) -> Callable[[str], list[str]]:
    numbers, is_held = settings_of(text)
    return NewStage(GroupSettings(**numbers), is_held).perform


def transaction_stage(text: str) -> Callable[[str], list[str]]:
    numbers, is_held = settings_of(text)
    return TransactionStage(TransactionSettings(**numbers), is_held).perform


STAGES = {"groups": classic_stage, "new_groups": new_stage, "transactions": transaction_stage}


def settings_of(text: str) -> tuple[dict[str, int], bool]:
    """The first lines may say: # settings: size_max=2 held"""
    words = [word for line in text.splitlines() if line.startswith("# settings:") for word in line.split()[2:]]
    numbers = {name: int(value) for name, _, value in (word.partition("=") for word in words) if value}
    return numbers, "held" in words
