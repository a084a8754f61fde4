"""The settings of each process of `ottla broker --processes N`."""

from pathlib import Path

import pytest

from ottla.base.broker_settings import BrokerSettings, load_broker_settings
from ottla.cli.processes.multi_process_settings import (
    check_folders,
    check_processes,
    check_single_broker_folders,
    merge_overrides,
    process_overrides,
)
from ottla.cli.terminal import ToolError, UsageError

FILE = {"broker.id": "101", "zookeeper.connect": "zoo:2181", "listeners": "PLAINTEXT://:9092", "log.dirs": "/data"}


def settings(**more: str) -> BrokerSettings:
    return load_broker_settings(None, FILE | {name.replace("_", "."): value for name, value in more.items()})


def own(process: int, **more: str) -> dict[str, str]:
    return process_overrides(settings(**more), process, "host-a")


def test_ids_ports_and_folders_count_on_from_the_file() -> None:
    assert own(0) == {
        "broker.id": "101",
        "listeners": "PLAINTEXT://:9092",
        "log.dirs": "/data/broker.101",
        "broker.rack": "host-a",
    }
    assert own(3) == {
        "broker.id": "104",
        "listeners": "PLAINTEXT://:9095",
        "log.dirs": "/data/broker.104",
        "broker.rack": "host-a",
    }


def test_every_listener_and_every_folder_is_moved() -> None:
    found = own(
        2,
        listeners="IN://[::1]:9192,OUT://0.0.0.0:9292,ANY://:0",
        advertised_listeners="IN://inner:9192,OUT://outer.example:443",
        listener_security_protocol_map="IN:PLAINTEXT,OUT:PLAINTEXT,ANY:PLAINTEXT",
        inter_broker_listener_name="IN",
        log_dirs="/disk1,/disk2/",
        cordoned_log_dirs="/disk1",
        ottla_log_dir="/var/log/ottla",
    )
    assert found["listeners"] == "IN://[::1]:9194,OUT://0.0.0.0:9294,ANY://:0"
    assert found["advertised.listeners"] == "IN://inner:9194,OUT://outer.example:445"
    assert found["log.dirs"] == "/disk1/broker.103,/disk2/broker.103"
    assert found["cordoned.log.dirs"] == "/disk1/broker.103"
    assert found["ottla.log.dir"] == "/var/log/ottla/broker.103"


def test_a_process_reads_the_overrides_it_gets() -> None:
    overrides = {**FILE, "node.id": "101", "log.dir": "/x"}
    found = load_broker_settings(None, merge_overrides(overrides, own(1, advertised_listeners="PLAINTEXT://a:9092")))
    assert found.node_id == 102
    assert found.listeners[0].port == found.advertised_listeners[0].port == 9093
    assert found.broker_rack == "host-a"


def test_a_rack_that_the_file_names_stays() -> None:
    assert own(1, broker_rack="eu-west-1a")["broker.rack"] == "eu-west-1a"


def test_metrics_have_a_port_for_all_and_one_for_each() -> None:
    assert [own(process, ottla_metrics_port="9404")["ottla.metrics.port"] for process in range(3)] == [
        "9405",
        "9406",
        "9407",
    ]
    assert "ottla.metrics.port" not in own(1)


def test_with_a_certificate_the_metrics_of_one_process_are_local() -> None:
    found = own(
        0,
        ottla_metrics_port="9404",
        ottla_metrics_host="0.0.0.0",
        ottla_metrics_ssl_keystore_location="/etc/ottla/metrics.p12",
        ottla_metrics_username="reader",
        ottla_metrics_password="secret",
    )
    process = load_broker_settings(None, FILE | found)
    assert (process.ottla_metrics_host, process.ottla_metrics_ssl_keystore_location or "") == ("127.0.0.1", "")


def test_a_file_that_fits_is_not_complained_about() -> None:
    check_processes(settings(ottla_metrics_port="9404"), 128)
    check_processes(settings(listeners="PLAINTEXT://127.0.0.1:9092,SSL://127.0.0.1:9096"), 4)
    check_processes(
        settings(
            listeners="A://127.0.0.1:9092,B://[::1]:9092",
            listener_security_protocol_map="A:PLAINTEXT,B:PLAINTEXT",
            inter_broker_listener_name="A",
        ),
        2,
    )


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"zookeeper_connect": ""}, "need ZooKeeper.*ottla up --brokers auto"),
        ({"broker_id": "-1"}, "set broker.id"),
        ({"ottla_metrics_port": "0"}, "ottla.metrics.port=0 would be a random port for each"),
        ({"listeners": "PLAINTEXT://:65533"}, "PLAINTEXT of broker 104 would have port 65536: 65535 is the last"),
        (
            {"listeners": "PLAINTEXT://:9092,SSL://:9093"},
            "SSL of broker 101 and PLAINTEXT of broker 102 would both listen on port 9093. Each listener takes 4",
        ),
        ({"ottla_metrics_port": "9090"}, "both listen on port 9092"),
        (
            {
                "listeners": "PLAINTEXT://:9092,SSL://:9192",
                "advertised_listeners": "PLAINTEXT://nat:9092,SSL://nat:9094",
            },
            "PLAINTEXT of broker 103 would both advertise port 9094",
        ),
    ],
)
def test_settings_that_processes_cannot_share_are_rejected(more: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check_processes(settings(**more), 4)


def test_folders_of_one_broker_and_of_several_are_distinguished(tmp_path: Path) -> None:
    check_folders([str(tmp_path)], 101)
    check_single_broker_folders([str(tmp_path), str(tmp_path / "missing")])
    for name in ("broker.101", "broker.102"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "meta.properties").touch()
    check_folders([str(tmp_path)], 101)
    with pytest.raises(ToolError, match=r"several processes \(broker.101, broker.102\): .* --processes 2"):
        check_single_broker_folders([str(tmp_path)])
    (tmp_path / "meta.properties").touch()
    check_single_broker_folders([str(tmp_path)])
    with pytest.raises(ToolError, match=f"a single broker.*into {tmp_path}/broker.101"):
        check_folders([str(tmp_path)], 101)
