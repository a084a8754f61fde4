"""The server and the pages know the same addresses, and the pages keep to what their policy allows."""

import re
from pathlib import Path

from ottla.console import app, assets

PAGES = Path(assets.FOLDER)
SCRIPTS = [path for path in PAGES.rglob("*.js") if "vendor" not in path.parts]


def test_the_router_knows_the_addresses_of_the_server() -> None:
    routes = re.findall(r'\{ path: "([^"]+)", load', (PAGES / "routes.js").read_text())
    assert {*routes, "/sign-in"} == set(app.PAGES)


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
