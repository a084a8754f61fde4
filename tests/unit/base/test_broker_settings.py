"""BrokerSettings and its file: layers, errors in one line, warnings."""

import socket
from pathlib import Path

import pytest

from ottla.base.broker_settings import BrokerSettings, load_broker_settings
from ottla.base.listeners import Listener, own_host_name
from ottla.base.settings import Mode, SettingsError
from ottla.security.remote_settings import dynamic_config_problem

# Kafka's config/server.properties of the quick start, without its comments.
QUICK_START = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


@pytest.fixture
def write(tmp_path: Path) -> object:
    def write_file(text: str | bytes) -> Path:
        path = tmp_path / "server.properties"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write_file


def load(**overrides: str) -> BrokerSettings:
    named = {key.replace("_", "."): value for key, value in overrides.items()}
    return load_broker_settings(None, {"listeners": "PLAINTEXT://127.0.0.1:9092", **named})


def error_of(**overrides: str) -> str:
    with pytest.raises(SettingsError) as caught:
        load(**overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_defaults_are_kafkas() -> None:
    settings = BrokerSettings()
    assert (settings.num_partitions, settings.message_max_bytes, settings.socket_request_max_bytes) == (
        1,
        1_048_588,
        104_857_600,
    )
    assert settings.listeners == (Listener("PLAINTEXT", "", 9092, "PLAINTEXT"),)
    assert settings.log_dirs == ("/tmp/kafka-logs",)
    assert settings.log_retention_ms == settings.log_roll_ms == 7 * 24 * 3_600_000
    assert settings.log_flush_interval_ms == 2**63 - 1
    assert settings.node_id == 1
    assert (settings.broker_rack, settings.log_roll_jitter_ms, settings.delete_topic_enable) == (None, 0, True)


def test_the_quick_starts_file_is_one_node(write: object) -> None:
    assert callable(write)
    settings = load_broker_settings(write(QUICK_START))
    (warning,) = settings.warnings
    assert warning.startswith("PLAINTEXT://:9092: every client with access to this machine can read and write")
    assert [str(listener) for listener in settings.listeners] == ["PLAINTEXT://:9092"]
    assert [str(listener) for listener in settings.advertised_listeners] == ["PLAINTEXT://localhost:9092"]
    assert settings.log_dirs == ("/tmp/kraft-combined-logs",)
    assert settings.explicit["num.io.threads"] == "8"


def test_overrides_win_over_the_file(write: object) -> None:
    assert callable(write)
    settings = load_broker_settings(write("num.partitions=3\nbroker.rack = r1 \n"), {"num.partitions": "5"})
    assert (settings.num_partitions, settings.broker_rack) == (5, "r1")


def test_the_layers_of_a_value() -> None:
    settings = load(log_retention_hours="1", message_max_bytes="1000")
    assert settings.log_retention_ms == 3_600_000
    for_all = settings.with_dynamic({"log.retention.ms": "60000", "message.max.bytes": "2000"}, {})
    assert (for_all.log_retention_ms, for_all.message_max_bytes) == (60_000, 2000)
    own = for_all.with_dynamic(for_all.cluster_default, {"message.max.bytes": "3000"})
    assert (own.log_retention_ms, own.message_max_bytes) == (60_000, 3000)
    assert own.explicit == settings.explicit
    assert settings.message_max_bytes == 1000, "an object never changes"


def test_stored_changes_that_are_not_usable_do_not_count() -> None:
    settings = load().with_dynamic({"log.retention.ms": "soon", "no.such.key": "1"}, {"num.io.threads": "4"})
    assert settings.log_retention_ms == 7 * 24 * 3_600_000
    assert (settings.cluster_default, settings.broker_overrides) == ({"no.such.key": "1"}, {"num.io.threads": "4"})


def test_what_only_a_file_may_set_never_acts_from_the_metadata() -> None:
    """It may have been stored under a name that was unknown then."""
    stored = {"log.dirs": "/elsewhere", "authorizer.class.name": "", "super.users": "User:mallory", "no.such.key": "1"}
    for settings in (load().with_dynamic(stored, {}), load().with_dynamic({}, stored)):
        assert settings.log_dirs == load().log_dirs
        assert settings.super_users == ""
        assert {**settings.cluster_default, **settings.broker_overrides} == {"no.such.key": "1"}


def test_retention_minutes_win_over_hours_and_ms_over_both() -> None:
    assert load(log_retention_hours="5", log_retention_minutes="3").log_retention_ms == 180_000
    assert load(log_retention_hours="5", log_retention_minutes="3", log_retention_ms="7").log_retention_ms == 7
    assert load(log_retention_hours="-1").log_retention_ms == -1


def test_node_id_and_broker_id_stand_for_each_other() -> None:
    for overrides in ({"node_id": "7"}, {"broker_id": "7"}):
        settings = load(**overrides)
        assert (settings.node_id, settings.broker_id) == (7, 7)
        assert settings.explicit["node.id"] == settings.explicit["broker.id"] == "7"
    assert load(broker_id="-1").node_id == 1
    assert "same value" in error_of(broker_id="5", node_id="6")


def test_several_folders() -> None:
    assert load(log_dirs=" /a , /b ").log_dirs == ("/a", "/b")
    assert load(log_dir="/q").log_dirs == ("/q",)
    assert load(log_dir="/q", log_dirs="/r").log_dirs == ("/r",)


def test_what_names_code_a_file_or_an_address_is_not_taken_over_the_wire() -> None:
    changeable = {name: key for name, key in BrokerSettings.keys.items() if key.mode is not Mode.READ_ONLY}
    words = {
        "class",
        "location",
        "url",
        "endpoint",
        "cmd",
        "path",
        "listeners",
        "reporters",
        "providers",
        "jaas",
        "file",
    }
    harmless = {"remote.log.index.file.cache.total.size.bytes", "ssl.endpoint.identification.algorithm"}
    named = [name for name in changeable if set(name.split(".")) & words and name not in harmless]
    assert len(named) == 6
    assert [name for name in named if dynamic_config_problem(BrokerSettings({}), name, "/etc/passwd") is None] == []


# ---- errors


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("num.partitions=abc", "Invalid value abc for configuration num.partitions: Not a number of type INT"),
        ("num.partitions=0", "Invalid value 0 for configuration num.partitions: Value must be at least 1"),
        ("log.dirs=", "Configuration 'log.dirs' must not be empty. Valid values include: any non-empty value"),
        ("offsets.topic.replication.factor=99999", "Not a number of type SHORT"),
        ("log.cleanup.policy=foo", "Invalid value foo for configuration log.cleanup.policy: String must be one of"),
    ],
)
def test_a_bad_value_names_its_line(write: object, line: str, message: str) -> None:
    assert callable(write)
    path = write(f"# head\n\n{line}\n")
    with pytest.raises(SettingsError) as caught:
        load_broker_settings(path)
    assert str(caught.value).startswith(f"{path}:3: ")
    assert message in str(caught.value)


def test_a_bad_override_names_the_option() -> None:
    assert error_of(num_partitions="x").startswith("--override num.partitions: Invalid value x")
    assert error_of(num_partitions="x").endswith("(the default is 1)")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="there is no such file"):
        load_broker_settings(tmp_path / "none.properties")


def test_a_folder_instead_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="is a folder"):
        load_broker_settings(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x7fELF\x02\x01\x01\0\0\0", "holds binary data"),
        (b"a=" + b"x" * (1 << 20), "larger than"),
        (b"num.partitions=3\nnum.io.threads=\\u12", ":2: .*four hexadecimal digits"),
    ],
)
def test_a_file_that_is_no_settings_file(write: object, content: bytes, message: str) -> None:
    assert callable(write)
    with pytest.raises(SettingsError, match=message):
        load_broker_settings(write(content))


def test_all_bad_values_are_named_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        load_broker_settings(None, {"num.partitions": "x", "log.retention.hours": "y"})
    assert len(caught.value.problems) == 2
    assert str(caught.value).splitlines() == list(caught.value.problems)
    with pytest.raises(SettingsError) as caught:
        load_broker_settings(
            None, {"ottla.metrics.port": "1", "ottla.metrics.username": "u", "inter.broker.listener.name": "NONE"}
        )
    assert ["listener" in each for each in caught.value.problems] == [True, False]


def test_a_name_that_is_no_file_name() -> None:
    with pytest.raises(SettingsError, match="no file name"):
        load_broker_settings("a\0b")


@pytest.mark.parametrize("content", ["broker.rack=caf\u00e9".encode(), "broker.rack=caf\u00e9".encode("latin-1")])
def test_files_are_utf_8_or_latin_1(write: object, content: bytes) -> None:
    assert callable(write)
    assert load_broker_settings(write(content)).broker_rack == "caf\u00e9"


def test_a_file_with_a_byte_order_mark(write: object) -> None:
    assert callable(write)
    assert load_broker_settings(write(b"\xef\xbb\xbfnum.partitions=3")).num_partitions == 3


# ---- warnings


def test_a_key_that_is_set_twice(write: object) -> None:
    assert callable(write)
    path = write("num.partitions=3\nnum.partitions=4\n")
    settings = load_broker_settings(path)
    assert settings.num_partitions == 4
    assert settings.warnings[0] == f"{path}:2: num.partitions was set before ({path}:1): the last value counts"


def test_a_machine_without_a_usable_name_warns_only_if_the_name_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    own_host_name.cache_clear()
    try:
        settings = load(listeners="PLAINTEXT://:9092")
        assert [str(listener) for listener in settings.advertised_listeners] == ["PLAINTEXT://127.0.0.1:9092"]
        assert "does not resolve" in settings.warnings[0]
        assert len(load(listeners="PLAINTEXT://:9092", advertised_listeners="PLAINTEXT://me:1").warnings) == 1
    finally:
        own_host_name.cache_clear()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_only_listeners_that_others_can_reach_are_warned_about(host: str) -> None:
    assert load(listeners=f"PLAINTEXT://{host}:9092").warnings == ()
    assert (
        len(
            load(
                listeners=f"PLAINTEXT://{host}:9092,SSL://10.0.0.1:1",
                listener_security_protocol_map="PLAINTEXT:PLAINTEXT,SSL:PLAINTEXT",
            ).warnings
        )
        == 1
    )


def test_a_password_in_a_file_that_others_can_read(write: object) -> None:
    assert callable(write)
    path = write("listeners=PLAINTEXT://127.0.0.1:1\nssl.key.password=pa55\n")
    path.chmod(0o644)
    (warning,) = load_broker_settings(path).warnings
    assert "chmod 600" in warning
    assert "pa55" not in warning
    path.chmod(0o600)
    assert load_broker_settings(path).warnings == ()
