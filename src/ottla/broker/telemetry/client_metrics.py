"""Client metrics (KIP-714): subscriptions, push intervals, and the latest values of all clients (Kafka's
ClientMetricsManager).

Rules:
1. Pure: time, ids and client attributes are arguments. Error codes and the subscription id are Kafka's: the id changes
   whenever the subscription of a client changes.
2. A request or push before the end of its interval is rejected, except for one push after each subscription request.
3. Everything is bounded: the number of clients (the least recently seen one is evicted), the values per client and in
   total. A client without a push for three intervals is removed with its values.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.base.errors import Error, KafkaError
from ottla.base.resource_keys import INTERVAL_MS, ClientMetricsKeys, Matcher, matches, parse_matcher
from ottla.broker.telemetry.otlp import Attributes, Point
from ottla.protocol.checksums import crc32c
from ottla.protocol.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD

ACCEPTED_COMPRESSION: Final = (ZSTD, LZ4, GZIP, SNAPPY)  # in the order of preference
ALL_METRICS: Final = "*"
RESERVED_IDS: Final = frozenset({UUID(int=0), UUID(int=1)})

CLIENT_INSTANCES_MAX: Final = 16_384
VALUES_PER_CLIENT_MAX: Final = 1000
VALUES_MAX: Final = 20_000
SILENT_INTERVALS_MAX: Final = 3
SILENT_MS_MIN: Final = 60_000
SWEEP_MS: Final = 10_000
NEVER: Final = -(2**62)

# After these errors a client may request its subscription at once: the response resolves them.
SUBSCRIPTION_ERRORS: Final = frozenset({Error.UNKNOWN_SUBSCRIPTION_ID, Error.UNSUPPORTED_COMPRESSION_TYPE})

Configs = Mapping[str, Mapping[str, str]]


class Subscription(NamedTuple):
    """The metrics to push by matching clients."""

    metrics: tuple[str, ...]
    interval_ms: int
    matcher: Matcher


class Sample(NamedTuple):
    """One value of one client, for display."""

    client: Mapping[str, str]  # by the names that subscriptions match on
    name: str
    attributes: Attributes
    value: float
    is_counter: bool


class ClientInstance:
    """One client instance."""

    def __init__(self, instance_id: UUID, facts: Mapping[str, str]) -> None:
        self.id = instance_id
        self.attributes = facts
        self.metrics: tuple[str, ...] = ()
        self.interval_ms = 0
        self.subscription_id = 0
        self.generation = -1  # of the subscriptions that the above was computed from
        self.last_get_request_ms = NEVER
        self.last_push_request_ms = NEVER
        self.last_error = Error.NONE
        self.is_terminating = False
        self.values: dict[str, dict[Attributes, tuple[float, bool]]] = {}  # by metric: value, is a counter
        self.value_count = 0

    def subscribe(self, subscriptions: Iterable[Subscription], generation: int) -> None:
        """Combine all matching subscriptions: the union of their metrics, the shortest of their intervals."""
        wanted = [item for item in subscriptions if matches(item.matcher, self.attributes)]
        names = tuple(dict.fromkeys(name for item in wanted for name in item.metrics))
        self.metrics = (ALL_METRICS,) if ALL_METRICS in names else names
        self.interval_ms = min((item.interval_ms for item in wanted), default=INTERVAL_MS)
        self.subscription_id = subscription_id(self.metrics, self.interval_ms, self.id)
        self.generation = generation

    def may_get_subscription(self, now_ms: int) -> bool:
        return now_ms - max(self.last_get_request_ms, self.last_push_request_ms) >= self.interval_ms

    def may_push(self, now_ms: int) -> bool:
        return (
            self.last_get_request_ms > self.last_push_request_ms
            or now_ms - self.last_push_request_ms >= self.interval_ms
        )

    def is_silent(self, now_ms: int) -> bool:
        limit_ms = max(SILENT_INTERVALS_MAX * self.interval_ms, SILENT_MS_MIN)
        return now_ms - max(self.last_get_request_ms, self.last_push_request_ms) > limit_ms

    def __repr__(self) -> str:
        return (
            f"<ClientInstance {self.id} metrics={len(self.metrics)} numbers={self.value_count} {self.last_error.name}>"
        )


class ClientMetricsManager:
    """All known clients; iterating yields their latest values."""

    def __init__(self) -> None:
        self._instances: OrderedDict[UUID, ClientInstance] = OrderedDict()  # the most recently seen one is at the end
        self._configs: Configs | None = None
        self._subscriptions: list[Subscription] = []
        self._generation = 0
        self._swept_ms = NEVER
        self._names: dict[str, set[UUID]] = {}  # clients with values of a metric
        self.value_count = 0

    def get_subscription(
        self, instance_id: UUID, facts: Mapping[str, str], configs: Configs, now_ms: int
    ) -> ClientInstance:
        """Return the subscription that a client requests. Raises KafkaError."""
        instance = self._instance(instance_id, facts, configs, now_ms)
        if not instance.may_get_subscription(now_ms) and instance.last_error not in SUBSCRIPTION_ERRORS:
            raise _throttled_error()
        instance.last_get_request_ms = now_ms
        instance.last_error = Error.NONE
        instance.is_terminating = False
        return instance

    def check_push(
        self,
        instance_id: UUID,
        facts: Mapping[str, str],
        configs: Configs,
        push: Any,  # a PushTelemetryRequest
        bytes_max: int,
        now_ms: int,
    ) -> ClientInstance:
        """Check whether a push is acceptable, in Kafka's order. Raises KafkaError."""
        if instance_id in RESERVED_IDS:
            raise KafkaError(Error.INVALID_REQUEST, "A push needs the id of its client.")
        instance = self._instance(instance_id, facts, configs, now_ms)
        try:
            _check_push(instance, push, bytes_max, now_ms)
        except KafkaError as refusal:
            instance.last_error = refusal.error
            raise
        instance.is_terminating = push.terminating
        instance.last_error = Error.NONE
        return instance

    def store_values(self, instance: ClientInstance, points: Iterable[Point]) -> None:
        """Store the latest values; deltas are added up."""
        if self._instances.get(instance.id) is not instance:
            return  # removed meanwhile
        for point in points:
            if not isfinite(point.value):  # never measured
                continue
            numbers = instance.values.get(point.name, {})
            old = numbers.get(point.attributes)
            if old is None:
                if instance.value_count >= VALUES_PER_CLIENT_MAX or self.value_count >= VALUES_MAX:
                    continue
                instance.value_count += 1
                self.value_count += 1
                instance.values[point.name] = numbers
                self._names.setdefault(point.name, set()).add(instance.id)
            before = old[0] if old is not None and point.is_delta else 0.0
            numbers[point.attributes] = (before + point.value, point.is_counter)

    def remove_silent_clients(self, now_ms: int) -> None:
        """Remove clients without a push for three intervals; cheap to call often."""
        if now_ms - self._swept_ms < SWEEP_MS:
            return
        self._swept_ms = now_ms
        for instance in [item for item in self._instances.values() if item.is_silent(now_ms)]:
            self._remove(instance)

    def __iter__(self) -> Iterator[Sample]:
        """Iterate over all values; those of one metric are contiguous. The caller may yield to the loop in between."""
        for name in list(self._names):
            for instance_id in list(self._names.get(name, ())):
                instance = self._instances.get(instance_id)
                numbers = dict(instance.values.get(name, {})) if instance is not None else {}
                for attributes, (value, is_counter) in numbers.items():
                    assert instance is not None
                    yield Sample(instance.attributes, name, attributes, value, is_counter)

    def __len__(self) -> int:
        return len(self._instances)

    def __repr__(self) -> str:
        return f"<ClientMetricsManager clients={len(self._instances)} numbers={self.value_count}>"

    def _instance(self, instance_id: UUID, facts: Mapping[str, str], configs: Configs, now_ms: int) -> ClientInstance:
        if configs is not self._configs:
            self._configs = configs
            self._subscriptions = [parse_subscription(config) for config in configs.values()]
            self._generation += 1
        self.remove_silent_clients(now_ms)
        instance = self._instances.get(instance_id)
        if instance is None:
            instance = self._instances[instance_id] = ClientInstance(instance_id, facts)
            if len(self._instances) > CLIENT_INSTANCES_MAX:
                self._remove(next(iter(self._instances.values())))
        self._instances.move_to_end(instance_id)
        if instance.generation != self._generation:
            instance.subscribe(self._subscriptions, self._generation)
        return instance

    def _remove(self, instance: ClientInstance) -> None:
        self.value_count -= instance.value_count
        for name in instance.values:
            clients = self._names[name]
            clients.discard(instance.id)
            if not clients:
                del self._names[name]
        del self._instances[instance.id]


def parse_subscription(config: Mapping[str, str]) -> Subscription:
    """Return the subscription of a validated configuration."""
    values = {name: key.value(config[name]) for name, key in ClientMetricsKeys.keys.items() if name in config}
    return Subscription(
        tuple(values.get("metrics", ())),
        values.get("interval.ms", INTERVAL_MS),
        parse_matcher(values.get("match", ())),
    )


def subscription_id(metrics: Iterable[str], interval_ms: int, instance_id: UUID) -> int:
    """Return the subscription id as Kafka computes it; it changes with each argument."""
    checksum = crc32c(f"[{', '.join(metrics)}]{interval_ms}".encode())
    halves = (instance_id.int >> 64) ^ instance_id.int
    value = (checksum ^ (halves >> 32) ^ halves) & 0xFFFF_FFFF
    return value - (1 << 32) if value >> 31 else value


def _check_push(instance: ClientInstance, push: Any, bytes_max: int, now_ms: int) -> None:
    if instance.is_terminating:
        raise KafkaError(Error.INVALID_REQUEST, "The client is terminating.")
    is_in_time = instance.may_push(now_ms)
    if is_in_time:
        instance.last_push_request_ms = now_ms
    elif not push.terminating:
        raise _throttled_error()
    if push.subscription_id != instance.subscription_id:
        raise KafkaError(Error.UNKNOWN_SUBSCRIPTION_ID, "The subscription has changed.")
    if push.compression_type not in (NONE, *ACCEPTED_COMPRESSION):
        raise KafkaError(Error.UNSUPPORTED_COMPRESSION_TYPE, f"Unknown compression type {push.compression_type}.")
    if len(push.metrics) > bytes_max:
        raise KafkaError(Error.TELEMETRY_TOO_LARGE, f"More than {bytes_max} bytes.")


def _throttled_error() -> KafkaError:
    return KafkaError(Error.THROTTLING_QUOTA_EXCEEDED, "The push interval has not elapsed.")
