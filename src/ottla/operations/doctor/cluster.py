"""Brokers and partitions: who is there, who leads, who is in sync.  Pure; each check is one function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ottla.base.counting import counted
from ottla.operations.doctor.facts import BROKER_TOPICS, Facts
from ottla.operations.doctor.findings import Finding, Severity, brokers_text, is_local, known, some
from ottla.operations.topic_replicas import min_isr

IMBALANCE_PERCENTAGE_MAX = 10
SLOW_MS, SLOW_MS_MAX = 100.0, 1000.0
SKEW_MS_MAX = 10_000
MOVES_MAX = 50
UNLIMITED = 2**63 - 1


# ---- brokers


def check_reachable(facts: Facts) -> Iterator[Finding]:
    for broker in facts.brokers.values():
        if broker.problem is None:
            continue
        is_name = "host name" in broker.problem
        what = f"broker {broker.id} cannot be reached at {broker.address}, the address that it tells clients: "
        cause = broker.problem.partition(": ")[2].partition(". Is the broker")[0] or broker.problem
        yield known(Severity.PROBLEM, "F2" if is_name else "F5", what + cause)


def check_advertised(facts: Facts) -> Iterator[Finding]:
    """Several brokers that are told as this very machine: whoever is elsewhere reaches none of them."""
    odd = [broker for broker in facts.brokers.values() if is_local(broker.address.host) and broker.problem is None]
    others = [broker for broker in facts.brokers.values() if not is_local(broker.address.host)]
    for broker in odd if others else ():
        what = f"broker {broker.id} tells clients {broker.address}, which only this machine can reach; others do not"
        yield known(Severity.WARNING, "F5", what)


def check_missing(facts: Facts) -> Iterator[Finding]:
    held = Counter(broker for _, partition in facts.partitions() for broker in partition.replicas)
    for broker in sorted(set(held) - set(facts.brokers)):
        what = f"broker {broker} is not in the cluster, but holds {counted(held[broker], 'replica')}"
        yield known(Severity.PROBLEM, "F6", what)


def check_controller(facts: Facts) -> Iterator[Finding]:
    told = {broker.id: broker.controller_id for broker in facts.brokers.values() if broker.controller_id is not None}
    without = [id_ for id_, controller in told.items() if controller < 0]
    if without and len(without) == len(told):
        yield Finding(
            Severity.PROBLEM,
            "F14",
            "the cluster has no controller: nobody elects leaders, creates topics or moves replicas",
            "the last one died and no other could be elected: ZooKeeper cannot be reached, or no broker is registered",
            "look whether ZooKeeper answers (ottla zookeeper, echo srvr | nc HOST 2181) and what the brokers' logs say",
        )
    elif without:
        yield known(Severity.WARNING, "F14", f"no controller is known to {brokers_text(without)}, but to the others")


def check_views(facts: Facts) -> Iterator[Finding]:
    """Brokers that tell another leader than most, under the same or an older epoch, and still do a moment later."""
    views = {broker.id: broker.leaders for broker in facts.brokers.values() if broker.leaders is not None}
    differing: dict[int, list[str]] = {}
    for name in {name for view in views.values() for name in view}:
        told = {broker: view.get(name) for broker, view in views.items()}
        if len(set(told.values())) < 2:
            continue
        newest = max((state for state in told.values() if state is not None), key=lambda state: state[1])
        current = facts.later.get(name)
        for broker, state in told.items():
            if state != newest and current is not None and current.leader == newest[0]:
                differing.setdefault(broker, []).append(str(name))
    for broker, names in sorted(differing.items()):
        yield known(
            Severity.PROBLEM, "F14", f"broker {broker} tells other leaders than the rest: {some(sorted(names))}"
        )


def check_versions(facts: Facts) -> Iterator[Finding]:
    offered = {broker.id: broker.versions for broker in facts.brokers.values() if broker.versions}
    if len({tuple(sorted(versions.items())) for versions in offered.values()}) > 1:
        what = f"{brokers_text(offered)} offer different versions of the protocol"
        yield known(Severity.NOTE, "F13", f"{what}: an upgrade is under way, or was never finished")


def check_speed(facts: Facts) -> Iterator[Finding]:
    for broker in facts.brokers.values():
        worst = max(broker.milliseconds, default=0.0)
        if worst > SLOW_MS:
            severity = Severity.PROBLEM if worst > SLOW_MS_MAX else Severity.WARNING
            what = f"broker {broker.id} needed {worst:.0f} ms for an answer that takes a few"
            yield known(severity, "F15", what)


def check_clocks(facts: Facts) -> Iterator[Finding]:
    """A broker whose own records are in the future has a clock that is ahead; that one is behind cannot be seen."""
    leaders = {name: partition.leader for name, partition in facts.partitions()}
    ahead: dict[int, int] = {}
    early = []
    for name, newest_ms in facts.newest_ms.items():
        skew_ms = newest_ms - facts.now_ms
        if skew_ms <= SKEW_MS_MAX:
            continue
        if name.topic in BROKER_TOPICS:
            ahead[leaders[name]] = max(skew_ms, ahead.get(leaders[name], 0))
        else:
            early.append(str(name))
    for broker, skew_ms in sorted(ahead.items()):
        yield Finding(
            Severity.WARNING,
            "",
            f"the clock of broker {broker} is {skew_ms / 1000:.0f} s ahead of this machine's",
            "its clock is not kept right by NTP, or this machine's is not",
            "run chrony or systemd-timesyncd on all machines: retention and searches by time go by these clocks",
        )
    if early:
        yield Finding(
            Severity.NOTE,
            "",
            f"records are dated in the future: {some(sorted(early))}",
            "a producer's clock is ahead, or it writes seconds, microseconds or made-up times as milliseconds",
            "correct the producer; such records outlive retention.ms. message.timestamp.after.max.ms refuses them",
        )


# ---- partitions


def check_leaders(facts: Facts) -> Iterator[Finding]:
    without = [str(name) for name, partition in facts.partitions() if partition.leader < 0]
    if without:
        yield Finding(
            Severity.PROBLEM,
            "F6",
            f"nobody leads these partitions, so they cannot be used: {some(without)}",
            "all replicas that are in sync are on brokers that are gone, or in folders that have failed",
            "start these brokers (ottla topics describe shows Replicas and Elr). If they are lost for good, "
            "ottla elect --election-type unclean takes what another replica has: what it lacks is lost",
        )


def check_replicas(facts: Facts) -> Iterator[Finding]:
    moving = set(facts.moves)
    short = [
        (name, partition)
        for name, partition in facts.partitions()
        if len(partition.isr) < len(partition.replicas) and partition.leader >= 0 and name not in moving
    ]
    gone = [name for name, partition in short if set(partition.replicas) - set(partition.isr) - set(facts.brokers)]
    slow = [name for name, _ in short if name not in gone]
    if gone:
        yield known(Severity.WARNING, "F6", f"replicas on brokers that are gone: {some(map(str, gone))}")
    if slow:
        what = f"replicas that are behind, though their brokers are there: {some(map(str, slow))}"
        yield known(Severity.WARNING, "F3", what)


def check_min_isr(facts: Facts) -> Iterator[Finding]:
    below = []
    for topic in facts.topics:
        least = min_isr(facts.topic_configs.get(topic.name, []))
        below += [
            f"{topic.name}-{item.number}"
            for item in topic.partitions
            if item.leader >= 0 and len(item.isr) < min(least, len(item.replicas))
        ]
    if below:
        yield Finding(
            Severity.PROBLEM,
            "F7",
            f"no writes with acks=all, because too few replicas are in sync: {some(below)}",
            "fewer replicas are in sync than min.insync.replicas asks for: producers get NOT_ENOUGH_REPLICAS",
            "bring the missing brokers back. In need lower min.insync.replicas of the topic, and accept fewer copies",
        )


def check_flapping(facts: Facts) -> Iterator[Finding]:
    changed = [
        str(name)
        for name, partition in facts.partitions()
        if name in facts.later and set(facts.later[name].isr) != set(partition.isr) and name not in facts.moves
    ]
    if changed:
        yield known(
            Severity.WARNING, "F20", f"replicas in sync have changed while this tool was looking: {some(changed)}"
        )


def check_balance(facts: Facts) -> Iterator[Finding]:
    should: Counter[int] = Counter()
    strayed: Counter[int] = Counter()
    for _, partition in facts.partitions():
        preferred = partition.replicas[0] if partition.replicas else -1
        should[preferred] += 1
        strayed[preferred] += partition.leader not in (preferred, -1)
    odd = [
        broker
        for broker in sorted(should)
        if broker in facts.brokers and 100 * strayed[broker] > IMBALANCE_PERCENTAGE_MAX * should[broker]
    ]
    if odd:
        count = sum(strayed[broker] for broker in odd)
        yield Finding(
            Severity.NOTE,
            "",
            f"{count} partitions are not led by their preferred leaders, {brokers_text(odd)}",
            "they were restarted, and leadership has not gone back yet",
            "it goes back by itself within five minutes (auto.leader.rebalance.enable), at once with: ottla elect",
        )


def check_moves(facts: Facts) -> Iterator[Finding]:
    rates = [
        broker
        for broker, configs in facts.broker_configs.items()
        if configs.get("leader.replication.throttled.rate", "").isdigit()
        and int(configs["leader.replication.throttled.rate"]) < UNLIMITED
    ]
    if len(facts.moves) > MOVES_MAX and not rates:
        yield known(Severity.WARNING, "F4", f"{len(facts.moves)} partitions move at once, without a throttle")
    elif facts.moves:
        yield Finding(
            Severity.NOTE,
            "F4",
            f"{len(facts.moves)} partitions move",
            "somebody has asked for it",
            "ottla reassign list shows how far they are",
        )
    if rates and not facts.moves:
        yield Finding(
            Severity.WARNING,
            "F4",
            f"a throttle is set on {brokers_text(rates)}, though nothing moves",
            "a plan was carried out with --throttle, and nobody has verified it afterwards",
            "ottla reassign throttle --off, or kafka-reassign-partitions.sh --verify with the plan",
        )
