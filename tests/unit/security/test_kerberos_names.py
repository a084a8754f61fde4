"""Short names of principals, with the examples of Kafka's documentation and of its tests' subjects."""

from __future__ import annotations

import pytest

from ottla.security.kerberos_names import KerberosName, KerberosNameError, KerberosShortNamer, parse_name, parse_rule

REALM = "REALM.COM"


def short(principal: str, *rules: str) -> str:
    return KerberosShortNamer(rules, REALM).short_name(principal)


def test_a_name_in_its_parts() -> None:
    assert parse_name("App.service-name/example.com@REALM.COM") == KerberosName(
        "App.service-name", "example.com", "REALM.COM"
    )
    assert parse_name("alice@REALM.COM") == KerberosName("alice", None, "REALM.COM")
    assert parse_name("alice") == KerberosName("alice")
    assert str(parse_name("kafka/host@REALM.COM")) == "kafka/host@REALM.COM"
    for malformed in ("a/b/c@REALM", "alice@REALM@OTHER", "a@b/c"):
        with pytest.raises(KerberosNameError, match="Malformed"):
            parse_name(malformed)


@pytest.mark.parametrize(
    ("principal", "rules", "expected"),
    [
        ("alice@REALM.COM", (), "alice"),
        ("kafka/host@REALM.COM", ("DEFAULT",), "kafka"),
        ("alice", ("DEFAULT",), "alice"),
        ("user/host@OTHER", ("RULE:[2:$1]",), "user"),
        ("user@OTHER", ("RULE:[2:$1]", "RULE:[1:$1]"), "user"),
        ("user@MYDOMAIN.COM", (r"RULE:[1:$1@$0](.*@MYDOMAIN.COM)s/@.*//", "DEFAULT"), "user"),
        ("App/host@REALM.COM", ("RULE:[2:$1](App)s/App/service/", "DEFAULT"), "service"),
        ("other/host@REALM.COM", ("RULE:[2:$1](App)s/App/service/", "DEFAULT"), "other"),
        ("a-b-c@REALM.COM", ("RULE:[1:$1]s/-/_/",), "a_b-c"),
        ("a-b-c@REALM.COM", ("RULE:[1:$1]s/-/_/g",), "a_b_c"),
        ("Alice@REALM.COM", ("RULE:[1:$1]/L",), "alice"),
        ("Bob@PARTNER.COM", ("RULE:[1:$1@$0](.*@PARTNER.COM)s/@.*/-partner//L", "DEFAULT"), "bob-partner"),
        ("Alice@REALM.COM", ("RULE:[1:$1]/U",), "ALICE"),
        ("Alice@REALM.COM", (r"RULE:[1:$1@$0](.*@REALM.COM)s/@.*///L",), "alice"),
        ("Alice@REALM.COM", (r"RULE:[1:$1](Al.*)s/ice/X/g/U",), "ALX"),
        ("bob@REALM.COM", (r"RULE:[1:$1]s/(b)(o)(b)/$3$2x\$/",), "box$"),
        ("bob@REALM.COM", (r"RULE:[1:$1]s/(?<first>b)/${first}b/",), "bbob"),
        ("bob@REALM.COM", (r"RULE:[1:$1]s/b*$//",), "bo"),
    ],
)
def test_rules(principal: str, rules: tuple[str, ...], expected: str) -> None:
    assert short(principal, *rules) == expected


def test_a_principal_without_a_matching_rule_is_refused() -> None:
    with pytest.raises(KerberosNameError, match="No rules apply to alice@OTHER"):
        short("alice@OTHER", "DEFAULT")
    with pytest.raises(KerberosNameError, match="No rules apply to kafka/host@"):
        short("kafka/host@REALM.COM", "RULE:[1:$1]")
    with pytest.raises(KerberosNameError, match="No rules apply to malice"):
        short("malice@OTHER", "RULE:[1:$1](alice)")  # the whole of it must match


def test_a_result_that_is_not_simple_is_refused() -> None:
    with pytest.raises(KerberosNameError, match="Non-simple name alice@OTHER"):
        short("alice@OTHER", "RULE:[1:$1@$0]")


def test_a_part_that_is_not_there() -> None:
    with pytest.raises(KerberosNameError, match="index 3 from"):
        short("alice@REALM.COM", "RULE:[1:$3]")


@pytest.mark.parametrize(
    "rule",
    [
        "default",
        "DEFAULT/L",
        "RULE:[1:$1",
        "RULE:[:$1]",
        "RULE:[1:$x]",
        "RULE:[1:$1](a]",
        "RULE:[1:$1]s/a/b",
        "RULE:[1:$1]/g/L",
        "RULE:[1:$1]/X",
        "RULE:[1:$1]s/[/b/",
        "RULE:[1:$1]s/a/$1/",
        "RULE:[1:$1]s/a/$/",
    ],
)
def test_invalid_rules_are_reported_at_the_start(rule: str) -> None:
    with pytest.raises(KerberosNameError, match="Invalid rule"):
        parse_rule(rule)
