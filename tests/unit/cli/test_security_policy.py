"""Users, ACLs and quotas as a file: parsing, problems, and the resulting changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from ottla.base.security import Operation, PatternType, Permission, ResourceType
from ottla.cli.cluster_file.policy import policy_text, read_policy
from ottla.cli.cluster_file.policy_document import FileError
from ottla.client.errors import ClientError
from ottla.operations.acls.acl_entries import CLUSTER
from ottla.operations.acls.evaluation import Caller, lost_rights
from ottla.operations.cluster_policy.security_plan import Plan, Row, Step, make_plan, run_steps
from ottla.operations.cluster_policy.security_policy import Policy, entity_key
from ottla.operations.errors import OperationError
from ottla.security.acls import AccessControlEntry, AclBinding, ResourcePattern, group_by_pattern
from ottla.security.authorizer import Authorizer

FILE = """\
# Users, ACLs and quotas. To compare the cluster with this file: ottla security apply FILE --dry-run
# Passwords are not included: brokers do not return them, not even hashed.
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


def test_a_parsed_file_is_written_unchanged() -> None:
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


def test_a_missing_section_is_ignored_and_an_empty_one_means_none() -> None:
    assert read_policy("users: []\n", "f") == Policy(users={})
    assert policy_text(Policy(quotas={})).endswith("\nquotas: []\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "f: the file has none of the sections users, rights, quotas"),
        ("- a", "f:1: the file has none of the sections"),
        ("user: []", "f:1: user: unknown section 'user'; did you mean 'users'?"),
        ("users:\n", "f:1: users: not a list; write [] for an empty section"),
        ("users:\n- alice", "f:2: users, 1: 'alice' is not of the form {word: value, ...}"),
        ("users: [", "f:1: not readable as YAML"),
        (USERS % ", password: x", "f:2: users, 1, password: passwords are not allowed in this file"),
        (USERS % ", salt: '%'", "f:2: users, 1, salt: salt is not base64"),
        (USERS % ", salt: YQ==", "f:2: users, 1: salted_password is missing"),
        (USERS % ", salt: YQ==, salted_password: YQ==", "salted_password: the hash of SCRAM-SHA-256 has 32 bytes"),
        (USERS % "" + USERS[7:] % "", "f:3: users, 2: duplicate of an entry above; remove one of them"),
        ("users:\n- {user: a, mechanism: PLAIN}", "f:2: users, 1, mechanism: unknown mechanism 'PLAIN'"),
        ("users:\n- {user: a, mechanism: SCRAM-SHA-256, iterations: 5}", "iterations: iterations is 4096 to 16384"),
        ("users:\n- user: no\n  mechanism: x", "f:2: users, 1, user: False is not text; put it in quotes"),
        ("rights:\n- {allow: 'User:a', operation: read}", "f:2: rights, 1: name one resource: topic, group"),
        ("rights:\n- {operation: read, topic: t}", "f:2: rights, 1: give either allow or deny"),
        ("rights:\n- {allow: alice, operation: read, topic: t}", "allow: expected a string in format principalType"),
        (
            "rights:\n- allow: 'User:a'\n  topic: t\n  operation: fly",
            "f:4: rights, 1, operation: there is no operation",
        ),
        ("rights:\n- {allow: 'User:a', topic: t}", "f:2: rights, 1: which operation?"),
        (
            "rights:\n- {allow: 'User:a', group: g, operation: [write]}",
            "operation: operation write does not apply to a Group",
        ),
        ("rights:\n- {allow: 'User:a', cluster: x, operation: [alter]}", "cluster: the cluster has no name"),
        ("rights:\n- {allow: 'User:a', topik: x, operation: [alter]}", "topik: unknown key 'topik'; did you mean 't"),
        ("quotas:\n- {user: a, producer_byte_rate: -1}", "f:2: quotas, 1, producer_byte_rate: producer_byte_rate=-1"),
        ("quotas:\n- {user: a, limit: 1}", "f:2: quotas, 1, limit: limit is not a limit of user a"),
        ("quotas:\n- {user: a, producer_byte_rate: 1, producer_byte_rate: 2}", "appears twice"),
    ],
)
def test_problems_are_reported_with_their_line(text: str, words: str) -> None:
    with pytest.raises(FileError) as raised:
        read_policy(text, "f")
    (line,) = raised.value.lines
    assert words in line


def test_all_problems_are_found_at_once() -> None:
    with pytest.raises(FileError) as raised:
        read_policy("user: []\nquotas:\n- {}\nrights:\n- {}\n", "f")
    assert len(raised.value.lines) == 3


# ---- the plan


def test_equal_states_need_no_change() -> None:
    policy = read_policy(FILE, "f")
    assert make_plan(policy, policy, prunes=True).is_empty
    assert make_plan(Policy(), policy, prunes=True).is_empty  # a missing section is ignored


def test_a_plan_shows_additions_changes_and_removals() -> None:
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
    assert plan.unmanaged == {"users": 1, "rights": 2, "quotas": 1}
    pruning = make_plan(wanted, found, prunes=True)
    assert [row for row in marks(pruning) if row.startswith("-")] == [
        "- user bob SCRAM-SHA-256 4096 iterations",
        "- right User:bob may read topic orders",
        "- right User:bob may write topic orders",
        "- quota user bob: producer_byte_rate 5",
    ]
    assert pruning.unmanaged == {}
    assert pruning.alterations()[-1] == ({"user": "bob"}, {}, ["producer_byte_rate"])


def test_a_user_cannot_be_made_without_a_password() -> None:
    wanted = read_policy(USERS % "", "f")
    plan = make_plan(wanted, Policy(users={}))
    assert [change.user for change in plan.impossible()] == ["alice"]
    assert marks(plan) == ["! user alice SCRAM-SHA-256 4096 iterations"]
    other = read_policy(USERS.replace("4096", "8192") % "", "f")
    assert [change.mark for change in make_plan(wanted, other).impossible()] == ["~"]


def test_a_missing_password_is_set_and_an_existing_one_on_request() -> None:
    wanted = read_policy(USERS % f", salt: YQ==, salted_password: {SALTED}", "f")
    found = read_policy(USERS % "", "f")
    assert not make_plan(wanted, Policy(users={})).impossible()
    plan = make_plan(wanted, found)
    assert (plan.is_empty, plan.uncompared_passwords) == (True, ["alice SCRAM-SHA-256"])
    again = make_plan(wanted, found, sets_passwords=True)
    assert (marks(again), again.uncompared_passwords) == (
        ["~ user alice SCRAM-SHA-256 4096 iterations 4096 iterations"],
        [],
    )
    assert SALTED not in repr(wanted)


# ---- checks about the caller


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
def test_the_caller_is_derived_from_the_properties(properties: dict[str, str], principal: str | None) -> None:
    assert Caller(properties).principal == principal


def test_a_plan_must_not_remove_the_callers_right_to_undo_it() -> None:
    own = {right("User:alice", Operation.ALL)}
    others = {right("User:bob", Operation.READ, ResourcePattern(ResourceType.TOPIC, "t"))}
    before = Authorizer(group_by_pattern(own | others))
    lost = lost_rights(Caller(ALICE), before, group_by_pattern(others))
    assert lost == ["User:alice may alter the cluster", "User:alice may alter-configs the cluster"]
    assert lost_rights(Caller(ALICE), before, group_by_pattern(own)) == []
    narrower = {right("User:alice", Operation.ALTER), right("User:alice", Operation.ALTER_CONFIGS)}
    assert lost_rights(Caller(ALICE), before, group_by_pattern(narrower)) == []
    denial = AclBinding(CLUSTER, AccessControlEntry("User:*", "*", Operation.ALTER, Permission.DENY))
    assert lost_rights(Caller(ALICE), before, group_by_pattern(own | {denial})) == ["User:alice may alter the cluster"]


def test_super_users_and_callers_without_rules_lose_nothing() -> None:
    rules = group_by_pattern({right("User:alice", Operation.ALL)})
    assert lost_rights(Caller(ALICE), Authorizer(rules, ["User:alice"]), {}) == []
    assert lost_rights(Caller({}), Authorizer(rules), {}) == []


def test_the_first_rule_may_shut_out_the_caller_if_no_rules_mean_all() -> None:
    before = Authorizer({}, allows_without_rules=True)
    assert lost_rights(Caller({}), before, group_by_pattern({right("User:bob", Operation.ALTER)})) != []


def test_rules_for_an_address_count_and_an_unknown_caller_may_be_any_principal() -> None:
    before = Authorizer(group_by_pattern({right("User:alice", Operation.ALTER, host="10.0.0.1")}))
    assert lost_rights(Caller(ALICE), before, {}) == ["User:alice may alter the cluster"]
    unknown = Caller({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"})
    assert lost_rights(unknown, before, {}) == ["User:alice may alter the cluster"]


A, B, C, D = ((name,) for name in "abcd")


def fails(problem: BaseException) -> Callable[[], Mapping[Row, Exception] | None]:
    def run() -> None:
        raise problem

    return run


def test_all_is_done_in_order() -> None:
    seen: list[str] = []
    outcome = run_steps([Step([A, B], lambda: seen.append("first")), Step([C], lambda: seen.append("second"))])
    assert (outcome.done, outcome.not_done, outcome.problem, seen) == ([A, B, C], [], None, ["first", "second"])


@pytest.mark.parametrize("problem", [ClientError("no"), OperationError("no"), KeyboardInterrupt()])
def test_a_step_that_fails_is_the_last_and_nothing_of_it_is_done(problem: BaseException) -> None:
    outcome = run_steps(
        [Step([A], lambda: None), Step([B], fails(problem)), Step([C, D], lambda: pytest.fail("went on"))]
    )
    assert (outcome.done, outcome.not_done, outcome.problem, outcome.row) == ([A], [B, C, D], problem, B)


def test_of_a_step_that_was_refused_in_part_the_rest_is_done() -> None:
    problem = ClientError("not this one")
    outcome = run_steps([Step([A, B, C], lambda: {B: problem}), Step([D], lambda: pytest.fail("went on"))])
    assert (outcome.done, outcome.not_done, outcome.problem, outcome.row) == ([A, C], [B, D], problem, B)
