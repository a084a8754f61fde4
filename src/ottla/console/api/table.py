"""The whole API: one row a route. A new page's routes are added here, and nowhere else."""

from __future__ import annotations

from ottla.console.api import brokers, clusters, events, groups, message_search, messages, openapi, people, topics
from ottla.console.api.routing import DELETE, GET, PATCH, POST, PUT, Route
from ottla.console.people.rights import Role

CLUSTER = "/api/clusters/{cluster}"
VIEWER, OPERATOR, ADMIN = Role.VIEWER, Role.OPERATOR, Role.ADMIN

ROUTES = [
    Route(GET, "/api/openapi.json", openapi.show, None, "this description"),
    Route(GET, "/api/events", events.stream, VIEWER, "which parts of which clusters have become newer, as a stream"),
    Route(GET, "/api/ages", events.ages, VIEWER, "the same, once", events.Ages),
    Route(GET, "/api/session", people.show_session, None, "who asks", people.SessionAnswer),
    Route(POST, "/api/session", people.sign_in, None, "sign in", None, people.SignIn),
    Route(DELETE, "/api/session", people.sign_out, None, "sign out"),
    Route(
        PUT,
        "/api/session/password",
        people.change_password,
        VIEWER,
        "change one's own password",
        None,
        people.NewPassword,
    ),
    Route(GET, "/api/tokens", people.list_tokens, VIEWER, "one's own tokens", people.TokenList),
    Route(POST, "/api/tokens", people.make_token, VIEWER, "make a token", people.TokenRow, people.TokenBody),
    Route(DELETE, "/api/tokens/{token}", people.drop_token, VIEWER, "forget a token"),
    Route(GET, "/api/people", people.list_people, ADMIN, "who may sign in", people.PersonList),
    Route(
        PUT,
        "/api/people/{name}",
        people.put_person,
        ADMIN,
        "add or change somebody",
        people.PersonRow,
        people.PersonBody,
    ),
    Route(DELETE, "/api/people/{name}", people.drop_person, ADMIN, "forget somebody"),
    Route(GET, "/api/audit", people.list_audit, ADMIN, "who changed what, newest first", people.AuditList),
    Route(GET, "/api/clusters", clusters.list_clusters, VIEWER, "the clusters", clusters.ClusterList),
    Route(
        POST, "/api/clusters", clusters.add_cluster, ADMIN, "add a cluster", clusters.ClusterRow, clusters.NewCluster
    ),
    Route(
        POST, "/api/cluster-test", clusters.test_cluster, ADMIN, "try to connect", clusters.Reached, clusters.NewCluster
    ),
    Route(
        PUT,
        "/api/clusters/{name}",
        clusters.change_cluster,
        ADMIN,
        "change how it is reached",
        clusters.ClusterRow,
        clusters.ClusterBody,
    ),
    Route(DELETE, "/api/clusters/{name}", clusters.forget_cluster, ADMIN, "forget a cluster"),
    Route(GET, f"{CLUSTER}/overview", brokers.overview, VIEWER, "the cluster at a glance", brokers.Overview),
    Route(
        GET,
        f"{CLUSTER}/history",
        brokers.history,
        VIEWER,
        "rates and backlog of the last `hours`",
        brokers.HistoryAnswer,
    ),
    Route(GET, f"{CLUSTER}/brokers", brokers.list_brokers, VIEWER, "all brokers", brokers.BrokerList),
    Route(GET, f"{CLUSTER}/brokers/{{broker}}", brokers.show_broker, VIEWER, "a broker", brokers.BrokerAnswer),
    Route(
        GET, f"{CLUSTER}/brokers/{{broker}}/settings", brokers.list_settings, VIEWER, "its settings", topics.SettingList
    ),
    Route(GET, f"{CLUSTER}/topics", topics.list_topics, VIEWER, "all topics", topics.TopicList),
    Route(POST, f"{CLUSTER}/topics", topics.create_topic, OPERATOR, "create a topic", topics.TopicRow, topics.NewTopic),
    Route(
        POST,
        f"{CLUSTER}/topic-deletions",
        topics.delete_topics,
        OPERATOR,
        "delete several topics",
        topics.Outcomes,
        topics.Names,
    ),
    Route(
        POST,
        f"{CLUSTER}/topic-emptyings",
        topics.empty_topics,
        OPERATOR,
        "delete all records of topics",
        topics.Outcomes,
        topics.Names,
    ),
    Route(GET, f"{CLUSTER}/topics/{{topic}}", topics.show_topic, VIEWER, "a topic", topics.TopicAnswer),
    Route(DELETE, f"{CLUSTER}/topics/{{topic}}", topics.delete_topic, OPERATOR, "delete a topic"),
    Route(
        GET, f"{CLUSTER}/topics/{{topic}}/settings", topics.list_settings, VIEWER, "its settings", topics.SettingList
    ),
    Route(
        PATCH,
        f"{CLUSTER}/topics/{{topic}}/settings",
        topics.change_settings,
        OPERATOR,
        "change settings",
        topics.SettingList,
        topics.SettingChanges,
    ),
    Route(
        PUT,
        f"{CLUSTER}/topics/{{topic}}/partitions",
        topics.add_partitions,
        OPERATOR,
        "add partitions",
        None,
        topics.MorePartitions,
    ),
    Route(
        GET,
        f"{CLUSTER}/topics/{{topic}}/messages",
        messages.list_messages,
        VIEWER,
        "a page of messages: `from` newest, oldest, end, offset or time; `partition`, `limit`, `cursor`, `aborted`",
        messages.MessagePage,
        reads_messages=True,
    ),
    Route(
        POST,
        f"{CLUSTER}/topics/{{topic}}/messages",
        messages.produce_message,
        OPERATOR,
        "write a message",
        messages.WrittenMessage,
        messages.NewMessageBody,
    ),
    Route(
        GET,
        f"{CLUSTER}/topics/{{topic}}/messages/{{partition}}/{{offset}}",
        messages.show_message,
        VIEWER,
        "one message, all of it",
        messages.MessageRow,
        reads_messages=True,
    ),
    Route(
        GET,
        f"{CLUSTER}/topics/{{topic}}/search",
        message_search.search,
        VIEWER,
        "search for `q`, as lines of JSON: hit, progress, end; hanging up stops it",
        reads_messages=True,
    ),
    Route(
        GET,
        f"{CLUSTER}/topics/{{topic}}/message-file",
        message_search.download,
        VIEWER,
        "what a search finds as a file, `format` json or csv",
        reads_messages=True,
    ),
    Route(GET, f"{CLUSTER}/masks", messages.list_masks, ADMIN, "which fields are hidden", messages.MaskRules),
    Route(PUT, f"{CLUSTER}/masks", messages.put_masks, ADMIN, "hide fields", messages.MaskRules, messages.MaskRules),
    Route(GET, f"{CLUSTER}/groups", groups.list_groups, VIEWER, "all groups", groups.GroupList),
    Route(
        POST,
        f"{CLUSTER}/group-deletions",
        groups.delete_several,
        OPERATOR,
        "delete several groups",
        topics.Outcomes,
        topics.Names,
    ),
    Route(GET, f"{CLUSTER}/groups/{{group}}", groups.show_group, VIEWER, "a group", groups.GroupAnswer),
    Route(DELETE, f"{CLUSTER}/groups/{{group}}", groups.delete_group, OPERATOR, "delete a group"),
]
