"""Commands, settings, fields and routes keep their names; `python -m tests.public_interface` lists them."""

from __future__ import annotations

from tests.public_interface import COMMITTED, public_interface


def test_no_public_name_changes_by_accident() -> None:
    assert public_interface() == COMMITTED.read_text().splitlines(), "a change needs a line in CHANGELOG.md"
