"""Who is cut off for the versions it speaks: counted, told now and then, and never without a bound."""

from ottla.metrics.unsupported_requests import (
    KEPT_MS,
    LINE_MS,
    NAME_LENGTH_MAX,
    OTHERS,
    ROWS_MAX,
    UnsupportedRequest,
    UnsupportedRequests,
)

HOST = "10.0.0.7"
FETCH = UnsupportedRequest("billing", "librdkafka", "0.11.0", "Fetch", 3)


def test_a_client_is_logged_once_a_minute_with_the_suppressed_count() -> None:
    noted = UnsupportedRequests()
    assert [noted.record(HOST, FETCH, now_ms) for now_ms in (0, 1, LINE_MS - 1)] == [0, None, None]
    assert noted.record(HOST, FETCH._replace(client_id="shop"), 5) == 0
    assert noted.record("10.0.0.8", FETCH, 5) == 0
    assert noted.record(HOST, FETCH._replace(version=2), LINE_MS) == 2
    assert {asked.version: row.count for asked, row in noted.rows.items() if asked.client_id == "billing"} == {
        3: 4,
        2: 1,
    }


def test_clients_with_ever_new_names_cost_a_bounded_number_of_rows_and_lines() -> None:
    noted = UnsupportedRequests()
    told = [noted.record(HOST, FETCH._replace(client_id=str(number)), 1) for number in range(1000)]
    assert len(noted.rows) == ROWS_MAX + 1
    assert sum(row.count for row in noted.rows.values()) == 1000
    assert noted.rows[UnsupportedRequest(OTHERS, OTHERS, OTHERS, OTHERS, 0)].count == 1000 - ROWS_MAX
    assert sum(line is not None for line in told) == ROWS_MAX + 1
    assert noted.record(HOST, FETCH._replace(client_id="0"), 2) is None, "those from before are still known"


def test_who_was_brought_up_to_date_is_forgotten_after_a_day() -> None:
    noted = UnsupportedRequests()
    noted.record(HOST, FETCH, 0)
    noted.record(HOST, FETCH._replace(version=2), KEPT_MS - 1)
    noted.forget_old(KEPT_MS)
    assert [asked.version for asked in noted.rows] == [2]


def test_names_are_short_and_stay_on_one_line() -> None:
    asked = UnsupportedRequest.by("a\nottla_info 1", "b\r" * NAME_LENGTH_MAX, "ä", "Fetch", 3)
    assert asked == UnsupportedRequest("a?ottla_info 1", "b?" * (NAME_LENGTH_MAX // 2), "ä", "Fetch", 3)
    assert UnsupportedRequest.by(None, "", "", "Fetch", 3).client_id == ""
