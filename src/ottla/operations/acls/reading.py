"""The rules of a cluster, ready to be asked questions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ottla.base.broker_keys.security import parse_principals
from ottla.client.client import Client
from ottla.client.configs import Resource, describe_configs
from ottla.security.acls import AclBinding, acls_of
from ottla.security.authorizer import Authorizer

SUPER_USERS: Final = "super.users"


def authorizer_of(client: Client, bindings: Iterable[AclBinding]) -> Authorizer:
    """What these rules mean under the settings of the broker that was asked; Apache Kafka hides its super users."""
    return authorizer_by(settings_of(client), bindings)


def settings_of(client: Client) -> dict[str, str]:
    """Those of one broker; whether it tells its super users shows in whether SUPER_USERS is among them."""
    brokers = client.cluster().brokers
    configs = describe_configs(client, Resource.BROKER, [str(brokers[0].node_id)]) if brokers else {}
    return {config.name: config.value or "" for found in configs.values() for config in found}


def authorizer_by(settings: Mapping[str, str], bindings: Iterable[AclBinding]) -> Authorizer:
    return Authorizer(
        acls_of(bindings),
        parse_principals(settings.get(SUPER_USERS, "")),
        allows_without_rules=settings.get("allow.everyone.if.no.acl.found", "") == "true",
    )
