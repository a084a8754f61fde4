"""Pipelines in the API: answers from the files of runs, stopping, rights; and the ledger of resent letters."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
from pathlib import Path

import pytest
from tests.unit.console.test_api import SNAPSHOT, ConsoleFixture, FixedClock, run

from ottla.base.passwords import hash_password
from ottla.console import resend_ledger
from ottla.console.auth.rights import Grant
from ottla.console.clusters.cluster import ClusterAddress
from ottla.console.resend_ledger import Claim, LetterTopic, Resend
from ottla.console.store import Person, Tables
from ottla.operations.pipeline_runs import requests
from ottla.operations.pipeline_runs.snapshots import Snapshot, StepCount
from ottla.operations.pipeline_runs.statuses import PipelineTopics, Status, process_start, run_folder

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


def keep(place: ConsoleFixture, status: Status, **changes: object) -> None:
    folder = run_folder(place.console.pipelines_folder, status.name)
    folder.mkdir(parents=True)
    (folder / "status.json").write_text(json.dumps({**status.as_json(), **changes}))


@pytest.fixture
def place(tmp_path: Path) -> ConsoleFixture:
    place = ConsoleFixture(tmp_path)
    place.console.pipelines_folder = tmp_path / "pipelines"
    return place


def test_runs_are_listed_and_one_is_shown_with_its_steps(place: ConsoleFixture) -> None:
    async def ask() -> None:
        assert (await place.ask("GET", PIPELINES))[1] == {"pipelines": [], "is_here": True, "elsewhere": 0}
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


def test_imbalanced_rows_are_reported_and_existing_topics_have_links(place: ConsoleFixture) -> None:
    async def ask() -> None:
        lost = (
            StepCount("views", 1, "parse", 100, 90, 0, 4, 5, 90),
            StepCount("views", 2, "rule", 90, 91, 0, 0, 0, 91),
        )
        places = PipelineTopics("a:9092", ("orders",), ("x.*",), ("none",), ("far (b:1)",), ("readers",), "orders-dead")
        keep(place, RUN._replace(queries=(QUERIES[0]._replace(steps=lost),), places=places))
        _, answer, _ = await place.ask("GET", f"{PIPELINES}/page-views")
        assert [step["astray"] for step in answer["queries"][0]["steps"]] == [1, -1]
        assert [tuple(each.values()) for each in answer["places"]["named"]] == [
            ("reads", "orders", "orders" in SNAPSHOT.topics),
            ("writes", "none", False),
            ("dead letters", "orders-dead", False),
            ("group", "readers", "readers" in SNAPSHOT.groups),
        ]
        assert (answer["places"]["patterns"], answer["places"]["elsewhere"]) == (["x.*"], ["far (b:1)"])
        _, answer, _ = await place.ask("GET", f"{PIPELINES}/page-views/dead-letters")
        assert (answer["topic"], answer["is_there"]) == ("orders-dead", False)
        assert (await place.ask("GET", f"{PIPELINES}/page-views/dead-letters/letters"))[0] == 404

    run(place, ask)


@pytest.mark.parametrize(
    ("places", "is_here"),
    [
        (PipelineTopics("d:9092", ("orders",)), False),
        (PipelineTopics("a:9093", ("orders",)), False),
        (PipelineTopics("10.9.8.7:9092,c:1"), False),
        (PipelineTopics("A:9092", ("orders",)), True),
        (PipelineTopics("c:1,a:9092"), True),
        (PipelineTopics("d:9092", elsewhere=("orders (a:9092)",)), True),
        (PipelineTopics("d:9092", elsewhere=("orders (e:9092)",)), False),
        (PipelineTopics(""), True),
        (None, True),  # of a version without places
    ],
)
def test_a_pipeline_of_another_cluster_was_listed(
    place: ConsoleFixture, places: PipelineTopics | None, is_here: bool
) -> None:
    """Clusters share the state folder of the machine; a topic name means another topic in another cluster."""

    async def ask() -> None:
        keep(place, RUN._replace(places=places))
        _, answer, _ = await place.ask("GET", PIPELINES)
        assert ([row["name"] for row in answer["pipelines"]], answer["elsewhere"]) == (
            (["page-views"], 0) if is_here else ([], 1)
        )
        for path in ("", "/course", "/dead-letters"):
            assert (await place.ask("GET", f"{PIPELINES}/page-views{path}"))[0] == (200 if is_here else 404), path

    run(place, ask)


def test_a_pipeline_is_of_the_cluster_that_it_calls_by_another_name(place: ConsoleFixture) -> None:
    place.cluster.address = ClusterAddress("default", "127.0.0.1:9092")

    async def ask() -> None:
        for number, bootstrap in enumerate(("localhost:9092", "LOCALHOST:9092", "[::1]:9092", "127.1:9092")):
            keep(place, RUN._replace(name=f"run-{number}", places=PipelineTopics(bootstrap)))
        _, answer, _ = await place.ask("GET", PIPELINES)
        assert (len(answer["pipelines"]), answer["elsewhere"]) == (4, 0)

    run(place, ask)


def test_the_course_of_a_run_is_thinned_and_what_is_damaged_left_out(place: ConsoleFixture) -> None:
    async def ask() -> None:
        keep(place, RUN)
        assert (await place.ask("GET", f"{PIPELINES}/page-views/course"))[1] == {"queries": [], "batches": 0}
        points = [QUERIES[0]._replace(at_ms=number, lag=number).as_point() for number in range(1_200)]
        file = run_folder(place.console.pipelines_folder, "page-views") / "progress.jsonl"
        lines = [json.dumps(point) for point in points]
        lines += [
            "{torn",
            json.dumps({"query": "views", "at_ms": 1, "lag": "much"}),
            json.dumps({"query": 7, "at_ms": 1}),
        ]
        file.write_text("\n".join(lines))
        _, answer, _ = await place.ask("GET", f"{PIPELINES}/page-views/course")
        [course] = answer["queries"]
        assert (answer["batches"], course["query"]) == (1_200, "views")
        assert 400 <= len(course["lag"]) <= 501
        assert len({len(column) for name, column in course.items() if name != "query"}) == 1
        assert (course["at_ms"][0], course["at_ms"][-1]) == (0, 1_199)
        file.write_text(lines[0])
        assert (await place.ask("GET", f"{PIPELINES}/page-views/course"))[1]["batches"] == 1, "it is a new run"

    run(place, ask)


def test_reading_letters_needs_the_right_of_their_topic_and_sending_needs_operators(tmp_path: Path) -> None:
    may_not = Person("vera", hash_password("secret-1"), [Grant("operator")])
    may_read = Person("will", hash_password("secret-1"), [Grant("viewer", may_read_messages=True)])
    place = ConsoleFixture(tmp_path, needs_sign_in=True, people=(may_not, may_read))
    place.console.pipelines_folder = tmp_path / "pipelines"

    async def ask() -> None:
        keep(place, RUN._replace(places=PipelineTopics("a:9092", dead_letters="orders-dead")))
        as_vera, as_will = (
            {"authorization": "Basic " + base64.b64encode(f"{name}:secret-1".encode()).decode()}
            for name in ("vera", "will")
        )
        letters = f"{PIPELINES}/page-views/dead-letters"
        assert (await place.ask("GET", letters, **as_vera))[0] == 403
        assert (await place.ask("GET", letters, **as_will))[0] == 200
        everything = {"ends": {"0": 1}}
        assert (await place.ask("POST", f"{letters}/resends", everything, **as_will))[0] == 403
        assert (await place.ask("POST", f"{letters}/resends", everything, **as_vera))[0] == 403
        for wrong in ({}, {"letters": [], "again": True}, {"letters": [], "token": "x" * 65}):
            assert (await place.ask("POST", f"{letters}/resends", wrong, **as_vera))[0] == 400

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
def test_damaged_files_are_no_reason_to_fail(place: ConsoleFixture, changes: dict[str, object]) -> None:
    async def ask() -> None:
        keep(place, RUN, name=7, **changes)
        status, answer, _ = await place.ask("GET", PIPELINES)
        assert (status, [(row["name"], row["state"]) for row in answer["pipelines"]]) == (
            200,
            [("page-views", "unreadable")],
        )

    run(place, ask)


def test_the_folder_belongs_to_one_cluster(place: ConsoleFixture) -> None:
    async def ask() -> None:
        keep(place, RUN)
        place.console.pipelines_cluster = "other"
        assert (await place.ask("GET", PIPELINES))[1] == {"pipelines": [], "is_here": False, "elsewhere": 0}
        assert (await place.ask("GET", f"{PIPELINES}/page-views"))[0] == 404
        assert (await place.ask("POST", f"{PIPELINES}/page-views/stops"))[0] == 404

    run(place, ask)


def test_a_stop_asks_the_process_and_stands_in_the_trail(
    place: ConsoleFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(requests.os, "kill", lambda *what: sent.append(what))

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


def test_viewers_cannot_stop_a_pipeline_and_grants_match_name_patterns(tmp_path: Path) -> None:
    vera = Person("vera", hash_password("secret-1"), [Grant("viewer", "*", "page-*")])
    place = ConsoleFixture(tmp_path, needs_sign_in=True, people=(vera,))
    place.console.pipelines_folder = tmp_path / "pipelines"
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


# ---- the resend ledger


ORIGIN = LetterTopic("default", "shop-dead-letters", "id-1")
ONE, TWO = Claim(0, 1, "shop"), Claim(0, 2, "shop")


def test_a_letter_goes_to_a_topic_once(tmp_path: Path) -> None:
    tables = Tables(tmp_path / "console.db")
    assert resend_ledger.claim(tables, ORIGIN, [ONE, TWO], "", "ann", 5) == [ONE, TWO]
    assert resend_ledger.claim(tables, ORIGIN, [ONE, TWO], "", "bob", 6) == [], "the second click"
    resend_ledger.record_outcomes(tables, ORIGIN, [ONE], [TWO], "")
    assert resend_ledger.earlier_resends(tables, ORIGIN, [(0, 1), (0, 2)]) == {
        (0, 1): [Resend("shop", "sent", 5, "ann")]
    }
    assert resend_ledger.claim(tables, ORIGIN, [ONE, TWO], "", "bob", 7) == [TWO], "what was refused is free again"
    assert resend_ledger.earlier_resends(tables, ORIGIN, [(0, 2)])[0, 2][0].outcome == "unsure", "until it is settled"

    assert resend_ledger.claim(tables, ORIGIN, [ONE._replace(target="elsewhere")], "", "ann", 8)
    assert resend_ledger.claim(tables, ORIGIN._replace(topic_id="id-2"), [ONE], "", "ann", 8), (
        "another topic of that name"
    )
    assert resend_ledger.claim(tables, ORIGIN, [ONE], "token", "ann", 9) == [ONE]
    assert resend_ledger.claim(tables, ORIGIN, [ONE], "token", "ann", 9) == []


def test_old_ones_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resend_ledger, "ROWS_MAX", 3)
    tables = Tables(tmp_path / "console.db")
    resend_ledger.claim(tables, ORIGIN, [Claim(0, number, "shop") for number in range(5)], "", "ann", 5)
    assert set(resend_ledger.earlier_resends(tables, ORIGIN, [(0, number) for number in range(5)])) == {
        (0, 2),
        (0, 3),
        (0, 4),
    }
