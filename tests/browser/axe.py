"""Accessibility checks of a page with axe-core.

The script runs through the browser's debugging protocol, so that the pages' Content-Security-Policy stays as it is.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from ottla.console.fetch_libraries import fetch_for_tests

VENDOR = Path(__file__).parent / "vendor"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


@cache
def script() -> str:
    fetch_for_tests(VENDOR)
    return (VENDOR / "axe.js").read_text()


def problems(page: Page, *, only_colours: bool = False) -> list[str]:
    """The violations in the current page, one line for each element."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(script())
    wanted: dict[str, Any] = (
        {"type": "rule", "values": ["color-contrast"]} if only_colours else {"type": "tag", "values": RULES}
    )
    found = page.evaluate("(runOnly) => axe.run(document, { runOnly, resultTypes: ['violations'] })", wanted)
    return [
        f"{rule['id']}: {rule['help']}: {place['html'][:160]} ({place['any'][0]['message'] if place['any'] else ''})"
        for rule in found["violations"]
        for place in rule["nodes"]
    ]
