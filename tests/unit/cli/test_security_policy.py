"""Users, rights and quotas as a file: what it says, what is wrong with it, what it would change."""

import pytest

from ottla.base.security import Operation, PatternType, Permission, ResourceType
from ottla.cli.security.entries import FileError
from ottla.cli.security.plan import Plan, make_plan
from ottla.cli.security.policy import Policy, entity_key, policy_text, read_policy
from ottla.operations.acls.own_rights import Caller, lost_rights
from ottla.operations.acls.wishes import CLUSTER
from ottla.security.acls import AccessControlEntry, AclBinding, ResourcePattern, acls_of
from ottla.security.authorizer import Authorizer

FILE = """\
# Users, rights and quotas. What differs from this: ottla security apply FILE --dry-run
# Passwords are not in here: no broker gives them away, not even hashed.
users:
- {user: alice, mechanism: SCRAM-SHA-256, iterations: 4096}
- {user: '8', mechanism: SCRAM-SHA-512, iterations: 8192}
rights:
- {allow: 'User:admin', operation: [all], cluster: true}
- {allow: 'User:alice', operation: [read, describe-configs], topic: orders}
- {deny: 'User:alice', operation: [write], topic: or, prefixed: true, host: 10.0.0.1}
- {allow: 'User:ünï', operation: [read], group: '*'}
quotas:
- {client-defaults: true, consumer_byte_rate: 2097152, producer_byte_rate: 1048576}
- {ip: 10.0.0.1, connection_creation_rate: 10}
- {user: alice, client: app, request_percentage: 12.5}
"""
SALTED = "A" * 43 + "="
USERS = "users:\n- {user: alice, mechanism: SCRAM-SHA-256, iterations: 4096%s}\n"


def right(principal: str, operation: Operation, pattern: ResourcePattern = CLUSTER, host: str = "*") -> AclBinding:
    return AclBinding(pattern, AccessControlEntry(principal, host, operation, Permission.ALLOW))


def marks(plan: Plan) -> list[str]:
    return [" ".join(filter(None, row)) for row in plan.rows()]


def test_what_is_read_is_written_the_same() -> None:
    policy = read_policy(FILE, "f")
    text = policy_text(policy)
    assert read_policy(text, "f") == policy
    assert sorted(text.splitlines()) == sorted(FILE.splitlines())
    assert policy_text(read_policy(text, "f")) == text
    pattern = ResourcePattern(ResourceType.TOPIC, "or", PatternType.PREFIXED)
    entry = AccessControlEntry("User:alice", "10.0.0.1", Operation.WRITE, Permission.DENY)
    assert policy.rights is not None
    assert AclBinding(pattern, entry) in policy.rights


def test_names_that_yaml_would_take_for_something_else_are_quoted() -> None:
    quotas = {(entity_key({"user": name}), "producer_byte_rate"): 1.0 for name in ("no", "010", "~", "a: b", "x\ny")}
    policy = Policy(quotas=quotas)
    assert read_policy(policy_text(policy), "f") == policy


def test_a_section_that_is_not_there_says_nothing_and_an_empty_one_says_none() -> None:
    assert read_policy("users: []\n", "f") == Policy(users={})
    assert policy_text(Policy(quotas={})).endswith("\nquotas: []\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "f: the file has none of the sections users, rights, quotas"),
        ("- a", "f:1: the file has none of the sections"),
        ("user: []", "f:1: user: there is no section 'user'; did you mean 'users'?"),
        ("users:\n", "f:1: users: not a list; write [] where there shall be none"),
        ("users:\n- alice", "f:2: users, 1: 'alice' is not of the form {word: value, ...}"),
        ("users: [", "f:1: not readable as YAML"),
        (USERS % ", password: x", "f:2: users, 1, password: passwords do not stand in this file"),
        (USERS % ", salt: '%'", "f:2: users, 1, salt: salt is not base64"),
        (USERS % ", salt: YQ==", "f:2: users, 1: salted_password is missing"),
        (USERS % ", salt: YQ==, salted_password: YQ==", "salted_password: the hash of SCRAM-SHA-256 has 32 bytes"),
        (USERS % "" + USERS[7:] % "", "f:3: users, 2: the same stands above already; remove one of them"),
        ("users:\n- {user: a, mechanism: PLAIN}", "f:2: users, 1, mechanism: there is no mechanism 'PLAIN'"),
        ("users:\n- {user: a, mechanism: SCRAM-SHA-256, iterations: 5}", "iterations: iterations is 4096 to 16384"),
        ("users:\n- user: no\n  mechanism: x", "f:2: users, 1, user: False is not text; put it in quotes"),
        ("rights:\n- {allow: 'User:a', operation: read}", "f:2: rights, 1: name one resource: topic, group"),
        ("rights:\n- {operation: read, topic: t}", "f:2: rights, 1: say either allow or deny"),
        ("rights:\n- {allow: alice, operation: read, topic: t}", "allow: expected a string in format principalType"),
        (
            "rights:\n- allow: 'User:a'\n  topic: t\n  operation: fly",
            "f:4: rights, 1, operation: there is no operation",
        ),
        ("rights:\n- {allow: 'User:a', topic: t}", "f:2: rights, 1: which operation?"),
        ("rights:\n- {allow: 'User:a', group: g, operation: [write]}", "operation: nobody can write a Group"),
        ("rights:\n- {allow: 'User:a', cluster: x, operation: [alter]}", "cluster: the cluster has no name"),
        ("rights:\n- {allow: 'User:a', topik: x, operation: [alter]}", "topik: unknown word 'topik'; did you mean 't"),
        ("quotas:\n- {user: a, producer_byte_rate: -1}", "f:2: quotas, 1, producer_byte_rate: producer_byte_rate=-1"),
        ("quotas:\n- {user: a, limit: 1}", "f:2: quotas, 1, limit: limit is no limit of user a"),
        ("quotas:\n- {user: a, producer_byte_rate: 1, producer_byte_rate: 2}", "stands here twice"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str, words: str) -> None:
    with pytest.raises(FileError) as raised:
        read_policy(text, "f")
    (line,) = raised.value.lines
    assert words in line


def test_all_problems_are_found_at_once() -> None:
    with pytest.raises(FileError) as raised:
        read_policy("user: []\nquotas:\n- {}\nrights:\n- {}\n", "f")
    assert len(raised.value.lines) == 3


# ---- the plan


def test_nothing_changes_what_is_so_already() -> None:
    policy = read_policy(FILE, "f")
    assert make_plan(policy, policy, prunes=True).is_empty
    assert make_plan(Policy(), policy, prunes=True).is_empty  # no section, none of its business


def test_a_plan_shows_what_comes_changes_and_goes() -> None:
    wanted = read_policy(USERS % f", salt: YQ==, salted_password: {SALTED}" + FILE[FILE.index("rights:") :], "f")
    found = read_policy(
        "users:\n- {user: bob, mechanism: SCRAM-SHA-256, iterations: 4096}\n"
        "rights:\n- {allow: 'User:bob', operation: [read, write], topic: orders}\n"
        "quotas:\n- {user: alice, client: app, request_percentage: 10}\n- {user: bob, producer_byte_rate: 5}\n",
        "f",
    )
    plan = make_plan(wanted, found)
    assert marks(plan) == [
        "+ user alice SCRAM-SHA-256 4096 iterations",
        "+ right User:alice may not write each topic that begins with or from 10.0.0.1",
        "+ right User:alice may read topic orders",
        "+ right User:alice may describe-configs topic orders",
        "+ right User:ünï may read each group",
        "+ right User:admin may all cluster kafka-cluster",
        "+ quota each client: consumer_byte_rate 2097152",
        "+ quota each client: producer_byte_rate 1048576",
        "+ quota ip 10.0.0.1: connection_creation_rate 10",
        "~ quota user alice, client app: request_percentage 10 12.5",
    ]
    assert plan.left == {"users": 1, "rights": 2, "quotas": 1}
    pruning = make_plan(wanted, found, prunes=True)
    assert [row for row in marks(pruning) if row.startswith("-")] == [
        "- user bob SCRAM-SHA-256 4096 iterations",
        "- right User:bob may read topic orders",
        "- right User:bob may write topic orders",
        "- quota user bob: producer_byte_rate 5",
    ]
    assert pruning.left == {}
    assert pruning.alterations()[-1] == ({"user": "bob"}, {}, ["producer_byte_rate"])


def test_a_user_cannot_be_made_without_a_password() -> None:
    wanted = read_policy(USERS % "", "f")
    plan = make_plan(wanted, Policy(users={}))
    assert [change.user for change in plan.impossible()] == ["alice"]
    assert marks(plan) == ["! user alice SCRAM-SHA-256 4096 iterations"]
    other = read_policy(USERS.replace("4096", "8192") % "", "f")
    assert [change.mark for change in make_plan(wanted, other).impossible()] == ["~"]


def test_a_password_is_set_where_there_is_none_or_on_request() -> None:
    wanted = read_policy(USERS % f", salt: YQ==, salted_password: {SALTED}", "f")
    found = read_policy(USERS % "", "f")
    assert not make_plan(wanted, Policy(users={})).impossible()
    plan = make_plan(wanted, found)
    assert (plan.is_empty, plan.untold) == (True, ["alice SCRAM-SHA-256"])
    again = make_plan(wanted, found, sets_passwords=True)
    assert (marks(again), again.untold) == (["~ user alice SCRAM-SHA-256 4096 iterations 4096 iterations"], [])
    assert SALTED not in repr(wanted)


# ---- whoever applies it


ALICE = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "alice",
    "sasl.password": "x",
}


@pytest.mark.parametrize(
    ("properties", "principal"),
    [
        ({}, "User:ANONYMOUS"),
        ({"security.protocol": "SSL"}, "User:ANONYMOUS"),
        ({"security.protocol": "SSL", "ssl.keystore.location": "x"}, None),
        (ALICE | {"sasl.jaas.config": 'M required username="t" password="x" tokenauth="true";'}, None),
        (ALICE, "User:alice"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, None),
    ],
)
def test_who_is_at_work_is_known_from_the_properties(properties: dict[str, str], principal: str | None) -> None:
    assert Caller(properties).principal == principal


def test_nobody_takes_the_right_to_change_rights_from_himself() -> None:
    own = {right("User:alice", Operation.ALL)}
    others = {right("User:bob", Operation.READ, ResourcePattern(ResourceType.TOPIC, "t"))}
    before = Authorizer(acls_of(own | others))
    lost = lost_rights(Caller(ALICE), before, acls_of(others))
    assert lost == ["User:alice may alter the cluster", "User:alice may alter-configs the cluster"]
    assert lost_rights(Caller(ALICE), before, acls_of(own)) == []
    narrower = {right("User:alice", Operation.ALTER), right("User:alice", Operation.ALTER_CONFIGS)}
    assert lost_rights(Caller(ALICE), before, acls_of(narrower)) == []
    denial = AclBinding(CLUSTER, AccessControlEntry("User:*", "*", Operation.ALTER, Permission.DENY))
    assert lost_rights(Caller(ALICE), before, acls_of(own | {denial})) == ["User:alice may alter the cluster"]


def test_super_users_and_those_who_have_no_rule_lose_nothing() -> None:
    rules = acls_of({right("User:alice", Operation.ALL)})
    assert lost_rights(Caller(ALICE), Authorizer(rules, ["User:alice"]), {}) == []
    assert lost_rights(Caller({}), Authorizer(rules), {}) == []


def test_where_no_rules_means_all_the_first_rule_may_shut_out() -> None:
    before = Authorizer({}, allows_without_rules=True)
    assert lost_rights(Caller({}), before, acls_of({right("User:bob", Operation.ALTER)})) != []


def test_a_rule_for_one_address_counts_and_an_unknown_caller_may_be_anybody() -> None:
    before = Authorizer(acls_of({right("User:alice", Operation.ALTER, host="10.0.0.1")}))
    assert lost_rights(Caller(ALICE), before, {}) == ["User:alice may alter the cluster"]
    unknown = Caller({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"})
    assert lost_rights(unknown, before, {}) == ["User:alice may alter the cluster"]
