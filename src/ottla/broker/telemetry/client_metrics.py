"""Metrics of clients (KIP-714): who is asked for what, who may push when, and what they said.

Rules:
1. Pure: time, ids and facts about clients are arguments. Codes are Kafka's, and so is the subscription's id: it changes
   whenever what a client is asked for changes.
2. A client that asks or pushes before its interval is over is refused, but for one push after each question.
3. Everything is bounded: the clients that are known (the one that was silent longest is forgotten), the numbers of
   one client and of all. A client that is silent for three intervals is forgotten with its numbers.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.base.client_matching import Matcher, matches, parse_matcher
from ottla.base.errors import Error, KafkaError
from ottla.base.resource_keys import INTERVAL_MS, ClientMetricsKeys
from ottla.broker.telemetry.otlp import Attributes, Point
from ottla.protocol.checksums import crc32c
from ottla.protocol.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD

ACCEPTED_COMPRESSION: Final = (ZSTD, LZ4, GZIP, SNAPPY)  # in the order in which clients should choose
ALL_METRICS: Final = "*"
RESERVED_IDS: Final = frozenset({UUID(int=0), UUID(int=1)})

INSTANCES_MAX: Final = 16_384
NUMBERS_PER_CLIENT_MAX: Final = 1000
NUMBERS_MAX: Final = 20_000
SILENT_INTERVALS_MAX: Final = 3
SILENT_MS_MIN: Final = 60_000
SWEEP_MS: Final = 10_000
NEVER: Final = -(2**62)

# After these a client may ask again at once: the answer is what it needs to go on.
ASK_AGAIN: Final = frozenset({Error.UNKNOWN_SUBSCRIPTION_ID, Error.UNSUPPORTED_COMPRESSION_TYPE})

Configs = Mapping[str, Mapping[str, str]]


class Subscription(NamedTuple):
    """What is wanted of those clients that match."""

    metrics: tuple[str, ...]
    interval_ms: int
    matcher: Matcher


class Sample(NamedTuple):
    """One number of one client, for those who show it."""

    client: Mapping[str, str]  # by the names that subscriptions match on
    name: str
    attributes: Attributes
    value: float
    is_counter: bool


class Instance:
    """One client, as long as it lives."""

    def __init__(self, instance_id: UUID, facts: Mapping[str, str]) -> None:
        self.id = instance_id
        self.facts = facts
        self.metrics: tuple[str, ...] = ()
        self.interval_ms = 0
        self.subscription_id = 0
        self.generation = -1  # of the subscriptions that the above was made from
        self.asked_ms = NEVER
        self.pushed_ms = NEVER
        self.last_error = Error.NONE
        self.is_terminating = False
        self.numbers: dict[str, dict[Attributes, tuple[float, bool]]] = {}  # by metric: value, is a counter
        self.number_count = 0

    def subscribe(self, subscriptions: Iterable[Subscription], generation: int) -> None:
        """All that match, together: every metric that one of them wants, as often as the most eager."""
        wanted = [item for item in subscriptions if matches(item.matcher, self.facts)]
        names = tuple(dict.fromkeys(name for item in wanted for name in item.metrics))
        self.metrics = (ALL_METRICS,) if ALL_METRICS in names else names
        self.interval_ms = min((item.interval_ms for item in wanted), default=INTERVAL_MS)
        self.subscription_id = subscription_id(self.metrics, self.interval_ms, self.id)
        self.generation = generation

    def may_ask(self, now_ms: int) -> bool:
        return now_ms - max(self.asked_ms, self.pushed_ms) >= self.interval_ms

    def may_push(self, now_ms: int) -> bool:
        return self.asked_ms > self.pushed_ms or now_ms - self.pushed_ms >= self.interval_ms

    def is_silent(self, now_ms: int) -> bool:
        limit_ms = max(SILENT_INTERVALS_MAX * self.interval_ms, SILENT_MS_MIN)
        return now_ms - max(self.asked_ms, self.pushed_ms) > limit_ms

    def __repr__(self) -> str:
        return f"<Instance {self.id} metrics={len(self.metrics)} numbers={self.number_count} {self.last_error.name}>"


class ClientMetrics:
    """All clients that have asked; iterating gives the newest numbers of all of them."""

    def __init__(self) -> None:
        self._instances: OrderedDict[UUID, Instance] = OrderedDict()  # the one that came last is at the end
        self._configs: Configs | None = None
        self._subscriptions: list[Subscription] = []
        self._generation = 0
        self._swept_ms = NEVER
        self._names: dict[str, set[UUID]] = {}  # who has numbers of a metric
        self.number_count = 0

    def ask(self, instance_id: UUID, facts: Mapping[str, str], configs: Configs, now_ms: int) -> Instance:
        """A client wants to know what to push. Raises KafkaError."""
        instance = self._instance(instance_id, facts, configs, now_ms)
        if not instance.may_ask(now_ms) and instance.last_error not in ASK_AGAIN:
            raise _too_early()
        instance.asked_ms = now_ms
        instance.last_error = Error.NONE
        instance.is_terminating = False
        return instance

    def accept(
        self,
        instance_id: UUID,
        facts: Mapping[str, str],
        configs: Configs,
        push: Any,  # a PushTelemetryRequest
        bytes_max: int,
        now_ms: int,
    ) -> Instance:
        """Whether a push may be taken in; the order of the checks is Kafka's. Raises KafkaError."""
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

    def take(self, instance: Instance, points: Iterable[Point]) -> None:
        """Keep the newest numbers; growth is added up."""
        if self._instances.get(instance.id) is not instance:
            return  # forgotten meanwhile
        for point in points:
            if not isfinite(point.value):  # what was never measured
                continue
            numbers = instance.numbers.get(point.name, {})
            old = numbers.get(point.attributes)
            if old is None:
                if instance.number_count >= NUMBERS_PER_CLIENT_MAX or self.number_count >= NUMBERS_MAX:
                    continue
                instance.number_count += 1
                self.number_count += 1
                instance.numbers[point.name] = numbers
                self._names.setdefault(point.name, set()).add(instance.id)
            before = old[0] if old is not None and point.is_delta else 0.0
            numbers[point.attributes] = (before + point.value, point.is_counter)

    def forget_silent(self, now_ms: int) -> None:
        """Clients that have not been heard of for long; called often, looks now and then."""
        if now_ms - self._swept_ms < SWEEP_MS:
            return
        self._swept_ms = now_ms
        for instance in [item for item in self._instances.values() if item.is_silent(now_ms)]:
            self._forget(instance)

    def __iter__(self) -> Iterator[Sample]:
        """All numbers of one metric stand together. The caller may let others go on in between."""
        for name in list(self._names):
            for instance_id in list(self._names.get(name, ())):
                instance = self._instances.get(instance_id)
                numbers = dict(instance.numbers.get(name, {})) if instance is not None else {}
                for attributes, (value, is_counter) in numbers.items():
                    assert instance is not None
                    yield Sample(instance.facts, name, attributes, value, is_counter)

    def __len__(self) -> int:
        return len(self._instances)

    def __repr__(self) -> str:
        return f"<ClientMetrics clients={len(self._instances)} numbers={self.number_count}>"

    def _instance(self, instance_id: UUID, facts: Mapping[str, str], configs: Configs, now_ms: int) -> Instance:
        if configs is not self._configs:
            self._configs = configs
            self._subscriptions = [subscription_of(config) for config in configs.values()]
            self._generation += 1
        self.forget_silent(now_ms)
        instance = self._instances.get(instance_id)
        if instance is None:
            instance = self._instances[instance_id] = Instance(instance_id, facts)
            if len(self._instances) > INSTANCES_MAX:
                self._forget(next(iter(self._instances.values())))
        self._instances.move_to_end(instance_id)
        if instance.generation != self._generation:
            instance.subscribe(self._subscriptions, self._generation)
        return instance

    def _forget(self, instance: Instance) -> None:
        self.number_count -= instance.number_count
        for name in instance.numbers:
            clients = self._names[name]
            clients.discard(instance.id)
            if not clients:
                del self._names[name]
        del self._instances[instance.id]


def subscription_of(config: Mapping[str, str]) -> Subscription:
    """A subscription as it was set; its values have been checked then."""
    values = {name: key.value(config[name]) for name, key in ClientMetricsKeys.keys.items() if name in config}
    return Subscription(
        tuple(values.get("metrics", ())),
        values.get("interval.ms", INTERVAL_MS),
        parse_matcher(values.get("match", ())),
    )


def subscription_id(metrics: Iterable[str], interval_ms: int, instance_id: UUID) -> int:
    """A number that changes with all three, the same that Kafka computes."""
    checksum = crc32c(f"[{', '.join(metrics)}]{interval_ms}".encode())
    halves = (instance_id.int >> 64) ^ instance_id.int
    value = (checksum ^ (halves >> 32) ^ halves) & 0xFFFF_FFFF
    return value - (1 << 32) if value >> 31 else value


def _check_push(instance: Instance, push: Any, bytes_max: int, now_ms: int) -> None:
    if instance.is_terminating:
        raise KafkaError(Error.INVALID_REQUEST, "The client has said that it ends.")
    is_in_time = instance.may_push(now_ms)
    if is_in_time:
        instance.pushed_ms = now_ms
    elif not push.terminating:
        raise _too_early()
    if push.subscription_id != instance.subscription_id:
        raise KafkaError(Error.UNKNOWN_SUBSCRIPTION_ID, "The subscription has changed.")
    if push.compression_type not in (NONE, *ACCEPTED_COMPRESSION):
        raise KafkaError(Error.UNSUPPORTED_COMPRESSION_TYPE, f"Unknown compression type {push.compression_type}.")
    if len(push.metrics) > bytes_max:
        raise KafkaError(Error.TELEMETRY_TOO_LARGE, f"More than {bytes_max} bytes.")


def _too_early() -> KafkaError:
    return KafkaError(Error.THROTTLING_QUOTA_EXCEEDED, "The interval is not over.")
