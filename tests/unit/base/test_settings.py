"""How settings are declared and read."""

import pytest

from ottla.base.setting_types import BadValueError
from ottla.base.settings import Boolean, Int, Items, Long, OptionalInt, Password, Settings, Text


class Parent(Settings):
    num_things = Int(1, at_least=1, note="Things.")


class Example(Parent):
    is_on = Boolean(True, note="Whether.")
    wait_hours = Int(2, note="Hours.")
    wait_ms = Long(fallback=(("wait.hours", 3_600_000),), note="Time.")
    limit = OptionalInt(note="Limit.")
    names = Items(("a",), may_be_empty=False, note="Names.")
    secret = Password(note="Secret.")
    word = Text("x", note="Word.")


def test_attributes_are_keys_with_dots() -> None:
    assert list(Example.keys) == ["num.things", "is.on", "wait.hours", "wait.ms", "limit", "names", "secret", "word"]
    assert Example.num_things.name == "num.things"


def test_a_value_is_its_text_or_the_default() -> None:
    example = Example({"num.things": " 3 ", "names": "b, c"})
    assert (example.num_things, example.names) == (3, ("b", "c"))
    assert (example.is_on, example.limit, example.word, example.secret) == (True, None, "x", None)


def test_a_finer_key_falls_back_to_a_coarser_one() -> None:
    assert Example({}).wait_ms == 2 * 3_600_000
    assert Example({"wait.hours": "5"}).wait_ms == 5 * 3_600_000
    assert Example({"wait.hours": "5", "wait.ms": "7"}).wait_ms == 7


def test_objects_do_not_change() -> None:
    example = Example({})
    assert example.num_things == 1
    with pytest.raises(AttributeError, match="settings do not change"):
        example.num_things = 2  # type: ignore[assignment, method-assign]
    assert example.num_things == 1


def test_a_bad_value_gets_kafkas_message() -> None:
    with pytest.raises(
        BadValueError, match=r"^Invalid value x for configuration num\.things: Not a number of type INT$"
    ):
        Example.keys["num.things"].value("x")
    with pytest.raises(BadValueError, match="Value must be at least 1"):
        Example.keys["num.things"].value("0")
    with pytest.raises(BadValueError, match="must not be empty"):
        Example.keys["names"].value(" ")


def test_what_is_shown_is_parsed_and_written_again_and_never_a_secret() -> None:
    assert Example.keys["num.things"].display_value("+7") == "7"
    assert Example.keys["names"].display_value("a , b") == "a,b"
    assert Example.keys["limit"].display_value(None) is None
    assert Example.keys["secret"].display_value("pa55") is None
    assert Example.keys["secret"].is_sensitive
