"""A console behind a real nginx whose only directive is `proxy_pass`: it adds no header of its own, and
calls from loopback as the local user does.
"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.browser.conftest import LINK, ConsoleProcess
from tests.conftest import ottla_command

pytestmark = pytest.mark.needs_ottla

CLUSTERS = "/api/clusters"
SECONDS_MAX = 30
NGINX = """
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log {folder}/access.log;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass {address};
            {more}
        }}
    }}
}}
"""


class NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def get(address: str, headers: Mapping[str, str] = {}) -> tuple[int, Mapping[str, str], str]:
    request = urllib.request.Request(address, headers=dict(headers))
    try:
        with urllib.request.build_opener(NoRedirects).open(request, timeout=SECONDS_MAX) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.headers, refused.read().decode()


class Nginx:
    def __init__(self, folder: Path, address: str, more: str) -> None:
        program = shutil.which("nginx") or "/usr/sbin/nginx"
        assert Path(program).exists(), "nginx is not installed (Debian: apt-get install nginx-light)"
        folder.mkdir()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        config = folder / "nginx.conf"
        config.write_text(NGINX.format(folder=folder, port=port, address=address, more=more))
        self.address = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(
            [program, "-c", str(config), "-p", str(folder), "-e", str(folder / "error.log")]
        )
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            assert self.process.poll() is None, (folder / "error.log").read_text()
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                return
            except ConnectionRefusedError:
                assert time.monotonic() < deadline
                time.sleep(0.02)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(SECONDS_MAX)


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    """The rights of users do not depend on a cluster that does not answer."""
    console = ConsoleProcess(tmp_path_factory.mktemp("console"), "--bootstrap-server", "127.0.0.1:1")
    try:
        yield console
        console.stop()
    finally:
        console.process.kill()
        console.process.wait()


def proxied(tmp_path: Path, console: ConsoleProcess, more: str = "") -> Iterator[Nginx]:
    nginx = Nginx(tmp_path / "nginx", console.address, more)
    try:
        yield nginx
    finally:
        nginx.stop()


@pytest.fixture
def plain_nginx(tmp_path: Path, console: ConsoleProcess) -> Iterator[Nginx]:
    yield from proxied(tmp_path, console)


@pytest.fixture
def nginx_that_tells(tmp_path: Path, console: ConsoleProcess) -> Iterator[Nginx]:
    yield from proxied(tmp_path, console, "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;")


def test_every_remote_user_of_a_proxy_on_the_same_host_was_admin(console: ConsoleProcess, plain_nginx: Nginx) -> None:
    status, headers, text = get(plain_nginx.address + CLUSTERS)
    assert (status, headers["WWW-Authenticate"]) == (401, "Bearer"), text
    status, _, page = get(f"{plain_nginx.address}/c/default/topics", {"Accept": "text/html"})
    assert status == 200
    assert "default" not in page, "the sign-in page knows nothing of the cluster"
    assert get(plain_nginx.address + CLUSTERS, {"Authorization": "Bearer guess"})[0] == 401
    assert get(plain_nginx.address + CLUSTERS, {"Authorization": f"Bearer {console.token}"})[0] == 200
    status, headers, _ = get(f"{plain_nginx.address}/c/default?token={console.token}")
    assert (status, headers["Location"]) == (303, "/c/default")
    assert get(plain_nginx.address + CLUSTERS, {"Cookie": headers["Set-Cookie"].partition(";")[0]})[0] == 200


def test_a_proxy_that_names_itself_in_headers_gets_advice(console: ConsoleProcess, nginx_that_tells: Nginx) -> None:
    status, _, text = get(nginx_that_tells.address + CLUSTERS)
    assert status == 403
    assert "BEHIND_PROXY" in text
    assert "--sign-in" in text
    assert get(nginx_that_tells.address + CLUSTERS, {"Authorization": f"Bearer {console.token}"})[0] == 200


def test_the_token_of_a_service_stands_in_a_file_alone_and_is_new_at_each_start(tmp_path: Path) -> None:
    tokens = set()
    for _ in range(2):
        console = ConsoleProcess(tmp_path, "--bootstrap-server", "127.0.0.1:1")
        port = console.address.rpartition(":")[2]
        link = tmp_path / f"console-{port}.link"
        assert link.stat().st_mode & 0o777 == 0o600
        assert get(f"{console.address}/?token={console.token}")[0] == 303
        assert get(f"{console.address}/api/nothing?token={console.token}")[0] == 404
        console.stop()
        assert console.token not in console.text
        assert not link.exists()
        tokens.add(console.token)
    assert len(tokens) == 2


def read_until(terminal: int, wanted: bytes, seen: bytes = b"") -> bytes:
    while wanted not in seen:
        assert select.select([terminal], [], [], 2 * SECONDS_MAX)[0], seen.decode(errors="replace")
        seen += os.read(terminal, 65_536)
    return seen


def eventually_status(address: str, wanted: int) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        with contextlib.suppress(ConnectionError, urllib.error.URLError):
            assert get(address)[0] == wanted
            return
        assert time.monotonic() < deadline
        time.sleep(0.05)


def up(folder: Path, **streams: Any) -> subprocess.Popen[bytes]:
    words = ["up", "--port", "0", "--console-port", "0", "--no-registry", "--data", str(folder)]
    return subprocess.Popen([*ottla_command(), *words], stderr=subprocess.DEVNULL, start_new_session=True, **streams)


def test_ottla_up_prints_the_link_on_a_terminal(tmp_path: Path) -> None:
    terminal, theirs = pty.openpty()
    with up(tmp_path, stdout=theirs, stdin=theirs) as process:
        os.close(theirs)
        try:
            seen = read_until(terminal, b"Next, in another terminal")
            found = re.search(rb"(http://127\.0\.0\.1:\d+)/\?token=([\w-]{32})", seen)
            assert found is not None, seen
            address, token = found[1].decode(), found[2].decode()
            eventually_status(f"{address}/?token={token}", 303)
            assert get(address + CLUSTERS)[0] == 401
            assert get(address + CLUSTERS, {"Authorization": f"Bearer {token}"})[0] == 200
            assert token not in Path(f"/proc/{process.pid}/cmdline").read_text()
            printed = subprocess.run(
                [*ottla_command(), "console", "link", "--data", str(tmp_path)],
                capture_output=True,
                check=True,
                text=True,
            )
            assert printed.stdout == f"{address}/?token={token}\n"
        finally:
            process.terminate()
            process.wait(SECONDS_MAX)
            os.close(terminal)


def test_ottla_up_as_a_service_says_where_the_link_is_and_not_the_token(tmp_path: Path) -> None:
    with up(tmp_path, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            lines = b""
            while b"ottla console ready" not in lines:
                line = process.stdout.readline()
                assert line, lines
                lines += line
            found = LINK.search(lines.decode())
            assert found is not None
            link = Path(found[1])
            assert link.is_relative_to(tmp_path)
            assert link.stat().st_mode & 0o777 == 0o600
            token = link.read_text().strip().partition("token=")[2]
            assert token
            assert token.encode() not in lines
        finally:
            process.terminate()
            process.wait(SECONDS_MAX)
