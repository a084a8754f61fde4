"""Pipelines in the API: from files as runs write them to answers; stopping one, and who may."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
from pathlib import Path

import pytest
from tests.unit.console.test_api import FixedClock, Place, run

from ottla.base.passwords import hash_password
from ottla.console.people.rights import Grant
from ottla.console.store import Person, Tables
from ottla.operations.pipeline_runs import stopping
from ottla.operations.pipeline_runs.snapshots import Snapshot, StepCount
from ottla.operations.pipeline_runs.statuses import Status, process_start, run_folder

PIPELINES = "/api/clusters/default/pipelines"
NOW_MS = FixedClock().now_ms()
STEPS = (StepCount("views", 1, "parse", 100, 90, 0, 4, 6, 90), StepCount("views", 2, "filter", 90, 70, 20, 0, 0, 70))
QUERIES = (
    Snapshot("views", NOW_MS - 900, 7, 8, 100, 10, 5.0, 4.0, 800, 3, watermark_ms=50, state_rows=2, state_bytes=2_000,
             late=4, steps=STEPS, records={"source": 100}),
    Snapshot("counts", NOW_MS - 900_000, 1, 2, 40, 9, 7.0, 7.0, 100, 1, watermark_ms=40, state_bytes=500),
)  # fmt: skip
RUN = Status(
    "page-views",
    os.getpid(),
    process_start(os.getpid()) or 0,
    socket.gethostname(),
    "running",
    started_ms=NOW_MS - 60_000,
    queries=QUERIES,
)


def keep(place: Place, status: Status, **changes: object) -> None:
    folder = run_folder(place.console.pipelines, status.name)
    folder.mkdir(parents=True)
    (folder / "status.json").write_text(json.dumps({**status.as_json(), **changes}))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.console.pipelines = tmp_path / "pipelines"
    return place


def test_runs_are_listed_and_one_is_shown_with_its_steps(place: Place) -> None:
    async def ask() -> None:
        assert (await place.ask("GET", PIPELINES))[1] == {"pipelines": [], "is_here": True}
        keep(place, RUN)
        keep(place, RUN._replace(name="ended", state="failed", reason="no memory"))
        _, answer, _ = await place.ask("GET", PIPELINES)
        ended, row = answer["pipelines"]
        assert (ended["state"], ended["reason"], ended["is_live"], ended["rows_in_per_s"]) == (
            "failed", "no memory", False, None,
        )  # fmt: skip
        assert (row["state"], row["rows"], row["lag"], row["queries"], row["dead"], row["late"]) == (
            "running", 140, 4, 2, 6, 4,
        )  # fmt: skip
        assert (row["rows_in_per_s"], row["rows_done_per_s"]) == (5.0, 4.0), "the other one is idle"
        assert (row["batch_ms"], row["watermark_ms"], row["state_bytes"]) == (800, 40, 2_500)

        _, answer, _ = await place.ask("GET", f"{PIPELINES}/page-views")
        assert [(query["query"], query["rows_in_per_s"]) for query in answer["queries"]] == [
            ("views", 5.0),
            ("counts", None),
        ]
        for step in answer["queries"][0]["steps"]:
            assert step["came"] == step["kept"] + step["filtered"] + step["late"] + step["dead"]
        assert (await place.ask("GET", f"{PIPELINES}/none"))[0] == 404
        assert (await place.ask("GET", f"{PIPELINES}/..%2Fpage-views"))[0] == 404

    run(place, ask)


@pytest.mark.parametrize(
    "changes",
    [
        {"queries": [{"query": "a", "rows": "many"}]},
        {"queries": [{"query": 5, "lag": [1]}]},
        {"reason": {"a": 1}},
        {"started_ms": "now"},
    ],
)
def test_damaged_files_are_no_reason_to_fail(place: Place, changes: dict[str, object]) -> None:
    async def ask() -> None:
        keep(place, RUN, name=7, **changes)
        status, answer, _ = await place.ask("GET", PIPELINES)
        assert (status, [(row["name"], row["state"]) for row in answer["pipelines"]]) == (
            200,
            [("page-views", "unreadable")],
        )

    run(place, ask)


def test_the_folder_belongs_to_one_cluster(place: Place) -> None:
    async def ask() -> None:
        keep(place, RUN)
        place.console.pipelines_cluster = "other"
        assert (await place.ask("GET", PIPELINES))[1] == {"pipelines": [], "is_here": False}
        assert (await place.ask("GET", f"{PIPELINES}/page-views"))[0] == 404
        assert (await place.ask("POST", f"{PIPELINES}/page-views/stops"))[0] == 404

    run(place, ask)


def test_a_stop_asks_the_process_and_stands_in_the_trail(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(stopping.os, "kill", lambda *what: sent.append(what))

    async def ask() -> None:
        keep(place, RUN)
        keep(place, RUN._replace(name="ended", state="stopped"))
        keep(place, RUN._replace(name="far", host="elsewhere"))
        assert (await place.ask("POST", f"{PIPELINES}/page-views/stops"))[0] == 204
        assert sent == [(RUN.pid, signal.SIGTERM)]
        status, answer, _ = await place.ask("POST", f"{PIPELINES}/ended/stops")
        assert (status, answer["error"]) == (409, "NOT_RUNNING")
        status, answer, _ = await place.ask("POST", f"{PIPELINES}/far/stops")
        assert (status, answer["message"]) == (409, "far runs on elsewhere: stop it there")
        assert len(sent) == 1
        trail = await place.store.run(Tables.audit, 10)
        assert [(entry.target, entry.outcome.partition(":")[0]) for _, entry in trail] == [
            ("pipeline far", "NOT_POSSIBLE"),
            ("pipeline ended", "NOT_RUNNING"),
            ("pipeline page-views", "done"),
        ]

    run(place, ask)


def test_who_may_look_may_not_stop_and_names_have_patterns(tmp_path: Path) -> None:
    vera = Person("vera", hash_password("secret-1"), [Grant("viewer", "*", "page-*")])
    place = Place(tmp_path, needs_sign_in=True, people=(vera,))
    place.console.pipelines = tmp_path / "pipelines"
    basic = "Basic " + base64.b64encode(b"vera:secret-1").decode()

    async def ask() -> None:
        keep(place, RUN)
        keep(place, RUN._replace(name="hidden"))
        as_vera = {"authorization": basic}
        _, answer, _ = await place.ask("GET", PIPELINES, **as_vera)
        assert [row["name"] for row in answer["pipelines"]] == ["page-views"]
        assert (await place.ask("GET", f"{PIPELINES}/hidden", **as_vera))[0] == 403
        assert (await place.ask("POST", f"{PIPELINES}/page-views/stops", **as_vera))[0] == 403
        assert (await place.ask("GET", PIPELINES))[0] == 401

    run(place, ask)
