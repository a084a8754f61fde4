"""Every key that claims an effect has a test that shows it: this is the list, and it is complete.

A broker key that is only the default of a topic key is shown by the topic key's test, and by the test that every such
key reaches its topics (LAYERS). What nothing acts on says so in docs/settings.md and does not stand here.
"""

from pathlib import Path

import pytest

from ottla.base.broker_settings import BrokerSettings
from ottla.base.topic_keys import BROKER_SYNONYMS, TopicKeys

TESTS = Path(__file__).parents[2]
LAYERS = "unit/base/test_topic_keys.py::test_every_broker_key_behind_a_topic_key_counts"
CLOCK = "unit/broker/test_scheduled_tasks.py::test_each_interval_belongs_to_its_task"
ONE_NODE = "unit/base/test_broker_checks.py::test_invalid_settings_stop_the_start"
EFFECTS = "conformance/test_setting_effects.py"
PARTITION = "unit/replication/test_partition.py"

COORDINATORS = "conformance/test_coordinator_settings.py"
GROUPS = f"{COORDINATORS}::test_limits_of_groups"
TIMES = f"{COORDINATORS}::test_sessions_end_and_transactions_run_out_of_time"
GROUP_BOUNDS = "unit/base/test_resource_keys.py"
MACHINES = "unit/broker/test_coordinator_service.py"
PATTERNS = "unit/broker/test_group_topics.py"
DIALOGUES = "dialogues/test_dialogues.py"  # what the numbers mean; MACHINES shows that they arrive

PARTICIPATION = "unit/broker/test_transaction_verification.py::test_a_busy_coordinator_is_retried_for_a_moment"

FETCHERS = "unit/broker/test_replica_fetcher.py"
REPLICA_FETCHES = f"{FETCHERS}::test_requests_follow_the_settings"
QUOTA = "unit/broker/test_replication_quota.py"
UPKEEP = "unit/controller/test_leader_rebalance.py"
TICKETS = "conformance/test_kerberos_tickets.py"
PEERS = "unit/broker/test_peers.py"
SOCKETS = "unit/network/test_socket_server.py"
LOGINS = "unit/broker/test_server_authenticator.py"
STORED = "unit/broker/test_dynamic_broker_config.py"
ENCODER = f"{STORED}::test_the_encoder_settings_are_used"
OAUTH = "unit/security/test_oauth.py"
OAUTH_SETTINGS = f"{OAUTH}::test_the_settings_arrive"
OAUTH_KEYS = f"{OAUTH}::test_old_keys_stay_good_while_the_provider_is_away"
OAUTH_CLIENT = f"{OAUTH}::test_the_time_for_the_login_server_is_the_longer_of_the_two"
OAUTH_REFRESH = f"{OAUTH}::test_the_refresh_window_is_a_share_of_a_token_s_life"
RIGHTS = "unit/security/test_authorizer.py"
TOKENS = "unit/broker/test_delegation_tokens.py"

TOPIC_KEYS = {
    "cleanup.policy": "unit/storage/cleaning/test_cleaner.py",
    "compression.gzip.level": "conformance/test_compression.py::test_a_higher_level_makes_smaller_batches",
    "compression.lz4.level": "conformance/test_compression.py::test_a_higher_level_makes_smaller_batches",
    "compression.type": f"{EFFECTS}::test_the_codec_of_stored_batches",
    "compression.zstd.level": "conformance/test_compression.py::test_a_higher_level_makes_smaller_batches",
    "delete.retention.ms": "unit/storage/cleaning/test_cleaner.py",
    "file.delete.delay.ms": "unit/storage/test_retention.py::test_files_of_deleted_segments_go_after_the_delay",
    "flush.messages": f"{PARTITION}::test_flush_messages_holds_records_back_until_they_are_on_disk",
    "flush.ms": "unit/broker/test_scheduled_tasks.py::test_a_log_is_flushed_when_its_records_are_as_old_as_flush_ms",
    "follower.replication.throttled.replicas": f"{QUOTA}::test_a_topic_names_its_throttled_replicas",
    "index.interval.bytes": f"{EFFECTS}::test_a_segment_ends_by_size_by_age_and_by_a_full_index",
    "internal.segment.bytes": "unit/base/test_topic_keys.py::test_segments_below_the_limit_are_for_tests",
    "leader.replication.throttled.replicas": f"{QUOTA}::test_a_topic_names_its_throttled_replicas",
    "max.compaction.lag.ms": "unit/storage/cleaning/test_plan.py",
    "max.message.bytes": f"{EFFECTS}::test_the_largest_message",
    "message.timestamp.after.max.ms": f"{EFFECTS}::test_messages_outside_the_timestamp_limits_are_refused",
    "message.timestamp.before.max.ms": f"{EFFECTS}::test_messages_outside_the_timestamp_limits_are_refused",
    "message.timestamp.type": f"{EFFECTS}::test_the_timestamp_type_decides_the_time_of_a_message",
    "min.cleanable.dirty.ratio": "unit/storage/cleaning/test_plan.py",
    "min.compaction.lag.ms": "unit/storage/cleaning/test_plan.py",
    "min.insync.replicas": f"{PARTITION}::test_acks_all_is_refused_when_too_few_replicas_are_in_sync",
    "preallocate": "unit/storage/test_log.py",
    "retention.bytes": "unit/storage/test_retention.py::test_segments_beyond_the_size_are_deleted",
    "retention.ms": f"{EFFECTS}::test_old_segments_go_and_their_files_a_little_later",
    "segment.bytes": f"{EFFECTS}::test_a_segment_ends_by_size_by_age_and_by_a_full_index",
    "segment.index.bytes": "unit/storage/test_log.py::test_a_segment_rolls_when_its_index_is_full",
    "segment.jitter.ms": "unit/storage/test_log.py::test_segments_roll_earlier_by_a_random_part_of_the_jitter",
    "segment.ms": f"{EFFECTS}::test_a_segment_ends_by_size_by_age_and_by_a_full_index",
    "unclean.leader.election.enable": "unit/controller/test_leader_election.py::"
    "test_unclean_election_elects_a_live_replica_in_recovery_state",
}
BROKER_KEYS = {
    "connection.failed.authentication.delay.ms": f"{LOGINS}::test_a_failed_login_is_answered_after_a_delay_and_closed",
    "connections.max.reauth.ms": f"{LOGINS}::test_an_expired_login_closes_the_connection_at_its_next_request",
    "sasl.enabled.mechanisms": f"{LOGINS}::test_each_listener_has_its_own_mechanisms",
    "sasl.jaas.config": f"{LOGINS}::test_a_login_gives_access",
    "sasl.login.connect.timeout.ms": OAUTH_CLIENT,
    "sasl.login.read.timeout.ms": OAUTH_CLIENT,
    "sasl.login.refresh.window.factor": OAUTH_REFRESH,
    "sasl.mechanism.inter.broker.protocol": "unit/broker/test_inter_broker_login.py::"
    "test_a_broker_logs_in_with_the_settings_of_its_listener",
    "sasl.oauthbearer.client.credentials.client.id": OAUTH_REFRESH,
    "sasl.oauthbearer.client.credentials.client.secret": OAUTH_REFRESH,
    "sasl.oauthbearer.clock.skew.seconds": f"{OAUTH}::test_the_clock_skew_is_forgiven",
    "sasl.oauthbearer.expected.audience": OAUTH_SETTINGS,
    "sasl.oauthbearer.expected.issuer": OAUTH_SETTINGS,
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": f"{OAUTH}::test_keys_are_read_once_and_again_when_they_are_old",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": OAUTH_KEYS,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": OAUTH_KEYS,
    "sasl.oauthbearer.jwks.endpoint.url": OAUTH_SETTINGS,
    "sasl.oauthbearer.scope": OAUTH_CLIENT,
    "sasl.oauthbearer.scope.claim.name": f"{OAUTH}::test_what_a_broker_may_expect",
    "sasl.oauthbearer.sub.claim.name": OAUTH_SETTINGS,
    "sasl.oauthbearer.token.endpoint.url": f"{OAUTH}::test_where_a_token_comes_from",
    "sasl.server.callback.handler.class": f"{OAUTH}::"
    "test_unsecured_tokens_count_only_where_kafka_s_class_for_them_is_named",
    "sasl.server.max.receive.size": f"{LOGINS}::test_a_large_frame_before_the_login_closes_the_connection",
    "auto.leader.rebalance.enable": f"{UPKEEP}::test_leadership_stays_where_it_is_if_that_is_wanted",
    "leader.imbalance.check.interval.seconds": f"{UPKEEP}::test_leadership_returns_periodically",
    "leader.imbalance.per.broker.percentage": f"{UPKEEP}::test_a_little_imbalance_is_left_alone",
    "add.partitions.to.txn.retry.backoff.max.ms": PARTICIPATION,
    "add.partitions.to.txn.retry.backoff.ms": PARTICIPATION,
    "advertised.listeners": f"{EFFECTS}::test_clients_get_the_address_of_their_listener",
    "allow.everyone.if.no.acl.found": f"{RIGHTS}::test_a_resource_without_rules_may_be_open",
    "authorizer.class.name": "conformance/test_access_rights.py",
    "ottla.dynamic.config.allowed.paths": "unit/security/test_remote_settings.py",
    "ottla.authorizer.mode": "conformance/test_acl_tools.py::"
    "test_a_dry_run_allows_everything_and_reports_missing_rules",
    "super.users": f"{RIGHTS}::test_super_users_may_do_what_rules_deny",
    "auto.create.topics.enable": "conformance/test_limits.py::test_topics_are_not_created_by_use_when_that_is_off",
    "broker.id": "unit/base/test_broker_settings.py::test_node_id_and_broker_id_stand_for_each_other",
    "broker.rack": "conformance/test_metadata.py",
    "connections.max.idle.ms": "conformance/test_limits.py::test_idle_connections_are_closed",
    "controller.listener.names": "unit/base/test_broker_settings.py::test_the_quick_starts_file_is_one_node",
    "broker.id.generation.enable": ONE_NODE,
    "controller.quorum.bootstrap.servers": ONE_NODE,
    "controller.quorum.voters": ONE_NODE,
    "cordoned.log.dirs": f"{EFFECTS}::test_a_folder_that_is_closed_gets_no_new_partitions",
    "default.replication.factor": f"{EFFECTS}::test_more_replicas_than_brokers_are_refused",
    "delegation.token.expiry.check.interval.ms": (
        f"{TOKENS}::test_expired_tokens_are_removed_in_the_configured_interval"
    ),
    "delegation.token.expiry.time.ms": f"{TOKENS}::test_the_settings_limit_the_lifetime_of_a_token",
    "delegation.token.max.lifetime.ms": f"{TOKENS}::test_the_settings_limit_the_lifetime_of_a_token",
    "delegation.token.secret.key": f"{TOKENS}::test_without_a_secret_there_are_no_tokens",
    "delete.topic.enable": "conformance/test_limits.py",
    "fetch.max.bytes": f"{EFFECTS}::test_most_bytes_of_an_answer_to_a_fetch",
    "follower.replication.throttled.rate": f"{FETCHERS}::test_a_throttled_replica_that_is_behind_waits",
    "group.consumer.assignment.interval.ms": TIMES,
    "group.consumer.assignors": GROUPS,
    "group.consumer.heartbeat.interval.ms": GROUPS,
    "group.consumer.max.assignment.interval.ms": GROUP_BOUNDS,
    "group.consumer.max.heartbeat.interval.ms": GROUP_BOUNDS,
    "group.consumer.max.session.timeout.ms": GROUP_BOUNDS,
    "group.consumer.max.size": GROUPS,
    "group.consumer.migration.policy": f"{COORDINATORS}::test_groups_with_members_may_have_to_keep_their_protocol",
    "group.consumer.min.assignment.interval.ms": GROUP_BOUNDS,
    "group.consumer.min.heartbeat.interval.ms": GROUP_BOUNDS,
    "group.consumer.min.session.timeout.ms": GROUP_BOUNDS,
    "group.consumer.regex.refresh.interval.ms": f"{PATTERNS}::test_resolutions_are_repeated_after_the_maximum_interval",
    "group.consumer.session.timeout.ms": TIMES,
    "group.coordinator.rebalance.protocols": f"{COORDINATORS}::test_the_new_protocol_can_be_switched_off",
    "group.initial.rebalance.delay.ms": TIMES,
    "group.max.session.timeout.ms": GROUPS,
    "group.max.size": GROUPS,
    "ottla.group.metadata.max.bytes": (
        "conformance/test_coordinator_settings.py"
        "::test_the_members_of_all_groups_together_keep_no_more_than_their_limit"
    ),
    "group.min.session.timeout.ms": GROUPS,
    "inter.broker.listener.name": f"{PEERS}::test_the_inter_broker_listener_is_named_or_has_the_protocol",
    "leader.replication.throttled.rate": f"{QUOTA}::test_a_replica_above_the_rate_waits",
    "listener.security.protocol.map": f"{EFFECTS}::test_the_limit_of_one_listener_does_not_affect_the_other",
    "listeners": f"{EFFECTS}::test_the_limit_of_one_listener_does_not_affect_the_other",
    "log.dir": "unit/base/test_broker_settings.py::test_several_folders",
    "log.dirs": "unit/storage/test_log_dirs.py::test_a_new_partition_goes_where_there_are_the_fewest",
    "log.flush.offset.checkpoint.interval.ms": CLOCK,
    "log.flush.scheduler.interval.ms": CLOCK,
    "log.flush.start.offset.checkpoint.interval.ms": CLOCK,
    "log.initial.task.delay.ms": "unit/broker/test_scheduled_tasks.py::test_log_tasks_start_after_the_initial_delay",
    "log.retention.check.interval.ms": CLOCK,
    "max.connection.creation.rate": f"{EFFECTS}::test_new_connections_come_no_faster_than_allowed",
    "max.connections": "conformance/test_limits.py::test_connections_above_the_limit_are_not_served",
    "max.connections.per.ip": "conformance/test_limits.py::test_connections_above_the_limit_are_not_served",
    "max.connections.per.ip.overrides": f"{EFFECTS}::test_one_address_may_have_a_limit_of_its_own",
    "max.incremental.fetch.session.cache.slots": f"{EFFECTS}::test_most_bytes_of_an_answer_to_a_fetch",
    "max.request.partition.size.limit": "unit/broker/test_cluster_handlers.py",
    "node.id": f"{EFFECTS}::test_clients_get_the_address_of_their_listener",
    "num.io.threads": "unit/broker/test_offload.py::test_concurrent_work_never_exceeds_the_thread_limit",
    "num.partitions": "conformance/test_limits.py::test_created_by_use_with_the_brokers_number_of_partitions",
    "num.recovery.threads.per.data.dir": "unit/broker/test_log_dir_loader.py::test_each_directory_has_its_own_threads",
    "num.replica.alter.log.dirs.threads": "faults/test_moving_logs.py",
    "num.replica.fetchers": f"{FETCHERS}::test_each_leader_has_the_configured_number_of_fetchers",
    "offset.metadata.max.bytes": GROUPS,
    "offsets.commit.timeout.ms": (
        "unit/coordination/test_runtime.py::test_wait_for_followers_times_out_and_the_records_stay_valid"
    ),
    "offsets.retention.check.interval.ms": DIALOGUES,
    "offsets.retention.minutes": DIALOGUES,
    "offsets.topic.compression.codec": GROUPS,
    "offsets.topic.num.partitions": GROUPS,
    "offsets.topic.replication.factor": MACHINES,
    "offsets.topic.segment.bytes": MACHINES,
    "process.roles": ONE_NODE,
    "producer.id.expiration.check.interval.ms": CLOCK,
    "producer.id.expiration.ms": "unit/storage/test_producer_state.py",
    "replica.alter.log.dirs.io.max.bytes.per.second": "faults/test_moving_logs.py",
    "replica.fetch.backoff.ms": "unit/broker/test_fetch_plan.py::test_each_failure_extends_the_delay_up_to_a_limit",
    "replica.fetch.max.bytes": REPLICA_FETCHES,
    "replica.fetch.min.bytes": REPLICA_FETCHES,
    "replica.fetch.response.max.bytes": REPLICA_FETCHES,
    "replica.fetch.wait.max.ms": REPLICA_FETCHES,
    "replica.high.watermark.checkpoint.interval.ms": CLOCK,
    "replica.lag.time.max.ms": "unit/replication/test_replicas.py::"
    "test_a_replica_that_lags_leaves_when_the_controller_has_confirmed_it",
    "replica.selector.class": "unit/broker/test_fetch_plan.py",
    "replica.socket.timeout.ms": REPLICA_FETCHES,
    "request.timeout.ms": f"{PEERS}::test_the_response_timeout_follows_the_settings",
    "reserved.broker.max.id": "cluster/test_broker_ids.py::test_a_number_in_the_folders_stays",
    "sasl.kerberos.kinit.cmd": f"{TICKETS}::test_a_ticket_cache_is_renewed_by_the_command_that_is_named",
    "sasl.kerberos.min.time.before.relogin": f"{TICKETS}::test_when_a_ticket_is_renewed",
    "sasl.kerberos.principal.to.local.rules": "conformance/test_kerberos.py::test_a_principal_without_a_short_name",
    "sasl.kerberos.service.name": "cluster/test_kerberos.py::test_brokers_log_in_with_their_keytab_and_replicate",
    "sasl.kerberos.ticket.renew.jitter": f"{TICKETS}::test_when_a_ticket_is_renewed",
    "sasl.kerberos.ticket.renew.window.factor": f"{TICKETS}::test_a_new_ticket_is_got_before_the_old_one_ends",
    "security.inter.broker.protocol": f"{PEERS}::test_the_inter_broker_listener_is_named_or_has_the_protocol",
    "server.max.startup.time.ms": f"{EFFECTS}::test_a_start_that_takes_too_long_is_given_up",
    "socket.connection.setup.timeout.max.ms": f"{PEERS}::test_the_connection_timeout_grows",
    "socket.connection.setup.timeout.ms": f"{PEERS}::test_the_connection_timeout_grows",
    "socket.listen.backlog.size": f"{SOCKETS}::test_no_more_connections_wait_than_the_backlog_lets",
    "socket.receive.buffer.bytes": f"{SOCKETS}::test_buffers_have_the_size_that_is_set",
    "socket.request.max.bytes": "conformance/test_limits.py::test_a_smaller_limit_of_frames",
    "socket.send.buffer.bytes": f"{SOCKETS}::test_buffers_have_the_size_that_is_set",
    "ssl.principal.mapping.rules": "unit/security/test_key_stores.py::test_mapping_rules",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": TIMES,
    "transaction.max.timeout.ms": GROUPS,
    "transaction.partition.verification.enable": f"{COORDINATORS}::test_older_producers_may_be_trusted",
    "transaction.remove.expired.transaction.cleanup.interval.ms": TIMES,
    "transaction.state.log.min.isr": MACHINES,
    "transaction.state.log.num.partitions": GROUPS,
    "transaction.state.log.replication.factor": MACHINES,
    "transaction.state.log.segment.bytes": MACHINES,
    "transactional.id.expiration.ms": TIMES,
    "password.encoder.secret": f"{STORED}::test_a_password_is_stored_plain_without_a_secret_and_encrypted_with_one",
    "password.encoder.old.secret": f"{STORED}::test_stored_passwords_are_encrypted_again_with_the_current_secret",
    "password.encoder.keyfactory.algorithm": ENCODER,
    "password.encoder.cipher.algorithm": ENCODER,
    "password.encoder.key.length": ENCODER,
    "password.encoder.iterations": ENCODER,
    "zookeeper.set.acl": "cluster/test_zookeeper_security.py::test_a_node_belongs_to_its_creator",
}
# Whole families whose tests have a file of their own.
FAMILIES = {
    "controlled.shutdown.": "unit/broker/test_broker_lifecycle.py",
    "log.cleaner.": "unit/broker/test_log_cleaner.py",
    "metrics.": "conformance/test_monitoring.py",
    "ottla.balance.": "unit/controller/test_balancer.py",
    "ottla.heal.": "unit/controller/test_healer.py",
    "ottla.audit.topic.": "unit/broker/test_audit_trail.py",
    "ottla.audit.": "unit/broker/test_audit_trail.py",
    "ottla.maintenance.": "unit/controller/test_demoted_brokers.py",
    "ottla.heal.slow.": "unit/controller/test_demoted_brokers.py",
    "ottla.log.": "unit/base/test_logs.py",
    "ottla.metadata.accepted.loss": "faults/test_lost_metadata.py::"
    "test_an_older_store_is_accepted_once_and_only_when_asked_to",
    "ottla.metrics.": "conformance/test_monitoring.py",
    "ottla.quota.": "unit/broker/test_quota_manager.py",
    "ottla.socket.": "unit/network/test_link_options.py",
    "quota.window.": "unit/broker/test_quota_manager.py",
    "controller.quota.window.": "unit/broker/test_quota_manager.py",
    "replication.quota.window.": "unit/broker/test_replication_quota.py",
    "alter.log.dirs.replication.quota.window.": "unit/broker/test_replication_quota.py",
    "ssl.": "unit/security/test_tls.py",
    "telemetry.": "conformance/test_client_metrics.py",
    "zookeeper.ssl.": "unit/security/test_zookeeper_security.py",
    "zookeeper.": "cluster/test_zookeeper_store.py",
}


def place_of(key: str, table: dict[str, str]) -> str | None:
    return table.get(key) or next((place for prefix, place in FAMILIES.items() if key.startswith(prefix)), None)


def test_every_broker_key_that_acts_is_shown_to_act() -> None:
    through_topics = {name for synonyms in BROKER_SYNONYMS.values() for name, _ in synonyms}
    acting = {name for name, key in BrokerSettings.keys.items() if key.unused_reason is None} - through_topics
    assert {name for name in acting if place_of(name, BROKER_KEYS) is None} == set()


def test_every_topic_key_that_acts_is_shown_to_act() -> None:
    acting = {name for name, key in TopicKeys.keys.items() if key.unused_reason is None}
    assert {name for name in acting if place_of(name, TOPIC_KEYS) is None} == set()


@pytest.mark.parametrize(
    "place",
    sorted(
        {LAYERS}
        | {place for key, place in TOPIC_KEYS.items() if TopicKeys.keys[key].unused_reason is None}
        | {place for key, place in BROKER_KEYS.items() if BrokerSettings.keys[key].unused_reason is None}
    ),
)
def test_the_tests_of_the_list_exist(place: str) -> None:
    path, _, function = place.partition("::")
    assert (TESTS / path).exists()
    if function:
        assert f"def {function}(" in (TESTS / path).read_text()
