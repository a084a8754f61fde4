"""Changes of the file between two runs. Each tells what it did, or None where there is nothing to change. What Spark's
state does not allow is changed in the document alone: it must be refused; the rest is changed in the case."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tests.pipelines.random.cases import Case
from tests.pipelines.random.rows import conditions
from tests.pipelines.random.steps import Filter, Parse, Window

Change = Callable[[Case, dict[str, Any], Random], str | None]


def change_window(case: Case, document: dict[str, Any], chance: Random) -> str | None:
    for query in case.queries:
        for at, each in enumerate(query.steps):
            if isinstance(each, Window) and each.size_s:
                step = document["streams"][query.name]["steps"][at]["window"]
                step["size"] = "20 seconds"
                step.pop("slide", None)
                return f"the window of {query.name} has another size"
            if isinstance(each, Window) and chance:
                document["streams"][query.name]["steps"][at]["window"]["max"] = {}
                return f"the totals of {query.name} have a column less"
    return None


def change_filter(case: Case, document: dict[str, Any], chance: Random) -> str | None:
    """Of steps without state, where the columns stay as they are."""
    found = [each for each in case.all_steps() if isinstance(each, Filter) and "n" in each.condition.columns]
    if not found:
        return None
    found[0].condition = chance.choice([each for each in conditions() if each.columns == ("n",)])
    _write(case, document)
    return f"a filter is {found[0].condition.sql} now"


def change_parse(case: Case, document: dict[str, Any], chance: Random) -> str | None:
    found = next(each for each in case.all_steps() if isinstance(each, Parse))
    found.required = not found.required
    _write(case, document)
    return f"parse requires an id: {found.required}"


def rename_stream(case: Case, document: dict[str, Any], chance: Random) -> str | None:
    name = chance.choice(case.queries).name
    streams = document["streams"]
    document["streams"] = {("renamed" if each == name else each): stream for each, stream in streams.items()}
    return f"stream {name} is called renamed"


def turn_sinks(case: Case, document: dict[str, Any], chance: Random) -> str | None:
    several = [query for query in case.queries if len(query.places) > 1]
    if not several:
        return None
    stream = document["streams"][chance.choice(several).name]
    stream["to"] = stream["to"][::-1]
    return "sinks are in another order"


def add_sink(case: Case, document: dict[str, Any], chance: Random) -> str | None:
    query = chance.choice(case.queries)
    document["streams"][query.name]["to"].append({"sqlite": "rows.db", "table": "more"})
    return f"{query.name} has one more sink"


def _write(case: Case, document: dict[str, Any]) -> None:
    for query in case.queries:
        for at, each in enumerate(query.steps):
            document["streams"][query.name]["steps"][at] = {each.name: each.written()}
    for at, each in enumerate(case.shared):
        document["streams"]["events"]["steps"][at] = {each.name: each.written()}


CHANGES: dict[str, Change] = {
    "window changed": change_window,
    "filter changed": change_filter,
    "parse changed": change_parse,
    "stream renamed": rename_stream,
    "sinks in another order": turn_sinks,
    "one more sink": add_sink,
}
