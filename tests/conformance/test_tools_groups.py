"""Tools for consumer groups and transactions beside Apache Kafka's own, on the same broker: the same lines.

Kafka's tool for groups tells most failures on stdout and ends with 0; so does ours under Kafka's name. Of stderr only
the first line with words counts: Java goes on with a stack trace or with all of its options.
"""

import re
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.conformance.in_process import run_here
from tests.conformance.java_tools import JavaTools
from tests.conformance.peer import Peer
from tests.conformance.test_tools_admin import NO_BROKER, run

from ottla.base.text import escape
from ottla.cli.java.hash_order import hash_map_order

GROUPS, LISTING, TRANSACTIONS = "kafka-consumer-groups.sh", "kafka-groups.sh", "kafka-transactions.sh"
ASSIGNED_SECONDS_MAX = 30
TRIES = 3
NO_BROKER_SECONDS_MAX = 10
MOVING = re.compile(r"(?<=\t)\d{1,6}\s*(?=\t[^\t]*\t\n)")  # TransactionDurationMs

# TOPIC has three partitions and five records in each of the first two, OTHER is empty. GROUP-empty has committed 2 and
# 5; GROUP-classic, GROUP-static and GROUP-new have a member each. TMP is a folder.
SAME = [
    (LISTING, "--list"),
    *((LISTING, f"--list --group-type {kind}") for kind in ("consumer", "CLASSIC", "share", "nope")),
    *((LISTING, f"--list --protocol {name}") for name in ("consumer", "nope")),
    *((LISTING, f"--list --{kind}") for kind in ("consumer", "share", "streams", "bogus")),
    (LISTING, "--list --consumer --share"),
    (LISTING, ""),
    (GROUPS, "--list"),
    (GROUPS, "--list --state"),
    (GROUPS, "--list --state Empty,stable"),
    (GROUPS, "--list --state foo"),
    (GROUPS, "--list --type"),
    (GROUPS, "--list --type consumer --state"),
    (GROUPS, "--list --type foo"),
    *(
        (GROUPS, f"--describe --group GROUP-{group} {what} {how}")
        for group in ("empty", "classic", "static", "new")
        for what in ("", "--members", "--state")
        for how in ("", "--verbose")
    ),
    (GROUPS, "--describe --group GROUP-new --group GROUP-empty --group GROUP-classic --offsets"),
    (GROUPS, "--describe --group GROUP-not-there"),
    (GROUPS, "--describe --group GROUP-not-there --members"),
    (GROUPS, "--describe"),
    (GROUPS, "--describe --group a --state x"),
    (GROUPS, "--describe --group a --state --members"),
    (GROUPS, "--describe --group a --all-groups"),
    (GROUPS, "--describe --group"),
    (GROUPS, "--describe --type consumer --group a"),
    (GROUPS, ""),
    (GROUPS, "--list --describe"),
    (GROUPS, "--bogus"),
    (GROUPS, "--list --group a"),
    (GROUPS, "--list --topic a"),
    (GROUPS, "--list --members"),
    (GROUPS, "--list --timeout x"),
    (GROUPS, "--delete"),
    (GROUPS, "--delete --group a --topic b"),
    (GROUPS, "--delete --group GROUP-not-there --group GROUP-classic"),
    (GROUPS, "--delete-offsets --group a"),
    (GROUPS, "--delete-offsets --group a --group b --topic c"),
    (GROUPS, "--delete-offsets --group GROUP-not-there --topic TOPIC"),
    (GROUPS, "--delete-offsets --group GROUP-classic --topic TOPIC"),
    (GROUPS, "--delete-offsets --group GROUP-empty --topic TOPIC-not-there"),
    (GROUPS, "--delete-offsets --group GROUP-empty --topic OTHER:0 --topic TOPIC:7"),
    (GROUPS, "--delete-offsets --group GROUP-empty --topic TOPIC:a"),
    (GROUPS, "--delete-offsets --group GROUP-empty --topic TOPIC:1:2"),
    *(
        (GROUPS, f"--validate-regex {pattern}")
        for pattern in ("a.*", "(a", "a)", "[a", "*a", "a**", "a{2000}", "a\\", "(?=a)", "\\8", "[z-a]", "(?P<n")
    ),
    (GROUPS, "--reset-offsets"),
    (GROUPS, "--reset-offsets --group GROUP-empty --dry-run"),
    (GROUPS, "--reset-offsets --group GROUP-empty --topic TOPIC --to-latest"),
    (GROUPS, "--reset-offsets --group GROUP-empty --topic TOPIC --to-latest --dry-run --execute"),
    (GROUPS, "--reset-offsets --group GROUP-empty --topic TOPIC --to-latest --to-earliest --dry-run"),
    *(
        (GROUPS, f"--reset-offsets --group GROUP-empty --dry-run {words}")
        for words in (
            "--topic TOPIC --to-latest",
            "--topic TOPIC --to-latest --export",
            "--topic TOPIC --to-earliest",
            "--topic TOPIC --to-current",
            "--all-topics --to-current",
            "--all-topics --topic OTHER --to-earliest",
            "--topic TOPIC:0,1 --to-offset 3",
            "--topic TOPIC:0,1 --topic OTHER --to-offset 300",
            "--topic TOPIC:0 --to-offset -5",
            "--topic TOPIC:0 --to-offset x",
            "--topic TOPIC:0 --to-offset 99999999999999999999",
            "--topic TOPIC:0,1 --shift-by -1",
            "--topic TOPIC:0,1 --shift-by 9",
            "--topic TOPIC --shift-by 1",
            "--topic TOPIC:0 --shift-by x",
            "--topic TOPIC --to-datetime 2020-11-14T22:13:23.000",
            "--topic TOPIC --to-datetime 2020-11-14T22:13:23.000+01:00",
            "--topic TOPIC --to-datetime 9999999-11-14T22:13:23.000Z",
            "--topic TOPIC --to-datetime 2020-11-14T22:13:23",
            "--topic TOPIC --to-datetime 2020-13-14T22:13:23.000",
            "--topic TOPIC --to-datetime 2020-11-14",
            "--topic TOPIC --to-datetime x",
            "--topic TOPIC --by-duration P1D",
            "--topic TOPIC --by-duration -P1D",
            "--topic TOPIC --by-duration PT36H2M3.5S",
            "--topic TOPIC --by-duration P",
            "--topic TOPIC --by-duration 1D",
            "--topic TOPIC-not-there --to-latest",
            "--topic TOPIC-not-there:0 --to-latest",
            "--topic TOPIC:77 --to-latest",
            "--topic TOPIC:x --to-latest",
            "--topic TOPIC:0:1 --to-latest",
            "--from-file TMP/not-there.csv",
            "--from-file TMP/short.csv",
            "--from-file TMP/short.csv --export",
        )
    ),
    (GROUPS, "--reset-offsets --group GROUP-not-there --topic TOPIC --to-latest --dry-run"),
    (GROUPS, "--reset-offsets --group GROUP-not-there --all-topics --to-latest --dry-run"),
    (GROUPS, "--reset-offsets --group GROUP-classic --topic TOPIC --to-latest --execute"),
    (GROUPS, "--reset-offsets --group GROUP-new --topic TOPIC --to-latest --execute"),
    (GROUPS, "--reset-offsets --group GROUP-empty --group GROUP-x --group GROUP-y --topic TOPIC --to-latest --dry-run"),
    (GROUPS, "--reset-offsets --group GROUP-empty --group GROUP-x --from-file TMP/long.csv --dry-run"),
    (GROUPS, "--reset-offsets --group GROUP-empty --group GROUP-x --from-file TMP/long.csv --dry-run --export"),
]
# ID-open has a transaction that has begun, ID-done one that was committed, ID-new none.
SAME_TRANSACTIONS = [
    "list",
    "list --duration-filter 86400000",
    "list --duration-filter -1",
    "list --transactional-id-pattern ID-.*e.*",
    "list --transactional-id-pattern (",
    "describe --transactional-id ID-open",
    "describe --transactional-id ID-done",
    "describe --transactional-id ID-new",
    "describe --transactional-id ID-not-there",
    "describe-producers --topic TOPIC --partition 0",
    "describe-producers --topic TOPIC --partition 0 --broker-id 1",
    "find-hanging",
    "find-hanging --broker-id 1 --max-transaction-timeout 1000000",
    "find-hanging --topic TOPIC --max-transaction-timeout 0",
    "find-hanging --topic TOPIC --partition 0",
    "find-hanging --topic TOPIC-not-there",
    "find-hanging --broker-id 1 --partition 0",
    "abort --topic TOPIC --partition 0",
    "abort --topic TOPIC --partition 0 --start-offset 77",
    "abort --topic TOPIC --partition 0 --producer-id 1",
    "abort --topic TOPIC --partition 0 --producer-id 1 --producer-epoch 1",
]
WRONG_TRANSACTIONS = [
    ("", "COMMAND"),
    ("nonsense", "nonsense"),
    ("list --bogus", "bogus"),
    ("list --duration-filter x", "duration-filter"),
    ("describe", "transactional-id"),
    ("describe-producers --topic a", "partition"),
    ("describe-producers --topic a --partition x", "partition"),
    ("abort --topic a --partition 99999999999", "partition"),
    ("forceTerminateTransaction", "transactionalId"),
]


class Told(NamedTuple):
    code: int
    out: str
    err: str


class Scene(NamedTuple):
    """What the commands name."""

    topic: str
    other: str
    group: str
    transactional_id: str
    folder: Path

    def words(self, text: str) -> list[str]:
        names = {"TOPIC": self.topic, "OTHER": self.other, "GROUP": self.group, "ID": self.transactional_id}
        names["TMP"] = str(self.folder)
        return re.sub("TOPIC|OTHER|GROUP|ID|TMP", lambda match: names[match.group()], text).split()


def is_without_chance(group: str) -> bool:
    """Whether Java lists these groups in one order only: those that share a bucket come as their answers came."""
    together = (("not-there", "classic"), ("empty", "x", "y"))
    return all(
        hash_map_order(names, size) == hash_map_order(names[::-1], size)
        for size in (2, 4, 8, 16)
        for names in [[f"{group}-{suffix}" for suffix in suffixes] for suffixes in together]
    )


@pytest.fixture(scope="module")
def scene(bootstrap: str, topic_names: Callable[[], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    tag = next(tag for tag in iter(lambda: uuid.uuid4().hex[:6], None) if is_without_chance(f"g-{tag}"))
    scene = Scene(topic_names(), topic_names(), f"g-{tag}", f"id-{tag}", tmp_path_factory.mktemp("groups"))
    with Peer(bootstrap) as peer:
        peer.create_topic(scene.topic, 3)
        peer.create_topic(scene.other, 1)
    fill(bootstrap, scene)
    (scene.folder / "short.csv").write_text(f"{scene.topic},0,1\n{scene.topic},1,400\n")
    plans = (f"{scene.group}-empty,{scene.topic},0,1", f"{scene.group}-x,{scene.other},0,0")
    (scene.folder / "long.csv").write_text("\n".join(plans))
    with ExitStack() as stack:
        members = [
            member(bootstrap, stack, f"{scene.group}-classic"),
            member(bootstrap, stack, f"{scene.group}-static", **{"group.instance.id": "instance-1"}),
            member(bootstrap, stack, f"{scene.group}-new", **{"group.protocol": "consumer"}),
        ]
        for consumer in members:
            consumer.subscribe([scene.topic, scene.other])
        for consumer in members:
            settle(consumer)
        yield scene


def fill(bootstrap: str, scene: Scene) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        producer.produce(scene.topic, b"%d" % number, partition=number % 2)
    producer.flush()
    commit(bootstrap, f"{scene.group}-empty", {(scene.topic, 0): 2, (scene.topic, 1): 5})


def commit(bootstrap: str, group: str, offsets: dict[tuple[str, int], int]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(*place, offset) for place, offset in offsets.items()], asynchronous=False)
    consumer.close()


def member(bootstrap: str, stack: ExitStack, group: str, **settings: Any) -> Consumer:
    own = {"bootstrap.servers": bootstrap, "group.id": group, "client.id": "tester", "auto.offset.reset": "earliest"}
    consumer = Consumer(own | {"enable.auto.commit": False} | settings)
    stack.callback(consumer.close)
    return consumer


def settle(consumer: Consumer) -> None:
    """Poll until the member has all of its partitions and has read something, then commit that."""
    deadline = time.monotonic() + ASSIGNED_SECONDS_MAX
    message = None
    while message is None or message.error() or len(consumer.assignment()) < 4:
        assert time.monotonic() < deadline, "the group does not settle"
        message = consumer.poll(0.2) or message
    consumer.commit(message=message, asynchronous=False)


def ours(name: str, *arguments: str) -> Told:
    done = run_here(name, *arguments)
    return told(done.code, done.out, done.err)


def theirs(java: JavaTools, name: str, *arguments: str) -> Told:
    """What Java's tool printed, with control characters escaped: groups of other tests have hostile names."""
    code, out, err = java.run(name, *arguments)
    return told(code, escape(out), err)


def told(code: int, out: str, err: str) -> Told:
    """What a tool said, without what only Java adds and what changes from one moment to the next."""
    out = out.replace("\nError: Executing consumer group command failed due to null\n", "")  # its own exit, caught
    lines = [line for line in err.splitlines() if line and not line.startswith(("\tat", "New offset (", "Caused by"))]
    if out.startswith("\nError: Executing") or err.startswith("null\nTools$Ended") or "InvalidFormat" in err:
        lines = []
    first = re.sub(r"^joptsimple\.\w+: ", "", lines[0]) if lines else ""
    if "takes" in first or "Valid" in first:  # Java lists what may be given in any order
        first = " ".join(sorted(re.sub("[,.:]", " ", first).split()))
    return Told(code, MOVING.sub("<ms>", out), first)


@pytest.mark.parametrize(("name", "words"), SAME)
def test_tools_print_what_javas_print(java: JavaTools, bootstrap: str, scene: Scene, name: str, words: str) -> None:
    arguments = ["--bootstrap-server", bootstrap, *scene.words(words)]
    for _ in range(TRIES):  # groups of other tests may come and go meanwhile
        here, there = ours(name, *arguments), theirs(java, name, *arguments)
        if here == there:
            break
    assert here == there


def test_without_words_the_tools_say_what_they_are_for() -> None:
    for name in (GROUPS, LISTING):
        done = ours(name)
        assert (done.code, done.out) == (1, "")
        assert done.err
    done = ours(GROUPS, "--list")
    assert done == (1, "", 'Missing required argument "[bootstrap-server]"')


def test_groups_are_reset_and_deleted_as_by_kafkas_tool(java: JavaTools, bootstrap: str, scene: Scene) -> None:
    """Each side does the same to a group of its own, and both see the same afterwards."""
    found = []
    tools: list[Callable[..., Told]] = [ours, lambda *words: theirs(java, *words)]
    for number, tool in enumerate(tools):
        group = f"{scene.group}-made-{number}"
        server = ("--bootstrap-server", bootstrap, "--group", group)
        reset = ("--reset-offsets", "--execute", "--topic", scene.topic)
        steps = [
            tool(GROUPS, *server, *reset, "--to-latest"),
            tool(GROUPS, *server, "--describe"),
            tool(GROUPS, *server, *reset, "--shift-by", "-2", "--export"),
            tool(GROUPS, *server, "--describe", "--verbose"),
            tool(GROUPS, *server, "--delete-offsets", "--topic", f"{scene.topic}:1,2"),
            tool(GROUPS, *server, "--describe", "--offsets"),
            tool(GROUPS, *server, "--delete"),
            tool(GROUPS, *server, "--describe"),
        ]
        found.append([Told(step.code, step.out.replace(group, "G"), step.err.replace(group, "G")) for step in steps])
    assert found[0] == found[1]
    assert [step.code for step in found[0]] == [0] * 8
    assert "Deletion of requested consumer groups ('G') was successful." in found[0][6].out


def test_a_file_that_was_exported_can_be_read_back(bootstrap: str, scene: Scene, tmp_path: Path) -> None:
    """Kafka quotes what is longer than 24 letters, or has a comma in it."""
    group = f"{scene.group},a group with a name that is long"
    commit(bootstrap, group, {(scene.topic, 0): 4})
    server = ("--bootstrap-server", bootstrap, "--reset-offsets", "--dry-run")
    exported = ours(GROUPS, *server, "--group", group, "--group", "x", "--all-topics", "--to-current", "--export").out
    assert exported == f'"{group}",{scene.topic},0,4\n\n'
    path = tmp_path / "plan.csv"
    path.write_text(exported.rstrip("\n"))
    planned = ours(GROUPS, *server, "--group", group, "--from-file", str(path)).out
    assert planned.splitlines()[-1].split() == [*group.split(), scene.topic, "0", "4"]


@pytest.fixture(scope="module")
def open_transaction(bootstrap: str, scene: Scene) -> Producer:
    def producer(name: str) -> Producer:
        settings = {"bootstrap.servers": bootstrap, "transactional.id": f"{scene.transactional_id}-{name}"}
        made = Producer({**settings, "transaction.timeout.ms": 60_000})
        made.init_transactions()
        return made

    done, opened, _ = producer("done"), producer("open"), producer("new")
    for made in (done, opened):
        made.begin_transaction()
        made.produce(scene.topic, b"x", partition=0)
        made.produce(scene.topic, b"x", partition=2)
        made.flush()
    done.commit_transaction()
    return opened


@pytest.mark.parametrize("words", SAME_TRANSACTIONS)
@pytest.mark.usefixtures("open_transaction")
def test_transactions_are_printed_as_by_kafkas_tool(java: JavaTools, bootstrap: str, scene: Scene, words: str) -> None:
    arguments = ["--bootstrap-server", bootstrap, *scene.words(words)]
    assert ours(TRANSACTIONS, *arguments) == theirs(java, TRANSACTIONS, *arguments)


@pytest.mark.parametrize(("words", "what"), WRONG_TRANSACTIONS)
def test_a_wrong_command_line_is_refused(words: str, what: str) -> None:
    done = run_here(TRANSACTIONS, "--bootstrap-server", NO_BROKER, *words.split())
    assert (done.code, done.out) == (1, "")
    assert what in done.err.splitlines()[-1]


def test_a_transaction_is_aborted_in_one_partition_and_taken_from_its_producer(
    bootstrap: str, scene: Scene, open_transaction: Producer
) -> None:
    server = ("--bootstrap-server", bootstrap)
    place = ("--topic", scene.topic, "--partition", "2")
    described = ours(TRANSACTIONS, *server, "describe-producers", *place).out.splitlines()[1:]
    (start,) = [line.split("\t")[5].strip() for line in described if "None" not in line]
    assert ours(TRANSACTIONS, *server, "abort", *place, "--start-offset", start) == (0, "", "")
    after = ours(TRANSACTIONS, *server, "describe-producers", *place).out.splitlines()[1:]
    assert all("None" in line for line in after)
    name = f"{scene.transactional_id}-open"
    assert ours(TRANSACTIONS, *server, "forceTerminateTransaction", "--transactionalId", name) == (0, "", "")
    shown = ours(TRANSACTIONS, *server, "describe", "--transactional-id", name).out
    assert "Ongoing" not in shown
    with pytest.raises(Exception, match=r"FENCED|INVALID_PRODUCER_EPOCH|fenced"):
        open_transaction.commit_transaction()


# ---- under their own names


def test_groups_are_shown_and_moved_under_our_own_name(bootstrap: str, scene: Scene, monkeypatch: Any) -> None:
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVER", bootstrap)
    group = f"{scene.group}-own"
    moved = run_here("ottla", "groups", "reset-offsets", group, f"{scene.topic}:0,1", "--to-offset", "4")
    assert (moved.code, moved.err) == (0, "Nothing was changed: --execute does it.\n")
    assert moved.out == f"{scene.topic}\t0\t-\t4\n{scene.topic}\t1\t-\t4\n"
    run_here("ottla", "groups", "reset-offsets", group, f"{scene.topic}:0,1", "--to-offset", "4", "--execute")
    assert f"{group}\tClassic\tEmpty\n" in run_here("ottla", "groups", "list", "--state", "empty").out
    shown = run_here("ottla", "groups", "describe", group)
    assert shown.out.splitlines()[1].split("\t")[:6] == [group, scene.topic, "1", "4", "5", "1"]
    members = run_here("ottla", "groups", "describe", f"{scene.group}-new", "--members").out
    assert members.split("\t")[6] == f"{scene.topic}:0,1,2;{scene.other}:0"
    assert "\tStable\tuniform\t" in run_here("ottla", "groups", "describe", f"{scene.group}-new", "--state").out
    back = run_here("ottla", "groups", "reset-offsets", group, "--by-duration", "P1D", "--execute")
    assert back.out == f"{scene.topic}\t0\t4\t0\n{scene.topic}\t1\t4\t0\n"
    gone = run_here("ottla", "groups", "delete-offsets", group, scene.topic)
    assert (gone.code, gone.out.count("Successful")) == (0, 3)
    assert run_here("ottla", "groups", "delete", f"{scene.group}-classic").code == 1


@pytest.mark.usefixtures("open_transaction")
def test_time_behind_is_the_age_of_the_first_record_that_was_not_read(
    bootstrap: str, topic_names: Callable[[], str], monkeypatch: Any
) -> None:
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVER", bootstrap)
    topic = topic_names()
    assert run_here("ottla", "topics", "create", topic, "--partitions", "3").code == 0
    now_ms = int(time.time() * 1000)
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "gzip", "linger.ms": 100})
    for age_ms in (7_200_000, 3_600_000, 60_000):
        producer.produce(topic, b"old", partition=0, timestamp=now_ms - age_ms)
    producer.produce(topic, b"read", partition=1, timestamp=now_ms - 60_000)
    producer.flush()
    transactional = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    transactional.init_transactions()
    transactional.begin_transaction()
    transactional.produce(topic, b"read", partition=2)
    transactional.commit_transaction()
    commit(bootstrap, topic, {(topic, 0): 1, (topic, 1): 1, (topic, 2): 1})
    shown = run_here("ottla", "groups", "describe", topic, "--time")
    first, second, third = (line.split("\t")[2:] for line in shown.out.splitlines())
    assert first[:5] == ["0", "1", "0", "3", "2"]
    assert 3_600 <= float(first[5]) < 3_700
    assert second == ["1", "1", "0", "1", "0", "0.0"]
    assert third == ["2", "1", "0", "2", "1", "0.0"], "only the marker of a transaction is left"


def test_transactions_are_shown_under_our_own_name(bootstrap: str, scene: Scene, monkeypatch: Any) -> None:
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVER", bootstrap)
    name = f"{scene.transactional_id}-done"
    assert run_here("ottla", "transactions", "list", name).out.split("\t")[-1] == "CompleteCommit\n"
    described = run_here("ottla", "transactions", "describe", name, "not-there")
    assert (described.code, described.err) == (1, "not-there: the transactional id is not known\n")
    assert described.out.split("\t")[1] == name
    assert run_here("ottla", "transactions", "producers", scene.topic, "0").out.count("\n") >= 2
    assert run_here("ottla", "transactions", "hanging", scene.topic).out == ""


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("groups", 2),
        ("groups lst", 2),
        ("groups list --bogus", 2),
        ("groups list --state foo", 2),
        ("groups describe --members --state", 2),
        ("groups reset-offsets g t", 2),
        ("groups reset-offsets g t --to-offset -1", 2),
        ("groups reset-offsets g t --to-latest --to-earliest", 2),
        ("groups reset-offsets g --to-latest", 2),
        ("groups reset-offsets g TOPIC:x --to-latest", 2),
        ("groups reset-offsets g TOPIC --by-duration 1D", 2),
        ("groups reset-offsets g TOPIC --to-datetime 99999-01-01", 2),
        ("groups reset-offsets g --from-file /not/there", 1),
        ("groups reset-offsets g --from-file TMP/garbage.csv", 1),
        ("groups reset-offsets g .. --to-latest", 1),
        ("groups describe not-there", 1),
        ("groups delete not-there --yes", 1),
        ("groups validate-regex (", 1),
        ("transactions", 2),
        ("transactions abort t 0", 2),
        ("transactions abort t -1 --start-offset 0", 2),
        ("transactions list --older-than -5", 2),
        ("transactions describe not-there", 1),
        ("transactions producers ..", 1),
        ("transactions terminate not-there --yes", 1),
    ],
)
def test_bad_input_is_refused_in_one_line(
    bootstrap: str, scene: Scene, monkeypatch: Any, words: str, code: int
) -> None:
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVER", bootstrap)
    (scene.folder / "garbage.csv").write_bytes(bytes(range(256)))
    done = run_here("ottla", *scene.words(words))
    assert (done.code, bool(done.err or words.startswith("groups validate"))) == (code, True)
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("command", "is_on_stdout"),
    [
        (("ottla", "groups", "list"), False),
        (("ottla", "transactions", "list"), False),
        ((GROUPS, "--bootstrap-server", NO_BROKER, "--list"), True),
        ((LISTING, "--bootstrap-server", NO_BROKER, "--list"), True),
        ((TRANSACTIONS, "--bootstrap-server", NO_BROKER, "list"), False),
    ],
)
def test_without_a_broker_tools_give_up_soon(command: tuple[str, ...], is_on_stdout: bool) -> None:
    start = time.monotonic()
    done = run(*command, OTTLA_BOOTSTRAP_SERVER=NO_BROKER)
    assert done.code == 1
    assert "cannot reach 127.0.0.1:1" in (done.out if is_on_stdout else done.err)
    assert time.monotonic() - start < NO_BROKER_SECONDS_MAX


@pytest.mark.parametrize("words", [("--timeout", "-5"), ("--timeout", "0"), ("--timeout", "3000000000")])
def test_extreme_timeouts_cause_no_traceback(bootstrap: str, words: tuple[str, str]) -> None:
    done = run_here(GROUPS, "--bootstrap-server", bootstrap, "--list", *words)
    assert done.code in (0, 1)
    assert "Traceback" not in done.err


@pytest.mark.parametrize("group", ["", "\x1b[31m", "g" * 30_000])
def test_unusual_group_names_are_printed_as_by_kafkas_tool(java: JavaTools, bootstrap: str, group: str) -> None:
    for words in (("--describe",), ("--delete",), ("--reset-offsets", "--dry-run", "--all-topics", "--to-latest")):
        arguments = ("--bootstrap-server", bootstrap, *words, "--group", group)
        told = theirs(java, GROUPS, *arguments)  # control characters as they are, which a pipe does not get from us
        assert ours(GROUPS, *arguments) == told._replace(out=escape(told.out), err=escape(told.err))


def test_a_closed_pipe_ends_a_tool_quietly(bootstrap: str, scene: Scene) -> None:
    command = [sys.executable, "-m", "ottla.cli.kafka_scripts", GROUPS, "--bootstrap-server", bootstrap, "--list"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode in (0, 141)
