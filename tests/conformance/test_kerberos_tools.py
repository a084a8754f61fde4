"""Our tools at a broker that asks for a login by Kerberos: the ways in which people write down how to log in."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.conformance.kerberos_realm import SERVICE, living_in, noted, settings

from ottla.operations.range_fetcher import OffsetRange
from ottla.pipelines.sinks.at_least_once import producer_settings, send_batches
from ottla.pipelines.sinks.batch import SinkError
from ottla.pipelines.sinks.topic import AtLeastOnceTopic, ExactlyOnceTopic
from ottla.pipelines.source.options import read_options
from ottla.pipelines.source.range_reader import read_range
from ottla.testing.broker import Broker
from ottla.testing.kdc import Kdc, is_installed

pytestmark = [pytest.mark.needs_ottla, pytest.mark.skipif(not is_installed(), reason="no krb5-kdc on this machine")]

RUN_SECONDS_MAX = 60
CLIENT = "security.protocol=SASL_PLAINTEXT\nsasl.kerberos.service.name = kafka\n"
SECTION = (
    "KafkaClient {{\n  com.sun.security.auth.module.Krb5LoginModule required\n  useKeyTab=true\n  storeKey=true\n"
    '  keyTab="user.keytab"\n  principal="{principal}@EXAMPLE.COM";\n}};\n'
)


@pytest.fixture(scope="module")
def kdc() -> Iterator[Kdc]:
    with Kdc() as realm:
        yield realm


@pytest.fixture(scope="module")
def broker(kdc: Kdc) -> Iterator[Broker]:
    with Broker(settings(kdc), environment=kdc.environment) as running:
        yield running


class Folder:
    """A working folder with the files that people have, and tools that run in it."""

    def __init__(self, path: Path, kdc: Kdc, broker: Broker) -> None:
        self.path = path
        self.kdc = kdc
        self.broker = broker
        self.where = ["--bootstrap-server", broker.bootstrap_servers, "--command-config", "client.properties"]
        self.write("client.properties", CLIENT)

    def write(self, name: str, text: str) -> None:
        (self.path / name).write_text(text)
        (self.path / name).chmod(0o600)

    def put_jaas(self, principal: str, name: str = "jaas.conf") -> None:
        (self.path / "user.keytab").write_bytes(self.kdc.keytab(principal).read_bytes())
        self.write(name, SECTION.format(principal=principal))

    def run(self, *words: str, lines: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "KRB5_CONFIG": str(self.kdc.krb5_conf), "KRB5CCNAME": f"FILE:{self.path}/cache"}
        return subprocess.run(
            [sys.executable, "-m", "ottla.cli.main", *words, *self.where],
            cwd=self.path,
            env=environment | variables,
            input=lines,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS_MAX,
            check=False,
        )

    def good(self, *words: str, lines: str = "", **variables: str) -> str:
        done = self.run(*words, lines=lines, **variables)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return done.stdout


@pytest.fixture
def folder(tmp_path: Path, kdc: Kdc, broker: Broker) -> Folder:
    return Folder(tmp_path, kdc, broker)


def test_a_jaas_file_and_a_keytab_in_the_working_folder(folder: Folder) -> None:
    folder.put_jaas("olga")
    folder.good("topics", "create", "here", "--partitions", "3")
    assert "here" in folder.good("topics", "list")
    folder.good("produce", "here", lines="one\ntwo\nthree\n")
    assert sorted(folder.good("consume", "here", "--from-beginning", "--until-end").split()) == ["one", "three", "two"]
    noted(folder.broker, "<Identity User:olga> has logged in")


def test_a_jaas_file_that_kafka_opts_names(folder: Folder) -> None:
    folder.put_jaas("paul", "elsewhere.conf")
    options = "-Djava.security.auth.login.config=elsewhere.conf"
    folder.good("topics", "list", KAFKA_OPTS=options)
    noted(folder.broker, "<Identity User:paul> has logged in")


def test_a_krb5_conf_that_kafka_opts_names(folder: Folder) -> None:
    folder.put_jaas("petra")
    environment = {name: value for name, value in os.environ.items() if name != "KRB5_CONFIG"}
    done = subprocess.run(
        [sys.executable, "-m", "ottla.cli.main", "topics", "list", *folder.where],
        cwd=folder.path,
        env=environment | {"KAFKA_OPTS": f"-Djava.security.krb5.conf={folder.kdc.krb5_conf}"},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    noted(folder.broker, "<Identity User:petra> has logged in")


def test_a_login_in_the_properties(folder: Folder) -> None:
    jaas = folder.kdc.jaas("quentin")
    folder.write("client.properties", f"{CLIENT}sasl.mechanism=GSSAPI\nsasl.jaas.config={jaas}\n")
    folder.good("produce", "properties", "socks")
    assert folder.good("consume", "properties", "--from-beginning", "--until-end") == "socks\n"
    noted(folder.broker, "<Identity User:quentin> has logged in")


def test_the_ticket_cache_of_kinit_is_used(folder: Folder) -> None:
    """Without JAAS, as librdkafka does it, and with useTicketCache."""
    folder.kdc.ticket("rosa", folder.path / "cache")
    folder.good("produce", "cache", "socks")
    noted(folder.broker, "<Identity User:rosa> has logged in")
    own = folder.kdc.ticket("sam", folder.path / "own-cache")
    module = f'com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true ticketCache="{own}";'
    folder.write("client.properties", f"{CLIENT}sasl.jaas.config={module}\n")
    folder.good("topics", "list")
    folder.good("produce", "cache", "shoes")
    noted(folder.broker, "<Identity User:sam> has logged in")


def test_groups_commit_the_printed_records(folder: Folder) -> None:
    folder.put_jaas("tina")
    folder.good("produce", "grouped", lines="one\ntwo\nthree\n")
    words = ("consume", "grouped", "--group", "readers", "--from-beginning")
    assert folder.good(*words, "--max-messages", "2") == "one\ntwo\n"
    assert folder.good(*words, "--max-messages", "1") == "three\n"


def test_records_keep_all_their_parts(folder: Folder) -> None:
    folder.put_jaas("uwe")
    record = {"key": "k", "value": "v", "headers": [["colour", "red"]], "partition": 1, "timestamp": 1_700_000_000_000}
    folder.good("topics", "create", "parts", "--partitions", "2", "--config", "retention.ms=-1")  # it is an old one
    folder.good("produce", "parts", "--format", "json", lines=json.dumps(record) + "\n")
    lines = folder.good("consume", "parts", "--from-beginning", "--until-end", "--json").splitlines()
    assert json.loads(lines[0]).items() >= record.items()


def test_pipelines_read_with_kerberos(folder: Folder) -> None:
    """The reader of Spark's tasks, with the properties that a pipeline's file has under `client`."""
    folder.put_jaas("wim")
    folder.good("produce", "piped", lines="one\ntwo\nthree\n")
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.jaas.config": folder.kdc.jaas("wim")}
    login |= {"bootstrap.servers": folder.broker.bootstrap_servers, "sasl.kerberos.service.name": "kafka"}
    options = read_options({"subscribe": "piped", **{f"kafka.{name}": value for name, value in login.items()}})
    with living_in(folder.kdc):
        batches = list(read_range(OffsetRange("piped", 0, 0, 3), options))
    assert [value for batch in batches for value in batch.column("value").to_pylist()] == [b"one", b"two", b"three"]


def test_pipelines_write_with_kerberos(folder: Folder) -> None:
    """The writer of Spark's tasks, with the same properties: at least once, and nothing else."""
    folder.put_jaas("yann")
    folder.good("topics", "create", "written", "--partitions", "2")
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.jaas.config": folder.kdc.jaas("yann")}
    login |= {"sasl.kerberos.service.name": "kafka"}
    servers = folder.broker.bootstrap_servers
    with living_in(folder.kdc):
        sink = AtLeastOnceTopic("written", servers, login)
        target = sink.target()
        assert target.record_bytes_max == 1_048_588
        values = [b"%d" % number for number in range(1_000)]
        rows = pa.RecordBatch.from_pydict({"value": values, "key": values})
        headed = rows.append_column("timestamp_ms", pa.array([1_700_000_000_000] * 1_000, pa.int64()))
        report = send_batches(iter([rows, headed]), producer_settings(sink.client(), target), target)
        assert report == (2_000, 0)
        with pytest.raises(SinkError, match="delivery: at-least-once"):
            ExactlyOnceTopic("written", servers, login).target()
        with pytest.raises(SinkError, match="topic nowhere cannot be described"):
            AtLeastOnceTopic("nowhere", servers, login).target()
    lines = folder.good("consume", "written", "--from-beginning", "--until-end").splitlines()
    assert sorted(lines) == sorted(value.decode() for value in values * 2)


def test_the_doctor_logs_in_at_every_broker(folder: Folder) -> None:
    folder.put_jaas("xenia")
    done = folder.run("doctor")
    assert "cannot be reached" not in done.stdout
    assert "1 broker" in done.stderr


# ---- errors are reported in one line


def test_records_that_are_not_stored(folder: Folder) -> None:
    folder.put_jaas("arno")
    folder.good("topics", "create", "narrow")
    done = folder.run("produce", "narrow", lines="x" * 2_000_000 + "\nsmall\n")
    assert done.returncode == 1
    assert "message 1 (2000000 bytes) was not stored in narrow: it is larger than max.request.size" in done.stderr
    done = folder.run("produce", "narrow", "socks", "--partition", "7")
    assert done.returncode == 1
    assert "was not stored in narrow" in done.stderr
    assert "Traceback" not in done.stderr
    assert folder.good("consume", "narrow", "--from-beginning", "--until-end") == "small\n"


def test_the_doctor_names_the_fault(folder: Folder) -> None:
    folder.put_jaas("yves")
    folder.write("client.properties", CLIENT.replace("= kafka", "= kafak"))
    done = folder.run("doctor")
    assert done.returncode == 1
    assert "PROBLEM F10: the login at localhost:" in done.stdout
    assert "cause: Kerberos knows no such service" in done.stdout
    folder.write("client.properties", "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=a\n")
    folder.write("client.properties", (folder.path / "client.properties").read_text() + "sasl.password=b\n")
    assert "cause: the client logs in by another mechanism than the listener offers" in folder.run("doctor").stdout


def test_figures_are_of_librdkafka_or_none(folder: Folder) -> None:
    """Our librdkafka has no Kerberos: the tools that measure say so instead of measuring something else."""
    folder.put_jaas("zoe")
    folder.good("topics", "create", "measured")
    for words in (("perf", "produce", "measured", "--records", "10"), ("perf", "consume", "measured")):
        done = folder.run(*words)
        assert done.returncode == 1
        assert "this tool measures librdkafka" in done.stderr
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ("security.protocol=SASL_PLAINTEXT\n", "No serviceName defined in either JAAS or Kafka config"),
        (f"{CLIENT}sasl.kerberos.keytab=user.keytab\n", "needs principal=NAME@REALM"),
        (
            f"{CLIENT}sasl.kerberos.keytab=none.keytab\nsasl.kerberos.principal=olga@EXAMPLE.COM\n",
            "the keytab cannot be read (Key table file",
        ),
        (CLIENT, "there is no ticket (No Kerberos credentials available"),
        (f"{CLIENT}sasl.kerberos.ticket.renew.jitter=x\n", "could not convert string to float"),
        (
            f"{CLIENT}sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required storeKey=true;\n",
            "neither uses a keytab nor a ticket cache",
        ),
    ],
)
def test_logins_that_cannot_be(folder: Folder, properties: str, said: str) -> None:
    folder.write("client.properties", properties)
    for words in (("topics", "list"), ("produce", "wrong", "socks")):
        done = folder.run(*words)
        assert done.returncode in (1, 2)
        assert said in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_a_service_name_that_is_wrong(folder: Folder) -> None:
    folder.put_jaas("vera")
    folder.write("client.properties", CLIENT.replace("= kafka", "= kafak"))
    done = folder.run("topics", "list")
    assert done.returncode == 1
    assert "Kerberos knows no such service (Server kafak/localhost@EXAMPLE.COM not found" in done.stderr
    assert f"{SERVICE}" not in done.stdout
