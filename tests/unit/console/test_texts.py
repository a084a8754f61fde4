"""Every text of the pages exists in Chinese, what the server refuses too; the tables hold nothing that nobody says."""

import ast
import re
from functools import cache
from pathlib import Path

from ottla.base.errors import Error
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


# ---- what the server says

CONSOLE = PAGES.parent
# Calls that make a sentence, and which of their arguments it is.
SENTENCES = {"bad_request": 0, "not_found": 0, "forbidden": 0, "Sentence": 0, "conflict": 1, "ApiError": 2}
# Files all of whose refusals have their Chinese. A new one belongs here.
SPOKEN = {
    "acls.py", "app.py", "brokers.py", "call.py", "cluster_table.py", "clusters.py", "console.py", "dispatch.py",
    "errors.py", "events.py", "examining.py", "group_offsets.py", "groups.py", "message_search.py", "messages.py",
    "people.py", "quotas.py", "reassignments.py", "signing_in.py", "topics.py", "transactions.py", "users.py",
    "workers.py",
}  # fmt: skip
OF_THE_PAGES = {"the console does not answer"}  # no answer at all
PATTERN = re.compile(r'^  "((?:[^"\\]|\\.)+)": "((?:[^"\\]|\\.)*)",$', re.MULTILINE)


@cache
def refusals(path: Path) -> tuple[set[str], list[str]]:
    """The sentences of a file, and those that hold their values already, which nobody can translate."""
    tree = ast.parse(path.read_text())
    named: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for target in node.targets:
                named.setdefault(getattr(target, "id", ""), set()).add(node.value.value)
    found: set[str] = set()
    filled = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        place = SENTENCES.get(getattr(node.func, "id", getattr(node.func, "attr", "")))
        if place is None or len(node.args) <= place:
            continue
        words = node.args[place]
        if isinstance(words, ast.Constant):
            found.add(str(words.value))
        elif isinstance(words, ast.Name) and words.id in named:
            found |= named[words.id]
        elif isinstance(words, ast.JoinedStr):
            filled.append(ast.unparse(words))
    constants = {text for name, texts in named.items() if name.isupper() for text in texts if "{0}" in text}
    return found | constants, filled


def told() -> dict[str, str]:
    text = (PAGES / "core" / "refusals-zh.js").read_text().partition("export const codes")[0]
    return {english.replace('\\"', '"'): chinese for english, chinese in PATTERN.findall(text)}


def test_what_the_server_refuses_has_its_chinese() -> None:
    files = [path for path in CONSOLE.rglob("*.py") if path.name in SPOKEN]
    sentences = {text for path in files for text in refusals(path)[0]} | OF_THE_PAGES
    assert sentences - told().keys() == set()
    everywhere = {text for path in CONSOLE.rglob("*.py") for text in refusals(path)[0]} | OF_THE_PAGES
    assert told().keys() - everywhere == set()


def test_sentences_of_the_server_keep_their_values_apart() -> None:
    files = [path for path in CONSOLE.rglob("*.py") if path.name in SPOKEN]
    allowed = {"transactions.py": ["f'{problem.what}: {told.message}'"]}  # words of a broker
    assert {path.name: filled for path in files if (filled := refusals(path)[1])} == allowed
    for english, chinese in told().items():
        assert sorted(re.findall(r"\{\d\}", english)) == sorted(re.findall(r"\{\d\}", chinese)), english


def test_codes_in_chinese_are_codes() -> None:
    text = (PAGES / "core" / "refusals-zh.js").read_text().partition("export const codes")[2]
    codes = set(re.findall(r"^  (\w+): ", text, re.MULTILINE))
    ours = {"BAD_REQUEST", "NOT_POSSIBLE", "UNREACHABLE", "FORBIDDEN", "CHANGED_MEANWHILE"}
    assert codes - {error.name for error in Error} == ours
