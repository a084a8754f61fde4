"""Rights, password hashes, lifetime of sessions, allowed host names, and the token of a console without sign-in."""

import asyncio
import os
import stat
from pathlib import Path
from urllib.parse import quote

import pytest
from tests import virtual_time
from tests.unit.console.test_api import TOKEN, TOPICS, ConsoleFixture, run

from ottla.base import passwords
from ottla.base.passwords import LoginBackoff, hash_password, is_password
from ottla.cli.commands.console import print_links
from ottla.cli.terminal import ToolError
from ottla.console.api.routes import ROUTES
from ottla.console.app import allowed_hosts
from ottla.console.auth.local_link import LinkFile, make_link, read_links
from ottla.console.auth.rights import (
    FULL_GRANTS,
    Grant,
    Role,
    has_role,
    highest_role,
    may_read_messages,
    sees_all_names,
)
from ottla.console.auth.sessions import LIFETIME_MS, Sessions
from ottla.console.store import Tables

OPERATOR = [Grant("operator", "test-*", "orders.*"), Grant("viewer", "test-*")]


@pytest.mark.parametrize(
    ("role", "cluster", "name", "is_allowed"),
    [
        (Role.OPERATOR, "test-1", "orders.new", True),
        (Role.OPERATOR, "test-1", "billing", False),
        (Role.VIEWER, "test-1", "billing", True),
        (Role.VIEWER, "production", "orders.new", False),
        (Role.ADMIN, "test-1", "orders.new", False),
        (Role.VIEWER, None, None, False),
    ],
)
def test_a_role_counts_where_its_patterns_do(
    role: Role, cluster: str | None, name: str | None, is_allowed: bool
) -> None:
    assert has_role(OPERATOR, role, cluster, name) is is_allowed


def test_reading_messages_is_a_right_of_its_own() -> None:
    assert not may_read_messages([Grant("admin")], "default", "orders")
    assert may_read_messages([Grant("viewer", names="orders*", may_read_messages=True)], "default", "orders")
    assert not may_read_messages([Grant("viewer", names="orders*", may_read_messages=True)], "default", "payments")


def test_what_lists_may_be_shared() -> None:
    assert sees_all_names(OPERATOR, "test-1")
    assert not sees_all_names([Grant("operator", names="orders.*")], "default")
    assert highest_role(OPERATOR, "test-1") is Role.OPERATOR
    assert highest_role(OPERATOR, "elsewhere") is None
    assert has_role(FULL_GRANTS, Role.ADMIN)


def test_a_password_is_kept_as_a_hash_with_a_salt() -> None:
    kept = hash_password("correct horse")
    assert "horse" not in kept
    assert kept != hash_password("correct horse")
    assert is_password("correct horse", kept)
    assert not is_password("wrong horse", kept)
    assert not is_password("correct horse", None), "unknown name"


def test_after_some_failures_the_next_must_wait() -> None:
    tries = LoginBackoff()
    keys = ("name anna", "address 10.0.0.1")
    for _ in range(passwords.FREE_FAILURES - 1):
        tries.record_failure(keys, 0)
        assert tries.wait_ms(keys, 0) == 0
    waits = []
    for _ in range(9):
        tries.record_failure(keys, 0)
        waits.append(tries.wait_ms(keys, 0))
    assert waits == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]
    assert tries.wait_ms(("name bert", "address 10.0.0.1"), 0) == 60_000, "another name from the same address"
    assert tries.wait_ms(keys, 60_000) == 0
    tries.record_success(keys)
    assert not tries.failures


def test_a_session_ends_after_its_life_or_when_its_person_signs_out() -> None:
    async def main() -> None:
        sessions = Sessions()
        secret = sessions.start("anna", FULL_GRANTS, 0)
        session = sessions.find(secret, LIFETIME_MS - 1)
        assert session is not None
        assert session.person == "anna"
        assert sessions.find(secret, LIFETIME_MS) is None
        assert session.ended.is_set(), "streams under it end"
        first, second = (sessions.start("bert", FULL_GRANTS, 0) for _ in range(2))
        sessions.end_all("bert")
        assert sessions.find(first, 1) is sessions.find(second, 1) is None
        await asyncio.sleep(0)

    virtual_time.run(main())


def test_on_loopback_only_its_own_names_lead_here() -> None:
    hosts = allowed_hosts("127.0.0.1", ["console.example"])
    for name in ("127.0.0.1:8080", "localhost:8080", "[::1]:8080", "console.example", "CONSOLE.example:80"):
        assert hosts.allows(name)
    for name in ("evil.example", "10.0.0.5:8080", "", "127.0.0.1.evil.example"):
        assert not hosts.allows(name)


def test_elsewhere_addresses_in_numbers_do_too() -> None:
    hosts = allowed_hosts("0.0.0.0")
    assert hosts.allows("10.0.0.5:8080")
    assert hosts.allows("[fe80::1]:8080")
    assert not hosts.allows("evil.example:8080")


# ---- A console without sign-in serves the user who started it, by the token of its link.


LINK = f"/c/default/topics?q=orders&token={quote(TOKEN)}&sort=-rate"
BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8", "cookie": ""}


@pytest.fixture
def place(tmp_path: Path) -> ConsoleFixture:
    return ConsoleFixture(tmp_path)


async def cookie_of(place: ConsoleFixture) -> str:
    _, _, headers = await place.ask("GET", LINK, **BROWSER)
    return headers["set-cookie"].partition(";")[0]


def test_requests_from_loopback_were_admin_without_any_proof(place: ConsoleFixture) -> None:
    """A proxy on the same host also connects from loopback, and nginx's proxy_pass adds no header."""

    async def ask() -> None:
        for route in ROUTES:
            path = route.path.replace("{cluster}", "default").replace("{", "").replace("}", "")
            body = {} if route.body is not None else None
            if route.required_role is not None:
                status, answer, headers = await place.ask(route.method, path, body, cookie="")
                assert (status, answer["error"]) == (401, "UNAUTHENTICATED"), path
                assert "ottla console link" in answer["message"]
                assert headers["www-authenticate"] == "Bearer"
        _, answer, _ = await place.ask("GET", "/api/session", cookie="")
        assert (answer["person"], answer["grants"], answer["version"]) == ("", [], "")
        assert not place.cluster.changes

    run(place, ask)


def test_the_link_becomes_a_cookie_of_this_port_and_leaves_the_address(place: ConsoleFixture) -> None:
    async def ask() -> None:
        status, _, headers = await place.ask("GET", LINK, **BROWSER)
        assert (status, headers["location"]) == (303, "/c/default/topics?q=orders&sort=-rate")
        cookie, *attributes = headers["set-cookie"].split("; ")
        assert cookie.startswith("ottla_session_8080="), "another port's console does not overwrite it"
        assert {"HttpOnly", "SameSite=Strict", f"Max-Age={LIFETIME_MS // 1000}"} <= set(attributes)
        assert TOKEN not in headers["set-cookie"]
        assert headers["cache-control"] == "no-store"
        assert (await place.ask("GET", TOPICS, cookie=cookie))[0] == 200
        assert (await place.ask("GET", "/api/session", cookie=cookie))[1]["person"] == "local"
        session = place.console.authenticator.sessions.find(cookie.partition("=")[2], place.console.clock.now_ms())
        assert session is not None
        assert (await place.ask("DELETE", "/api/session", cookie=cookie))[0] == 204
        assert session.ended.is_set(), "its streams end"
        assert (await place.ask("GET", TOPICS, cookie=cookie))[0] == 401

    run(place, ask)


@pytest.mark.parametrize("path", ["/?token=guess", "//?token=guess", "/c/default?token=", f"/?token={TOKEN[:-1]}"])
def test_a_wrong_token_opens_nothing_and_leaves_the_address_too(place: ConsoleFixture, path: str) -> None:
    async def ask() -> None:
        status, _, headers = await place.ask("GET", path, **BROWSER)
        assert status == 303
        assert headers["location"] in ("/", "/c/default")
        assert "set-cookie" not in headers

    run(place, ask)


@pytest.mark.parametrize("path", ["/api/clusters", "/static/style.css", "//evil.example/", "/nothing"])
def test_a_token_in_an_address_counts_for_pages_alone(place: ConsoleFixture, path: str) -> None:
    async def ask() -> None:
        status, _, headers = await place.ask("GET", f"{path}?token={quote(TOKEN)}", cookie="")
        assert status in (200, 401, 404)
        assert "set-cookie" not in headers
        assert "location" not in headers

    run(place, ask)


def test_programs_send_the_token_as_bearer_and_nothing_else_counts(place: ConsoleFixture) -> None:
    async def ask() -> None:
        assert (await place.ask("GET", TOPICS, authorization=f"Bearer {TOKEN}"))[0] == 200
        for wrong in ("Bearer guess", "Bearer ", f"Bearer {TOKEN}x", "Basic bG9jYWw6", TOKEN, f"Token {TOKEN}"):
            assert (await place.ask("GET", TOPICS, authorization=wrong))[0] == 401, wrong

    run(place, ask)


def test_the_sign_in_page_takes_the_token(place: ConsoleFixture) -> None:
    async def ask() -> None:
        for wrong in ({"token": "guess"}, {"token": ""}, {}, {"name": "admin", "password": "x"}):
            status, answer, headers = await place.ask("POST", "/api/session", wrong, cookie="")
            assert (status, answer["error"]) == (401, "WRONG_TOKEN")
            assert "set-cookie" not in headers
        status, _, headers = await place.ask("POST", "/api/session", {"token": TOKEN}, cookie="")
        assert status == 204
        assert (await place.ask("GET", TOPICS, cookie=headers["set-cookie"].partition(";")[0]))[0] == 200

    run(place, ask)


@pytest.mark.parametrize("header", ["x_forwarded_for", "forwarded", "via", "x_real_ip", "x_forwarded_host"])
def test_what_a_proxy_passes_on_is_refused_with_the_cure(place: ConsoleFixture, header: str) -> None:
    async def ask() -> None:
        proxied = {header: "203.0.113.9"}
        cookie = await cookie_of(place)
        for path in ("/", "/api/session", TOPICS, "/static/style.css", "/?token=guess"):
            status, answer, _ = await place.ask("GET", path, cookie="", **proxied)
            assert (status, answer["error"]) == (403, "BEHIND_PROXY"), path
            assert "--sign-in" in answer["message"]
        status, page, headers = await place.ask("GET", "/", **BROWSER, **proxied)
        assert (status, headers["content-type"]) == (403, "text/html; charset=utf-8")
        assert b"--sign-in" in page
        assert (await place.ask("GET", TOPICS, authorization=f"Bearer {TOKEN}", **proxied))[0] == 200
        assert (await place.ask("GET", TOPICS, cookie=cookie, **proxied))[0] == 200
        assert (await place.ask("GET", LINK, **BROWSER, **proxied))[0] == 303

    run(place, ask)


def test_with_sign_in_a_proxy_may_pass_requests_on_and_the_token_of_no_link_counts(tmp_path: Path) -> None:
    place = ConsoleFixture(tmp_path, needs_sign_in=True)

    async def ask() -> None:
        assert (await place.ask("GET", "/", x_forwarded_for="203.0.113.9"))[0] == 200
        assert (await place.ask("GET", "/?token="))[0] == 200
        assert (await place.ask("POST", "/api/session", {"token": ""}))[0] == 401
        assert (await place.ask("GET", TOPICS, authorization="Bearer "))[0] == 401

    run(place, ask)


def test_the_token_stands_in_no_log_and_no_audit_entry(place: ConsoleFixture, caplog: pytest.LogCaptureFixture) -> None:
    async def ask() -> None:
        cookie = await cookie_of(place)
        await place.ask("POST", "/api/session", {"token": TOKEN}, cookie="")
        await place.ask("DELETE", f"{TOPICS}/x?token={quote(TOKEN)}", cookie=cookie)
        del place.cluster.snapshot
        assert (await place.ask("GET", f"{TOPICS}?token={quote(TOKEN)}", cookie=cookie))[0] == 500
        entries = place.store.run_sync(Tables.audit, 10)
        assert entries
        assert TOKEN not in f"{caplog.text} {entries} {place.console.authenticator!r}"

    run(place, ask)


# ---- the file


def test_the_link_lies_in_a_file_that_its_owner_alone_reads(tmp_path: Path) -> None:
    secret = tmp_path / "somewhere"
    secret.write_text("as it was")
    (tmp_path / "console-8080.link").symlink_to(secret)
    old = os.umask(0)
    try:
        link = LinkFile(tmp_path, 8080, make_link("http://127.0.0.1:8080", "secret"))
    finally:
        os.umask(old)
    assert stat.S_IMODE(link.path.stat().st_mode) == 0o600
    assert (link.path.is_symlink(), secret.read_text()) == (False, "as it was")
    other = LinkFile(tmp_path, 8090, make_link("http://127.0.0.1:8090", "other"))
    assert read_links(tmp_path) == {
        8080: "http://127.0.0.1:8080/?token=secret",
        8090: "http://127.0.0.1:8090/?token=other",
    }
    other.remove()
    assert list(read_links(tmp_path)) == [8080]
    link.remove()
    assert read_links(tmp_path) == read_links(tmp_path / "nothing") == {}


def test_a_command_prints_the_link_of_a_console_that_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "console"  # as `ottla up --data` has it
    folder.mkdir()
    (folder / "console-8070.link").write_text("http://127.0.0.1:8070/?token=of-one-that-was-killed\n")
    link = LinkFile(folder, 8080, make_link("http://127.0.0.1:8080", "secret"))
    assert print_links(["--data", str(tmp_path)]) == 0
    assert print_links(["--data", str(folder), "--port", "8080"]) == 0
    assert capsys.readouterr().out == "http://127.0.0.1:8080/?token=secret\n" * 2
    with pytest.raises(ToolError, match=r"no console runs .* on port 8070"):
        print_links(["--data", str(tmp_path), "--port", "8070"])
    link.remove()
    with pytest.raises(ToolError, match="--data DIR"):
        print_links(["--data", str(tmp_path)])
