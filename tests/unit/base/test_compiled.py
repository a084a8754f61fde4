"""Whoever runs as plain Python says so, and why."""

from ottla.base import clock
from ottla.base.compiled import is_compiled, plain_words


def test_one_line_says_it_and_how_to_change_it() -> None:
    assert plain_words(is_plain=False, environment={}) is None
    told = plain_words(is_plain=True, environment={})
    assert told is not None
    assert "\n" not in told
    assert "C compiler" in told
    assert "OTTLA_PURE is set" in (plain_words(is_plain=True, environment={"OTTLA_PURE": "1"}) or "")


def test_it_is_seen_by_the_file_of_a_hot_module() -> None:
    assert is_compiled() is str(clock.__file__).endswith(".so")
