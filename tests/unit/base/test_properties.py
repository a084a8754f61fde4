r"""Java's .properties text. The cases follow the description of java.util.Properties.load."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.properties import PropertiesError, Property, parse_properties, read_properties


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("Truth = Beauty", "Truth", "Beauty"),
        (" Truth:Beauty", "Truth", "Beauty"),
        ("Truth                    :Beauty", "Truth", "Beauty"),
        ("key value with blanks", "key", "value with blanks"),
        ("key\tvalue", "key", "value"),
        ("key = = value", "key", "= value"),
        ("cheeses", "cheeses", ""),
        ("key=", "key", ""),
        ("=value", "", "value"),
        ("key=value  ", "key", "value  "),
        ("key=  value", "key", "value"),
        (r"a\ b\=c\:d=e", "a b=c:d", "e"),
        (r"path=c:\\data", "path", r"c:\data"),
        (r"key=tab\there\nnew\u00e9\q", "key", "tab\there\nnewéq"),
        (r"key=\ud83d\ude00", "key", "😀"),
        ("key=a#b!c", "key", "a#b!c"),
        ("fruits  apple, banana, \\\n        cherry, \\\r\n\tmelon", "fruits", "apple, banana, cherry, melon"),
        ("key=a\\", "key", "a"),
        ("key=a\\\\", "key", "a\\"),
        ("key=a\\\n#no comment", "key", "a#no comment"),
        ("k\\\n   ey=v", "key", "v"),
    ],
)
def test_one_line(text: str, name: str, value: str) -> None:
    assert read_properties(text) == {name: value}


def test_comments_and_blank_lines_are_left_out() -> None:
    text = "# a comment \\\nkey=1\n\n   ! another\n \t \\\n"
    assert [item for item in parse_properties(text) if item.name] == [Property("key", "1", 2)]


def test_line_numbers_are_those_of_the_text() -> None:
    text = "# head\na=1\\\n  2\n\nb=3\rc=4"
    assert list(parse_properties(text)) == [Property("a", "12", 2), Property("b", "3", 5), Property("c", "4", 6)]


def test_the_last_of_several_equal_keys_counts() -> None:
    assert read_properties("a=1\nb=2\na=3") == {"a": "3", "b": "2"}


@pytest.mark.parametrize("text", [r"\u12", r"a=\u12x4", r"a=\uzzzz"])
def test_a_broken_escape_names_its_line(text: str) -> None:
    with pytest.raises(PropertiesError, match="four hexadecimal digits") as caught:
        read_properties(f"\n\n{text}")
    assert caught.value.line == 3


def test_half_a_character_does_not_survive() -> None:
    read_properties(r"a=\ud83d")["a"].encode()


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = read_properties(text)
    except PropertiesError:
        assert "\\u" in text
    else:
        assert all("\n" not in name or "\\" in text for name in found)
