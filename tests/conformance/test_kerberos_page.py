"""The five minutes of docs/security-kerberos.md, word for word."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.testing.broker import Broker
from ottla.testing.kdc import Kdc, is_installed

pytestmark = [pytest.mark.needs_ottla, pytest.mark.skipif(not is_installed(), reason="no krb5-kdc on this machine")]

PAGE = Path(__file__).parents[2] / "docs" / "security-kerberos.md"
FILE = re.compile(r"`([a-z_]+\.(?:properties|conf))`:\n\n```\w+\n(.*?)```", re.DOTALL)
COMMANDS = re.compile(r"```sh\n(.*?)```", re.DOTALL)
RUN_SECONDS_MAX = 120


def test_five_minutes(tmp_path: Path) -> None:
    text = PAGE.read_text()
    files = dict(FILE.findall(text))
    assert list(files) == ["server.properties", "kafka_server_jaas.conf", "client.properties", "jaas.conf"]
    for name, content in files.items():
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o600)
    on_kdc, of_client = COMMANDS.findall(text)
    with Kdc() as kdc:
        path = f"{Path(sys.executable).parent}:/usr/sbin:{os.environ['PATH']}"
        environment = {**os.environ, **kdc.environment, "KRB5_KDC_PROFILE": str(kdc.folder / "kdc.conf"), "PATH": path}

        def run(commands: str) -> str:
            done = subprocess.run(
                ["sh", "-e", "-c", commands],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=RUN_SECONDS_MAX,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        run(on_kdc)
        settings = dict(line.split("=", 1) for line in files["server.properties"].splitlines())
        settings |= {"listeners": "SASL_PLAINTEXT://localhost:0", "ottla.log.level": "DEBUG"}
        del settings["log.dirs"]
        section = f"-Djava.security.auth.login.config={tmp_path}/kafka_server_jaas.conf"
        jaas = tmp_path / "kafka_server_jaas.conf"
        jaas.write_text(jaas.read_text().replace("kafka.keytab", f"{tmp_path}/kafka.keytab"))  # it runs elsewhere
        with Broker(settings, environment={**kdc.environment, "KAFKA_OPTS": section}) as broker:
            said = run(of_client.replace("localhost:9092", broker.bootstrap_servers))
            assert said.splitlines()[-1] == "one pair of socks"
            assert "User:alice" in broker.logs
