"""Routes about a cluster as a whole: rights, users, quotas, settings of all brokers. The rest stands in table.py."""

from __future__ import annotations

from ottla.console.api import acls, brokers, quotas, topics, users
from ottla.console.api.routing import DELETE, GET, PATCH, POST, PUT, Route
from ottla.console.people.rights import Role

CLUSTER = "/api/clusters/{cluster}"
VIEWER, OPERATOR, ADMIN = Role.VIEWER, Role.OPERATOR, Role.ADMIN
CREDENTIAL = f"{CLUSTER}/users/{{user}}/credentials/{{mechanism}}"

CLUSTER_ROUTES = [
    Route(GET, f"{CLUSTER}/acls", acls.list_acls, ADMIN, "all access rules", acls.AclList),
    Route(POST, f"{CLUSTER}/acls", acls.add_acls, ADMIN, "add access rules", acls.AclRules, acls.AclRules),
    Route(
        POST,
        f"{CLUSTER}/acl-deletions",
        acls.remove_acls,
        ADMIN,
        "delete access rules",
        acls.AclRules,
        acls.AclDeletion,
    ),
    Route(
        POST,
        f"{CLUSTER}/acl-previews",
        acls.preview,
        ADMIN,
        "who may do what after a change of rules that may not now, and the other way",
        acls.AclPreview,
        acls.AclChange,
        is_change=False,
    ),
    Route(
        POST,
        f"{CLUSTER}/acl-questions",
        acls.explain,
        ADMIN,
        "why somebody may do something, or not",
        acls.Answered,
        acls.AclQuestion,
        is_change=False,
    ),
    Route(GET, f"{CLUSTER}/users", users.list_users, ADMIN, "who logs in with a password (SCRAM)", users.UserList),
    Route(PUT, CREDENTIAL, users.set_password, ADMIN, "set a password", users.UserList, users.ScramPassword),
    Route(DELETE, CREDENTIAL, users.drop_password, ADMIN, "take a password away", users.UserList),
    Route(
        GET, f"{CLUSTER}/delegation-tokens", users.list_tokens, ADMIN, "delegation tokens", users.DelegationTokenList
    ),
    Route(DELETE, f"{CLUSTER}/delegation-tokens/{{token}}", users.expire, ADMIN, "expire a delegation token"),
    Route(
        GET,
        f"{CLUSTER}/quotas",
        quotas.list_quotas,
        VIEWER,
        "limits of users, client ids and addresses",
        quotas.QuotaList,
        is_about_all=True,
        is_shared=False,
    ),
    Route(
        PATCH,
        f"{CLUSTER}/quotas",
        quotas.change_quota,
        OPERATOR,
        "set and remove limits",
        quotas.QuotaList,
        quotas.QuotaChange,
        is_about_all=True,
    ),
    Route(
        GET,
        f"{CLUSTER}/applied-quotas",
        quotas.list_applied,
        VIEWER,
        "which limits count for `user` with `client`, or for `ip`",
        quotas.AppliedList,
        is_about_all=True,
        is_shared=False,
    ),
    Route(
        GET,
        f"{CLUSTER}/broker-settings",
        brokers.list_default_settings,
        VIEWER,
        "settings of all brokers at once, and which brokers have their own",
        brokers.DefaultSettingList,
        is_shared=False,
    ),
    Route(
        PATCH,
        f"{CLUSTER}/broker-settings",
        brokers.change_default_settings,
        ADMIN,
        "change settings of all brokers while they run",
        brokers.DefaultSettingList,
        topics.SettingChanges,
    ),
]
