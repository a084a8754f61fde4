"""ACLs, users, quotas and cluster-wide settings in the API, with a fake cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.console.test_api import PEOPLE, ConsoleFixture, run, signed_in

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.base.security import Operation, Permission, ResourceType
from ottla.client.client import Client
from ottla.client.configs import Config, Source
from ottla.client.errors import ClientError, error_from_code
from ottla.client.quotas import Alteration, Quota
from ottla.console.api import acls, brokers, quotas, topics, users
from ottla.console.auth.rights import Grant
from ottla.console.clusters.cluster import Cluster
from ottla.console.store import Person
from ottla.security.acls import AccessControlEntry, AclBinding, AclFilter, ResourcePattern, group_by_pattern
from ottla.security.authorizer import Authorizer

DEFAULT = "/api/clusters/default"
ANONYMOUS = "User:ANONYMOUS"
OWN = {"resource_type": "CLUSTER", "name": "kafka-cluster", "principal": ANONYMOUS, "operation": "ALTER"}
READ = {"resource_type": "TOPIC", "name": "orders", "principal": "User:alice", "operation": "READ"}


class Played:
    """A fake cluster with rules, passwords and limits that replaces the client's functions."""

    def __init__(self, place: ConsoleFixture, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rules: set[AclBinding] = set()
        self.scram: dict[str, dict[str, int]] = {"alice": {"SCRAM-SHA-256": 4096}}
        self.limits: dict[str, float] = {"producer_byte_rate": 10.0}
        self.altered: list[Alteration] = []
        self.problem: ClientError | None = None
        self.configs: dict[str, list[Config]] = {}
        self.wide: list[tuple[object, ...]] = []
        for module, names in (
            (acls, ("describe_acls", "create_acls", "delete_acls", "load_authorizer", "broker_settings")),
            (users, ("describe_scram", "alter_scram")),
            (quotas, ("describe_quotas", "alter_quotas")),
            (brokers, ("describe_configs",)),
            (topics, ("alter_configs",)),
        ):
            for name in names:
                monkeypatch.setattr(module, name, getattr(self, name))
        for method in (Cluster.query, Cluster.query_cached, Cluster.change):
            monkeypatch.setattr(place.cluster, method.__name__, self.ask, raising=False)

    async def ask(self, question: Any, *arguments: object, **_refresh: object) -> object:
        if self.problem is not None:
            raise self.problem
        return question(None, *arguments)

    def describe_acls(self, client: Client, wanted: AclFilter) -> list[AclBinding]:
        return [
            rule for rule in self.rules if wanted.matches_pattern(rule.pattern) and wanted.matches_entry(rule.entry)
        ]

    def create_acls(self, client: Client, rules: list[AclBinding]) -> None:
        self.rules |= set(rules)

    def delete_acls(self, client: Client, filters: list[AclFilter]) -> list[AclBinding]:
        gone = [rule for wanted in filters for rule in self.describe_acls(client, wanted)]
        self.rules -= set(gone)
        return gone

    def load_authorizer(self, client: Client, rules: list[AclBinding]) -> Authorizer:
        return Authorizer(group_by_pattern(rules))

    def broker_settings(self, client: Client) -> dict[str, str]:
        return {"super.users": "User:root"}

    def describe_scram(self, client: Client, names: tuple[str, ...]) -> dict[str, list[tuple[str, int]]]:
        return {user: list(known.items()) for user, known in self.scram.items() if not names or user in names}

    def alter_scram(self, client: Client, user: str, changed: Any, deleted: list[str]) -> None:
        for item in changed:
            self.scram.setdefault(user, {})[item.mechanism] = item.iterations
        for name in deleted:
            del self.scram[user][name]

    def describe_quotas(self, client: Client, wanted: Any, *, is_strict: bool = True) -> list[Quota]:
        return [Quota({"user": "alice"}, dict(self.limits))] if self.limits else []

    def alter_quotas(self, client: Client, alterations: list[Alteration]) -> None:
        self.altered += alterations
        for each in alterations:
            self.limits |= each.changed

    def describe_configs(self, client: Client, resource: object, names: list[str]) -> dict[str, list[Config]]:
        return {name: self.configs[name] for name in names}

    def alter_configs(self, client: Client, *change: object) -> None:
        self.wide.append(change)


def rule(
    principal: str, operation: Operation, kind: ResourceType = ResourceType.TOPIC, name: str = "orders"
) -> AclBinding:
    return AclBinding(ResourcePattern(kind, name), AccessControlEntry(principal, "*", operation, Permission.ALLOW))


@pytest.fixture
def place(tmp_path: Path) -> ConsoleFixture:
    return ConsoleFixture(tmp_path)


@pytest.fixture
def played(place: ConsoleFixture, monkeypatch: pytest.MonkeyPatch) -> Played:
    return Played(place, monkeypatch)


async def trail(place: ConsoleFixture) -> dict[str, Any]:
    _, answer, _ = await place.ask("GET", "/api/audit")
    entry: dict[str, Any] = answer["entries"][0]
    return entry


# ---- rules


def test_rules_are_added_listed_explained_and_deleted(place: ConsoleFixture, played: Played) -> None:
    async def ask() -> None:
        status, answer, _ = await place.ask("POST", f"{DEFAULT}/acls", {"rules": [READ, READ]})
        assert (status, len(answer["rules"])) == (200, 1)
        assert played.rules == {rule("User:alice", Operation.READ)}
        entry = await trail(place)
        assert (entry["target"], entry["before"]) == ("rules of User:alice about topic orders", None)
        assert '"operation":"READ"' in entry["after"]
        _, answer, _ = await place.ask("GET", f"{DEFAULT}/acls")
        assert [row["name"] for row in answer["rules"]] == ["orders"]
        assert answer["unavailable"] is None
        _, answer, _ = await place.ask("POST", f"{DEFAULT}/acl-questions", {**READ, "operation": "WRITE"})
        assert (answer["is_allowed"], answer["reason"]) == (False, "NOTHING_ALLOWS")
        assert answer["are_super_users_known"]
        assert answer["cures"][0]["command"] == "ottla acls add --allow User:alice --operation write --topic orders"
        _, answer, _ = await place.ask("POST", f"{DEFAULT}/acl-previews", {"remove": [READ]})
        assert [(row["operation"], row["is_allowed"]) for row in answer["effects"]] == [
            ("READ", False), ("DESCRIBE", False),
        ]  # fmt: skip
        assert (await place.ask("POST", f"{DEFAULT}/acl-deletions", {"rules": [READ]}))[0] == 200
        assert played.rules == set()
        entry = await trail(place)
        assert '"operation":"READ"' in entry["before"]
        status, answer, _ = await place.ask("POST", f"{DEFAULT}/acl-deletions", {"rules": [READ]})
        assert (status, answer["error"]) == (409, "CHANGED_MEANWHILE")
        assert (answer["sentence"], answer["values"]) == ("{0} of these rules no longer exist: reload the list", ["1"])

    run(place, ask)


def test_the_console_does_not_shut_itself_out_by_mistake(place: ConsoleFixture, played: Played) -> None:
    played.rules = {rule(ANONYMOUS, Operation.ALTER, ResourceType.CLUSTER, "kafka-cluster")}

    async def ask() -> None:
        _, answer, _ = await place.ask("POST", f"{DEFAULT}/acl-previews", {"remove": [OWN]})
        assert answer["lost"] == [f"{ANONYMOUS} may alter the cluster"]
        status, answer, _ = await place.ask("POST", f"{DEFAULT}/acl-deletions", {"rules": [OWN]})
        assert (status, answer["error"]) == (409, "OWN_RIGHTS")
        assert len(played.rules) == 1
        body = {"rules": [OWN], "may_lose_own_rights": True}
        assert (await place.ask("POST", f"{DEFAULT}/acl-deletions", body))[0] == 200
        assert played.rules == set()

    run(place, ask)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"principal": "alice"}, "a principal has a type"),
        ({"name": ""}, "name has 1 to"),
        ({"host": ""}, "host has 1 to"),
        ({"operation": "CLUSTER_ACTION"}, "rules for TOPIC do not support CLUSTER_ACTION"),
        ({"resource_type": "CLUSTER", "operation": "ALTER"}, "the name of the cluster resource is kafka-cluster"),
        ({"operation": "FLY"}, "Invalid enum value 'FLY'"),
        ({"pattern_type": "MATCH"}, "Invalid enum value 'MATCH'"),
        ({"extra": 1}, "unknown field"),
    ],
)
def test_rules_that_make_no_sense_are_refused(
    place: ConsoleFixture, played: Played, changed: dict[str, object], words: str
) -> None:
    async def ask() -> None:
        status, answer, _ = await place.ask("POST", f"{DEFAULT}/acls", {"rules": [{**READ, **changed}]})
        assert (status, answer["error"]) == (400, "BAD_REQUEST")
        assert words in answer["message"]
        assert (await place.ask("POST", f"{DEFAULT}/acls", {"rules": []}))[0] == 400
        assert (await place.ask("POST", f"{DEFAULT}/acls", {"rules": [READ] * 501}))[0] == 400
        assert played.rules == set()

    run(place, ask)


@pytest.mark.parametrize("path", ["acls", "users", "delegation-tokens", "quotas"])
@pytest.mark.parametrize("error", [Error.SECURITY_DISABLED, Error.UNSUPPORTED_VERSION])
def test_an_unavailable_feature_is_reported_with_the_reason(
    place: ConsoleFixture, played: Played, path: str, error: Error
) -> None:
    async def ask() -> None:
        played.problem = error_from_code(error, "No Authorizer is configured.")
        status, answer, _ = await place.ask("GET", f"{DEFAULT}/{path}")
        assert status == 200
        assert answer["unavailable"] == {"error": error.name, "message": "No Authorizer is configured."}
        played.problem = ClientError("no response")
        assert (await place.ask("GET", f"{DEFAULT}/{path}"))[0] == 503

    run(place, ask)


# ---- users


def test_a_password_is_set_and_taken_away_and_stands_nowhere(place: ConsoleFixture, played: Played) -> None:
    path = f"{DEFAULT}/users/alice/credentials"

    async def ask() -> None:
        body = {"password": "hidden words", "iterations": 5000}
        status, answer, _ = await place.ask("PUT", f"{path}/SCRAM-SHA-512", body)
        assert status == 200
        assert answer["users"][0]["credentials"][1] == {"mechanism": "SCRAM-SHA-512", "iterations": 5000}
        entry = await trail(place)
        assert (entry["before"], entry["after"]) == ('{"SCRAM-SHA-256":4096}', '{"SCRAM-SHA-512":5000}')
        assert "hidden words" not in str(entry)
        assert (await place.ask("DELETE", f"{path}/SCRAM-SHA-256"))[0] == 200
        assert played.scram == {"alice": {"SCRAM-SHA-512": 5000}}
        assert (await place.ask("DELETE", f"{path}/SCRAM-SHA-256"))[0] == 404
        for wrong in ({"password": ""}, {"password": "x" * 1001}, {"password": "x", "iterations": 100}):
            assert (await place.ask("PUT", f"{path}/SCRAM-SHA-512", wrong))[0] == 400
        assert (await place.ask("PUT", f"{path}/MD5", {"password": "x"}))[0] == 400

    run(place, ask)


# ---- quotas


def test_a_limit_changed_meanwhile_is_a_conflict(place: ConsoleFixture, played: Played) -> None:
    change = {"entity": {"user": "alice"}, "set": {"producer_byte_rate": 20}}

    async def ask() -> None:
        stale = {**change, "expected": {"producer_byte_rate": 5}}
        status, answer, _ = await place.ask("PATCH", f"{DEFAULT}/quotas", stale)
        assert (status, answer["values"]) == (409, ["producer_byte_rate", "10"])
        assert played.altered == []
        fresh = {**change, "expected": {"producer_byte_rate": 10}}
        assert (await place.ask("PATCH", f"{DEFAULT}/quotas", fresh))[0] == 200
        assert played.altered == [Alteration({"user": "alice"}, {"producer_byte_rate": 20.0}, [])]
        entry = await trail(place)
        assert (entry["target"], entry["before"]) == ("quota of user alice", '{"producer_byte_rate":10.0}')
        gone = {"entity": {"user": "alice"}, "remove": ["consumer_byte_rate"]}
        assert (await place.ask("PATCH", f"{DEFAULT}/quotas", gone))[0] == 409
        _, answer, _ = await place.ask("GET", f"{DEFAULT}/applied-quotas?user=alice")
        assert answer["applied"][0]["counts"]

    run(place, ask)


@pytest.mark.parametrize(
    "body",
    [
        {"entity": {}, "set": {"producer_byte_rate": 1}},
        {"entity": {"user": ""}, "set": {"producer_byte_rate": 1}},
        {"entity": {"group": "x"}, "set": {"producer_byte_rate": 1}},
        {"entity": {"user": "a", "ip": "10.0.0.1"}, "set": {"producer_byte_rate": 1}},
        {"entity": {"ip": "10.0.0.1"}, "set": {"producer_byte_rate": 1}},
        {"entity": {"user": "a"}, "set": {"speed": 1}},
        {"entity": {"user": "a"}, "set": {"producer_byte_rate": 0}},
        {"entity": {"user": "a"}, "set": {"producer_byte_rate": 1.5}},
        {"entity": {"user": "a"}, "set": {"producer_byte_rate": 1e30}},
        {"entity": {"user": "a" * 1001}, "set": {"producer_byte_rate": 1}},
        {"entity": {"user": "a"}},
    ],
)
def test_limits_that_make_no_sense_are_refused(place: ConsoleFixture, played: Played, body: object) -> None:
    async def ask() -> None:
        status, answer, _ = await place.ask("PATCH", f"{DEFAULT}/quotas", body)
        assert (status, answer["error"]) == (400, "BAD_REQUEST")
        assert played.altered == []
        assert (await place.ask("GET", f"{DEFAULT}/applied-quotas"))[0] == 400

    run(place, ask)


# ---- settings of all brokers


def test_cluster_wide_settings_list_the_brokers_that_differ(place: ConsoleFixture, played: Played) -> None:
    def config(name: str, value: str, source: Source, *, is_read_only: bool = False) -> Config:
        return Config(name, value, source, False, is_read_only)

    played.configs = {
        "": [config("a", "1", Source.DYNAMIC_DEFAULT_BROKER_CONFIG)],
        "1": [config("a", "2", Source.DYNAMIC_BROKER_CONFIG), config("b", "3", Source.DEFAULT_CONFIG)],
        "2": [
            config("a", "1", Source.DYNAMIC_DEFAULT_BROKER_CONFIG),
            config("fixed", "", Source.DEFAULT_CONFIG, is_read_only=True),
        ],
    }

    async def ask() -> None:
        _, answer, _ = await place.ask("GET", f"{DEFAULT}/broker-settings")
        assert [
            (row["name"], row["value"], row["is_set"], row["in_force"], row["own"]) for row in answer["settings"]
        ] == [
            ("a", "1", True, "2", [1]),
            ("b", None, False, "3", []),
        ]
        stale = {"set": {"a": "9"}, "expected": {"a": "0"}}
        assert (await place.ask("PATCH", f"{DEFAULT}/broker-settings", stale))[0] == 409
        fresh = {"set": {"a": "9"}, "expected": {"a": "1"}}
        assert (await place.ask("PATCH", f"{DEFAULT}/broker-settings", fresh))[0] == 200
        assert [change[1:] for change in played.wide] == [("", {"a": "9"}, [])]
        entry = await trail(place)
        assert (entry["target"], entry["before"], entry["after"]) == ("all brokers", '{"a":"1"}', '{"a":"9"}')

    run(place, ask)


# ---- who may

SOME = (
    *PEOPLE,
    Person("otto", PEOPLE[2].password, [Grant("operator")]),
    Person("adam", PEOPLE[2].password, [Grant("admin", names="orders*")]),
    Person("ada", PEOPLE[2].password, [Grant("admin", cluster="default")]),
)
ADMIN_ONLY = [
    ("GET", "acls", None),
    ("POST", "acls", {"rules": [READ]}),
    ("POST", "acl-deletions", {"rules": [READ]}),
    ("POST", "acl-previews", {}),
    ("POST", "acl-questions", READ),
    ("GET", "users", None),
    ("PUT", "users/alice/credentials/SCRAM-SHA-512", {"password": "x"}),
    ("DELETE", "users/alice/credentials/SCRAM-SHA-256", None),
    ("GET", "delegation-tokens", None),
    ("DELETE", "delegation-tokens/x", None),
    ("PATCH", "broker-settings", {"set": {"a": "1"}}),
]


def test_rights_and_users_are_for_admins_and_quotas_for_operators_of_all_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = ConsoleFixture(tmp_path, needs_sign_in=True, people=SOME)
    played = Played(place, monkeypatch)
    limit = {"entity": {"user": "alice"}, "set": {"producer_byte_rate": 20}}

    cookies: dict[str, str] = {}

    async def status(name: str, method: str, path: str, body: object) -> int:
        if name not in cookies:
            words = "olga's password" if name == "olga" else "vera's password"
            _, _, headers = await place.ask("POST", "/api/session", {"name": name, "password": words})
            cookies[name] = headers["set-cookie"].partition(";")[0]
        return (await place.ask(method, f"{DEFAULT}/{path}", body, cookie=cookies[name]))[0]

    async def ask() -> None:
        for name in ("vera", "olga", "otto", "adam"):
            for method, path, body in ADMIN_ONLY:
                assert await status(name, method, path, body) == 403, (name, path)
        assert played.rules == set()
        assert await status("ada", "GET", "acls", None) == 200, "of this cluster"
        for name, looks, changes in (("vera", 200, 403), ("olga", 403, 403), ("adam", 403, 403), ("otto", 200, 200)):
            assert await status(name, "GET", "quotas", None) == looks, name
            assert await status(name, "GET", "applied-quotas?user=alice", None) == looks, name
            assert await status(name, "PATCH", "quotas", limit) == changes, name
        _, answer, _ = await place.ask("GET", f"{DEFAULT}/quotas", cookie=cookies["olga"])
        assert answer["sentence"] == "{0} may not do this: it needs the role of {1} for all names"
        assert answer["values"] == ["olga", "viewer"]

    run(place, ask)


def test_a_group_names_no_topic_that_its_viewer_does_not_see(tmp_path: Path) -> None:
    people = (
        *PEOPLE,
        Person("gina", PEOPLE[2].password, [Grant("operator", names="a/b*"), Grant("viewer", names="pay*")]),
    )
    place = ConsoleFixture(tmp_path, needs_sign_in=True, people=people)
    hidden = {**place.cluster.snapshot.commits["a/b ?"], TopicPartition("payments", 0): 1}
    place.cluster.snapshot = replace(place.cluster.snapshot, commits={"a/b ?": hidden})

    async def ask() -> None:
        _, _, headers = await place.ask("POST", "/api/session", {"name": "gina", "password": "vera's password"})
        cookie = headers["set-cookie"].partition(";")[0]
        _, answer, _ = await place.ask("GET", f"{DEFAULT}/groups/a%2Fb%20%3F", cookie=cookie)
        assert ([row["topic"] for row in answer["partitions"]], answer["hidden"]) == (["payments"], 1)
        assert "orders" not in str(answer)
        rows = {"rows": [{"topic": "orders", "partition": 1, "before": 25, "after": 0}]}
        status, answer, _ = await place.ask("POST", f"{DEFAULT}/groups/a%2Fb%20%3F/resets", rows, cookie=cookie)
        assert (status, answer["sentence"]) == (403, "{0} may not do this with {1}")
        _, answer, _ = await place.ask("GET", f"{DEFAULT}/groups/a%2Fb%20%3F", cookie=await signed_in(place, "anna"))
        assert (len(answer["partitions"]), answer["hidden"]) == (2, 0)

    run(place, ask)
