"""`python -m bench.secure`: the cost of TLS, logins and access rights, beside Apache Kafka with the same
certificate.

Bytes over TLS, librdkafka over SASL_SSL, a thousand handshakes and logins with their effect on other clients, and the
same requests with and without access rules. The systems alternate; medians of all rounds.
"""

import argparse
import datetime as dt
import ipaddress
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from bench.broker_process import HOST, SHARED_SETTINGS, BrokerProcess, free_port, properties
from bench.errors import BenchError
from bench.figures import Figures
from bench.kafka_process import KafkaProcess
from bench.loads import fetch, librdkafka, logins, one_in_flight, produce
from bench.ottla_process import OttlaProcess
from bench.page_cache import PageCache
from bench.paths import cache_folder
from bench.raw_client import Target, create_topic
from bench.worker import Worker, run_apart

PARTITIONS = 4
BATCH_BYTES = {"64k": 64 << 10, "1m": 1 << 20}
WRITE_BYTES_MAX = 2_000_000_000
FILL_BYTES = 128 << 20
COMING = 1000  # new clients
COMING_AT_ONCE = 4
RULES = 1000  # besides the one that counts
TIMEOUT_S = 300.0
PAGE_CACHE = PageCache()
USER, PASSWORD = "bench", "bench-secret"


class Doors:
    """The secured ports of a broker, and the settings of both systems."""

    def __init__(self, folder: Path, *, has_rights: bool) -> None:
        self.ports = {name: free_port() for name in ("SSL", "SASL_SSL", "SASL_PLAINTEXT")}
        self.authority = str(folder / "authority.pem")
        protocols = ("PLAINTEXT", "SSL", "SASL_SSL", "SASL_PLAINTEXT")
        self.settings = {
            "listener.security.protocol.map": ",".join(f"{name}:{name}" for name in protocols),
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(folder / "server.pem"),
            "sasl.enabled.mechanisms": logins.MECHANISM,
        }
        for name in ("sasl_ssl", "sasl_plaintext"):
            module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            self.settings[f"listener.name.{name}.scram-sha-256.sasl.jaas.config"] = module
        if has_rights:
            self.settings |= {
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "allow.everyone.if.no.acl.found": "true",  # so that the first rules can be made
            }

    def listeners(self, port: int) -> str:
        return ",".join(f"{name}://{HOST}:{port}" for name, port in {"PLAINTEXT": port, **self.ports}.items())

    def target(self, broker: BrokerProcess, name: str) -> Target:
        if name == "PLAINTEXT":
            return broker.target
        user = (USER, PASSWORD) if name.startswith("SASL") else ("", "")
        return Target(HOST, self.ports[name], broker.target.pid, self.authority if "SSL" in name else "", *user)


class SecureKafka(KafkaProcess):
    """Apache Kafka with these ports."""

    doors: Doors

    def _settings(self, controller_port: int) -> str:
        listeners, protocols = self.doors.listeners(self.port), self.doors.settings["listener.security.protocol.map"]
        ours = {
            "listeners": f"{listeners},CONTROLLER://{HOST}:{controller_port}",
            "advertised.listeners": listeners,
            **self.doors.settings,
            "listener.security.protocol.map": f"{protocols},CONTROLLER:PLAINTEXT",
        }
        return super()._settings(controller_port) + properties(ours)  # the last one counts


class SecureOttla(OttlaProcess):
    """ottla with these ports."""

    doors: Doors

    def prepare(self) -> None:
        settings = {"listeners": self.doors.listeners(self.port), "log.dirs": str(self.data_folder)}
        (self.folder / "server.properties").write_text(properties(settings | SHARED_SETTINGS | self.doors.settings))


SYSTEMS: dict[str, type[SecureKafka | SecureOttla]] = {"kafka": SecureKafka, "ottla": SecureOttla}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.secure", description="What security costs.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one measurement")
    parser.add_argument("--no-kafka", action="store_true", help="ottla alone")
    options = parser.parse_args()
    folder = cache_folder() / "secure"
    folder.mkdir(parents=True, exist_ok=True)
    make_certificate(folder)
    names = ["ottla"] if options.no_kafka else ["kafka", "ottla"]
    rounds: list[dict[str, dict[str, Figures]]] = []
    for number in range(options.rounds):
        measured = {name: measure(name, folder, options.seconds) for name in (names if number % 2 else names[::-1])}
        rounds.append(measured)
    for line in report(rounds, names):
        print(line)
    (folder / "results.json").write_text(json.dumps(rounds, indent=2))
    return 0


def measure(system: str, folder: Path, seconds: float) -> dict[str, Figures]:
    figures: dict[str, Figures] = {}
    for has_rights in (False, True):
        broker = SYSTEMS[system](folder / f"{system}.log")
        broker.doors = Doors(folder, has_rights=has_rights)
        with broker:
            if has_rights:
                make_rules(broker.target)
                figures |= measure_plain(broker.target, seconds, "rights on")
            else:
                make_user(broker.target)
                figures |= measure_plain(broker.target, seconds, "rights off")
                figures |= measure_secured(broker, broker.doors, seconds)
        print(f"{system}, rights {'on' if has_rights else 'off'}: done", file=sys.stderr)
    return figures


def measure_plain(target: Target, seconds: float, label: str) -> dict[str, Figures]:
    topic = create_topic(target, "plain", PARTITIONS)
    run(produce.produce, target, topic, 1, 64 << 10, 1000, 2.0, WRITE_BYTES_MAX)
    batch_bytes = run(produce.fill, target, topic, 1, 64 << 10, 1000, FILL_BYTES)
    return {
        f"one in flight, {label}": run(one_in_flight.produce, target, topic, 1, 100, 1.0, seconds),
        f"produce 64 KiB, {label}": run(
            produce.produce, target, topic, 1, BATCH_BYTES["64k"], 1000, seconds, WRITE_BYTES_MAX
        ),
        f"fetch 1 MiB, {label}": run(fetch.fetch, target, topic, 1, 1 << 20, batch_bytes, seconds),
    }


def measure_secured(broker: BrokerProcess, doors: Doors, seconds: float) -> dict[str, Figures]:
    figures: dict[str, Figures] = {}
    encrypted = doors.target(broker, "SSL")
    topic = create_topic(broker.target, "tls", PARTITIONS)
    run(produce.produce, encrypted, topic, PARTITIONS, 64 << 10, 1000, 3.0, WRITE_BYTES_MAX)
    for connections in (1, PARTITIONS):
        for label, size in BATCH_BYTES.items():
            topic = create_topic(broker.target, "tls", PARTITIONS)
            figures[f"TLS produce {label}, {connections}"] = run(
                produce.produce, encrypted, topic, connections, size, 1000, seconds, WRITE_BYTES_MAX
            )
    topic = create_topic(broker.target, "tls", PARTITIONS)
    batch_bytes = run(produce.fill, broker.target, topic, PARTITIONS, 64 << 10, 1000, FILL_BYTES)
    run(fetch.fetch, encrypted, topic, PARTITIONS, 1 << 20, batch_bytes, 2.0)
    for connections in (1, PARTITIONS):
        figures[f"TLS fetch 1m, {connections}"] = run(
            fetch.fetch, encrypted, topic, connections, 1 << 20, batch_bytes, seconds
        )
    figures |= measure_librdkafka(broker, doors, seconds)
    for label, name in (("TLS handshakes", "SSL"), ("SCRAM logins", "SASL_PLAINTEXT")):
        figures |= measure_coming_in(broker, doors.target(broker, name), label)
    return figures


def measure_librdkafka(broker: BrokerProcess, doors: Doors, seconds: float) -> dict[str, Figures]:
    target = doors.target(broker, "SASL_SSL")
    topic = create_topic(broker.target, "librdkafka", 1)
    run(librdkafka.produce, target, topic, 1000, "none", 2.0, WRITE_BYTES_MAX)
    written = run(librdkafka.produce, target, topic, 1000, "none", seconds, WRITE_BYTES_MAX)
    messages = round(written["records_per_s"] * written["seconds"])
    return {
        "librdkafka SASL_SSL produce 1000 B": written,
        "librdkafka SASL_SSL consume 1000 B": run(librdkafka.consume, target, topic, 1000, messages, seconds),
    }


def measure_coming_in(broker: BrokerProcess, target: Target, label: str) -> dict[str, Figures]:
    """The duration of a thousand logins, and their effect on a connected client."""
    topic = create_topic(broker.target, "others", 1)
    run(logins.come_in, target, COMING // 4, COMING_AT_ONCE)
    alone = run(one_in_flight.produce, broker.target, topic, 1, 100, 1.0, 2.0)
    with Worker(one_in_flight.produce, broker.target, topic, 1, 100, 0.2, 1.5) as others:
        time.sleep(0.5)
        coming = run(logins.come_in, target, COMING, COMING_AT_ONCE)
        beside = others.result(TIMEOUT_S)
    return {
        f"{COMING:,} {label}": coming,
        f"others beside {label}": {**beside, "p99_of_alone": beside["p99_ms"] / alone["p99_ms"]},
    }


def run(load: Any, target: Target, *arguments: Any) -> Any:
    PAGE_CACHE.fill()  # first-touched memory pages would dominate the measurement
    return run_apart(TIMEOUT_S, load, target, *arguments)


def make_user(target: Target) -> None:
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    wanted = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
    for future in admin.alter_user_scram_credentials([wanted]).values():
        future.result(30)


def make_rules(target: Target) -> None:
    """One rule that lets all users access the topics of the benchmark, and many unrelated ones."""
    admin = AdminClient({"bootstrap.servers": target.bootstrap})

    def rule(name: str, kind: ResourcePatternType, principal: str) -> AclBinding:
        return AclBinding(ResourceType.TOPIC, name, kind, principal, "*", AclOperation.ALL, AclPermissionType.ALLOW)

    rules = [rule(f"other-{number}", ResourcePatternType.LITERAL, f"User:u{number}") for number in range(RULES)]
    rules.append(rule("bench", ResourcePatternType.PREFIXED, "User:ANONYMOUS"))
    for future in admin.create_acls(rules, request_timeout=60).values():
        future.result(60)
    time.sleep(2)  # until they are in force


def make_certificate(folder: Path) -> None:
    """An authority and a certificate of 127.0.0.1 with a key on the curve P-256."""
    now = dt.datetime.now(dt.UTC)

    def sign(name: str, key: Any, issuer: Any, issuer_key: Any, extensions: list[tuple[Any, bool]]) -> Any:
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer or subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=30))
        )
        for extension, is_critical in extensions:
            builder = builder.add_extension(extension, is_critical)
        return builder.sign(issuer_key, hashes.SHA256())

    authority_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = sign("bench authority", authority_key, None, authority_key, [(x509.BasicConstraints(True, 0), True)])
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))])
    server = sign("bench broker", server_key, authority.subject, authority_key, [(address, False)])
    key = server_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "server.pem").write_bytes(key + server.public_bytes(Encoding.PEM) + authority.public_bytes(Encoding.PEM))
    (folder / "authority.pem").write_bytes(authority.public_bytes(Encoding.PEM))


def report(rounds: list[dict[str, dict[str, Figures]]], names: list[str]) -> list[str]:
    """The relevant figure in each row, its CPU, and the ratio to Apache Kafka's."""
    lines = [f"{'':42} {'kafka':>12} {'ottla':>12} {'ratio':>7}   {'CPU':>9} {'CPU':>9}"]
    for row in rounds[0][names[-1]]:
        figure = next(
            name
            for name in ("p99_of_alone", "mb_per_s", "seconds" if row[0].isdigit() else "requests_per_s")
            if name in rounds[0][names[-1]][row]
        )
        cpu = "cpu_s_per_gb" if figure == "mb_per_s" else "cpu_us_per_request"
        values = {name: median(rounds, name, row, figure) for name in names}
        ratio = values["ottla"] / values["kafka"] if "kafka" in values else float("nan")
        cpus = [median(rounds, name, row, cpu) for name in names]
        shown = [f"{values.get(name, float('nan')):12,.2f}" for name in ("kafka", "ottla")]
        lines.append(
            f"{row:42} {' '.join(shown)} {ratio:7.2f}   {' '.join(f'{value:9.2f}' for value in cpus)} {figure}"
        )
    return lines


def median(rounds: list[dict[str, dict[str, Figures]]], system: str, row: str, figure: str) -> float:
    return statistics.median(each[system][row].get(figure, float("nan")) for each in rounds)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (BenchError, OSError, subprocess.SubprocessError) as error:
        sys.exit(f"bench.secure: {error}")
