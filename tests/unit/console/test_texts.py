"""Every text of the pages exists in Chinese, and the table holds nothing that no page says."""

import re
from pathlib import Path

from ottla.console import assets

PAGES = Path(assets.FOLDER)
SCRIPTS = [path for path in PAGES.rglob("*.js") if "vendor" not in path.parts]
ENTRY = re.compile(r'^  "((?:[^"\\]|\\.)+)": "((?:[^"\\]|\\.)*)",$', re.MULTILINE)
USED = re.compile(r'\bt\("((?:[^"\\]|\\.)+)"')
TITLED = re.compile(r'\btitle: "((?:[^"\\]|\\.)+)"')  # of routes and views: shown by t(title)


def used() -> set[str]:
    texts = [path.read_text() for path in SCRIPTS]
    return {found for text in texts for pattern in (USED, TITLED) for found in pattern.findall(text)}


def table() -> dict[str, str]:
    return dict(ENTRY.findall((PAGES / "core" / "texts-zh.js").read_text()))


def test_every_text_has_its_chinese() -> None:
    assert used() - table().keys() == set()


def test_no_chinese_is_left_over() -> None:
    assert table().keys() - used() == set()


def test_places_for_values_are_the_same() -> None:
    for english, chinese in table().items():
        assert sorted(re.findall(r"\{\d\}", english)) == sorted(re.findall(r"\{\d\}", chinese)), english
        assert chinese


def test_nothing_is_translated_by_a_made_up_key() -> None:
    """t(`...`) or t(a + b) could not be found above; t(title) and t(item.title) are those of the tables."""
    calls = [call for path in SCRIPTS for call in re.findall(r"\bt\(([^)\n]{1,40})", path.read_text())]
    assert [call for call in calls if not call.startswith('"')] == [
        call for call in calls if call in ("title", "item.title", "text, ...values")
    ]
