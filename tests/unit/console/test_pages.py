"""Pages and server have the same addresses, pages obey the content security policy, and all texts are translated."""

import ast
import re
from functools import cache
from pathlib import Path

from ottla.base.errors import Error
from ottla.console import app

PAGES = Path(app.PAGES_FOLDER)
SCRIPTS = [path for path in PAGES.rglob("*.js") if "vendor" not in path.parts]


def test_the_router_knows_the_addresses_of_the_server() -> None:
    routes = re.findall(r'\{ path: "([^"]+)", load', (PAGES / "routes.js").read_text())
    assert {*routes, "/sign-in"} == set(app.PAGE_PATHS)


def test_no_page_makes_markup_or_code_out_of_text() -> None:
    for path in SCRIPTS:
        text = path.read_text()
        for word in ("innerHTML", "outerHTML", "dangerouslySetInnerHTML", "eval(", "new Function", "document.write"):
            assert word not in text, f"{path.name} has {word}"


def test_nothing_is_fetched_from_elsewhere() -> None:
    for path in [*SCRIPTS, PAGES / "index.html", PAGES / "style.css"]:
        for address in re.findall(r"https?://(?!\{host\}|…)[^\s\"'`)]+", path.read_text()):
            raise AssertionError(f"{path.name} names {address}")
    assert "<script>" not in (PAGES / "index.html").read_text()


def test_every_import_leads_to_a_file() -> None:
    for path in SCRIPTS:
        for word in re.findall(r'(?:from|import\()\s*"(\.[^"]+)"', path.read_text()):
            target = (path.parent / word).resolve()
            assert target.exists() or "vendor" in target.parts, f"{path.name} imports {word}"


# ---- translations: every text and every error message has a Chinese one, and there are no unused entries


PAGES = Path(app.PAGES_FOLDER)
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


# ---- error messages of the server

CONSOLE = PAGES.parent
# Calls with an error message, and the position of that argument.
SENTENCES = {
    "bad_request": 0,
    "not_found": 0,
    "forbidden": 0,
    "Sentence": 0,
    "conflict": 1,
    "Slots": 1,
    "names_to_change": 0,
    "ApiError": 2,
}
# Files whose error messages are all translated. Add new ones here.
SPOKEN = {
    "acls.py", "app.py", "authentication.py", "brokers.py", "call.py", "clusters.py", "console.py", "dispatch.py",
    "errors.py", "events.py", "examinations.py", "groups.py", "message_search.py", "message_workers.py", "messages.py",
    "people.py", "quotas.py", "reassignments.py", "topics.py", "transactions.py", "users.py",
}  # fmt: skip
OF_THE_PAGES = {"the console does not answer"}  # without a response
PATTERN = re.compile(r'^  "((?:[^"\\]|\\.)+)": "((?:[^"\\]|\\.)*)",$', re.MULTILINE)


@cache
def refusals(path: Path) -> tuple[set[str], list[str]]:
    """The error messages of a file, and f-strings among them, which cannot be translated."""
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
    text = (PAGES / "core" / "server-errors-zh.js").read_text().partition("export const codes")[0]
    return {english.replace('\\"', '"'): chinese for english, chinese in PATTERN.findall(text)}


def test_what_the_server_refuses_has_its_chinese() -> None:
    files = [path for path in CONSOLE.rglob("*.py") if path.name in SPOKEN]
    sentences = {text for path in files for text in refusals(path)[0]} | OF_THE_PAGES
    assert sentences - told().keys() == set()
    everywhere = {text for path in CONSOLE.rglob("*.py") for text in refusals(path)[0]} | OF_THE_PAGES
    assert told().keys() - everywhere == set()


def test_sentences_of_the_server_keep_their_values_apart() -> None:
    files = [path for path in CONSOLE.rglob("*.py") if path.name in SPOKEN]
    allowed = {"transactions.py": ["f'{problem.step}: {error.message}'"]}  # a message of a broker
    assert {path.name: filled for path in files if (filled := refusals(path)[1])} == allowed
    for english, chinese in told().items():
        assert sorted(re.findall(r"\{\d\}", english)) == sorted(re.findall(r"\{\d\}", chinese)), english


def test_codes_in_chinese_are_codes() -> None:
    text = (PAGES / "core" / "server-errors-zh.js").read_text().partition("export const codes")[2]
    codes = set(re.findall(r"^  (\w+): ", text, re.MULTILINE))
    ours = {"BAD_REQUEST", "NOT_POSSIBLE", "UNREACHABLE", "FORBIDDEN", "CHANGED_MEANWHILE"}
    assert codes - {error.name for error in Error} == ours
