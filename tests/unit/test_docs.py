"""The links, files, tests, targets and examples that the documentation names exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.broker.handlers.table import APIS as TABLE
from ottla.protocol.apis import APIS

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "README.zh-CN.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
PACKAGES = sorted(path.parent.name for path in (ROOT / "src" / "ottla").glob("*/__init__.py"))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_link_leads_somewhere(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        assert target.startswith("https://") or (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_source_file_that_is_named_exists(page):
    for name in re.findall(rf"(?<![\w/])(?:{'|'.join(PACKAGES)})/[a-z0-9_/]+\.py\b", page.read_text()):
        assert (ROOT / "src" / "ottla" / name).exists() or (ROOT / name).exists(), name


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_test_that_is_named_exists(page):
    for name in re.findall(r"\btests/[a-z0-9_/]+(?:\.py)?\b", page.read_text()):
        assert (ROOT / name).exists(), name


def test_every_make_target_that_is_named_exists():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        for block in re.findall(r"```.*?```|`make [a-z]+`", page.read_text(), re.DOTALL):
            for target in re.findall(r"\bmake ([a-z]+)\b", block):
                assert target in targets, f"{page.name}: make {target}"


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs" / "testing.md"], ids=lambda path: path.name)
def test_every_python_example_imports_what_it_uses(page):
    examples = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    assert examples
    for example in examples:
        command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821,F401", "-"]
        found = subprocess.run(command, input=example, capture_output=True, text=True, check=False)
        assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize(
    ("english", "chinese"), [("README.md", "README.zh-CN.md"), ("docs/get-started.md", "docs/zh/get-started.md")]
)
def test_both_languages_have_the_same_commands(english, chinese):
    blocks = [
        re.findall(r"^```.*?^```", (ROOT / name).read_text(), re.DOTALL | re.MULTILINE) for name in (english, chinese)
    ]
    assert blocks[0] == blocks[1] != []


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 130


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "README.md").read_text()
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")} - {"README.md"}
    assert pages <= set(re.findall(r"\]\(([^)#]+)", index))


def test_every_row_of_the_feature_list_is_on_its_page():
    rows = re.findall(r"^\| (F?\d+) \|", (ROOT / "docs" / "features.md").read_text(), re.MULTILINE)
    assert rows == [*map(str, range(1, 121)), *(f"F{number}" for number in range(1, 21))]


def test_every_api_that_is_served_is_in_the_changelog():
    changelog = (ROOT / "CHANGELOG.md").read_text()
    for key in (row.key for row in TABLE if not row.is_inter_broker):
        assert APIS[key].name in changelog
