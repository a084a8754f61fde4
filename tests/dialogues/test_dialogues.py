"""Dialogues with the coordinators: text files in classic_groups/, consumer_groups/ and transactions/.

`OTTLA_WRITE_DIALOGUES=1 pytest tests/dialogues` writes the actual output to the files: review the difference.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.dialogues.classic_dialogue import ClassicDialogue
from tests.dialogues.consumer_dialogue import ConsumerDialogue
from tests.dialogues.dialogue import play
from tests.dialogues.transaction_dialogue import TransactionDialogue

from ottla.groups.settings import GroupSettings
from ottla.transactions.transaction_coordinator import TransactionSettings

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("*/*.txt"))


@pytest.mark.parametrize("path", FILES, ids=[f"{path.parent.name}/{path.stem}" for path in FILES])
def test_dialogue_matches_its_file(path: Path) -> None:
    text = path.read_text()
    heard = play(text, DIALOGUES[path.parent.name](text))
    if os.environ.get("OTTLA_WRITE_DIALOGUES"):
        path.write_text(heard)
    assert heard == text


def classic_dialogue(text: str) -> Callable[[str], list[str]]:
    numbers, is_held = settings_of(text)
    return ClassicDialogue(GroupSettings(**numbers), is_held).perform


def consumer_dialogue(text: str) -> Callable[[str], list[str]]:
    numbers, is_held = settings_of(text)
    return ConsumerDialogue(GroupSettings(**numbers), is_held).perform


def transaction_dialogue(text: str) -> Callable[[str], list[str]]:
    numbers, is_held = settings_of(text)
    return TransactionDialogue(TransactionSettings(**numbers), is_held).perform


DIALOGUES = {
    "classic_groups": classic_dialogue,
    "consumer_groups": consumer_dialogue,
    "transactions": transaction_dialogue,
}


def settings_of(text: str) -> tuple[dict[str, int], bool]:
    """Parse a line such as: # settings: size_max=2 held"""
    words = [word for line in text.splitlines() if line.startswith("# settings:") for word in line.split()[2:]]
    numbers = {name: int(value) for name, _, value in (word.partition("=") for word in words) if value}
    return numbers, "held" in words
