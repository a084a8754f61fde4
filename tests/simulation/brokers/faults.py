"""What may go wrong: each fault breaks something and says how it is mended some time later.

A life has a theme: one kind of fault again and again, or all of them mixed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.simulation.brokers.admin import (
    BusyVisitor,
    HastyVisitor,
    Visitor,
    a_move_of_coordinators,
    a_question,
    a_wish,
)
from tests.simulation.brokers.cluster import CLIENTS, SESSION_MS, BrokerHost, Cluster
from tests.simulation.brokers.logins import WRONG, Intruder, PasswordSetter
from tests.simulation.brokers.network import Way
from tests.simulation.brokers.zookeeper import HOST as STORE

if TYPE_CHECKING:
    from tests.simulation.brokers.play import Life

SESSION_SECONDS: Final = SESSION_MS / 1000
Fault = Callable[["Life"], None]


def later(cluster: Cluster, least: float, most: float, event: Callable[[], None]) -> None:
    cluster.world.after(cluster.world.random.uniform(least, most), event)


# ---- choice of a broker


def state_of(cluster: Cluster, path: str) -> dict[str, Any]:
    node = cluster.server.nodes.get(path)
    try:
        found = json.loads(node.data) if node is not None else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def states(cluster: Cluster) -> list[dict[str, Any]]:
    """Of all partitions, as ZooKeeper has them."""
    return [state_of(cluster, path) for path in cluster.server.nodes if path.endswith("/state")]


def any_broker(cluster: Cluster) -> BrokerHost:
    return cluster.world.random.choice(cluster.hosts)


def by_id(cluster: Cluster, number: object) -> BrokerHost:
    if isinstance(number, int) and 0 < number <= len(cluster.hosts):
        return cluster.host(number)
    return any_broker(cluster)


def a_leader(cluster: Cluster) -> BrokerHost:
    found = [each.get("leader") for each in states(cluster)]
    return by_id(cluster, cluster.world.random.choice(found) if found else None)


def the_controller(cluster: Cluster) -> BrokerHost:
    return by_id(cluster, state_of(cluster, "/controller").get("brokerid"))


def a_victim(cluster: Cluster) -> BrokerHost:
    return cluster.world.random.choice((a_leader, the_controller, any_broker))(cluster)


def is_whole(cluster: Cluster) -> bool:
    """All replicas of all partitions are in sync, and all brokers are up."""
    return all(host.is_up for host in cluster.hosts) and all(len(each.get("isr", ())) >= 3 for each in states(cluster))


# ---- processes


def kill(life: Life, host: BrokerHost, least: float = 0.05, most: float = 3.0) -> None:
    host.kill()
    later(life.cluster, least, most, host.start)


def kill_any(life: Life) -> None:
    kill(life, a_victim(life.cluster))


def kill_before_a_write(life: Life) -> None:
    a_victim(life.cluster).kill_after_writes(life.world.random.choice((0, 1, 2, 5, 20, 60)))


def stop_any(life: Life) -> None:
    """A rolling restart: it comes back when it is gone."""
    host = a_victim(life.cluster)
    host.stop()

    def start() -> None:
        if host.is_up and life.cluster.is_in_trouble:
            life.world.after(0.5, start)
        else:
            host.start()

    life.world.after(1.0, start)


def lose_power(life: Life) -> None:
    """Of one at a time: what only one has is lost with it."""
    if is_whole(life.cluster):
        host = a_victim(life.cluster)
        host.kill(with_power=True)
        later(life.cluster, 0.1, 3.0, host.start)


def pause(life: Life) -> None:
    host = a_victim(life.cluster)
    host.pause()
    later(life.cluster, 0.2, 2 * SESSION_SECONDS, host.resume)


def do_nothing(life: Life) -> None:
    """Some things need a while without any fault."""


def step_clock(life: Life) -> None:
    host = any_broker(life.cluster)
    seconds = life.world.random.choice((-3600.0, -5.0, 5.0, 3600.0))
    life.world.tell(f"the clock of {host.name} is set by {seconds} s")
    host.step_clock(seconds)


# ---- the network


def cut(life: Life, ways: list[Way], least: float = 0.2, most: float = 4.0) -> None:
    life.world.tell(f"cut {ways}")
    life.cluster.network.cut(ways)

    def mend() -> None:
        life.world.tell(f"mended {ways}")
        life.cluster.network.mend(ways)

    later(life.cluster, least, most, mend)


def both(one: str, others: list[str]) -> list[Way]:
    return [way for other in others for way in ((one, other), (other, one))]


def cut_one_off(life: Life) -> None:
    host = a_victim(life.cluster)
    others = [other.name for other in life.cluster.hosts if other is not host]
    if life.world.chance(0.3):
        others.append(STORE)
    if life.world.chance(0.2):
        others.append(CLIENTS)
    cut(life, both(host.name, others))


def cut_one_way(life: Life) -> None:
    names = [host.name for host in life.cluster.hosts]
    one, other = life.world.random.sample([*names, STORE, CLIENTS], 2)
    cut(life, [(one, other)])


def cut_from_store(life: Life) -> None:
    host = a_victim(life.cluster)
    ways = both(host.name, [STORE])
    cut(life, ways if life.world.chance(0.5) else ways[:1])


def slow_network(life: Life) -> None:
    life.cluster.network.slowness = 0.1

    def mend() -> None:
        life.cluster.network.slowness = 0.0

    later(life.cluster, 0.5, 3.0, mend)


def break_connections(life: Life) -> None:
    """A router between two hosts has lost its state: all open connections are reset."""
    one = any_broker(life.cluster).name
    other = life.world.random.choice([host.name for host in life.cluster.hosts if host.name != one] + [CLIENTS])
    life.world.tell(f"connections between {one} and {other} break")
    for endpoint in list(life.cluster.sockets.by_descriptor.values()):
        if (endpoint.here, endpoint.there) in ((one, other), (other, one)):
            endpoint.on_reset()


# ---- ZooKeeper


def lose_session(life: Life) -> None:
    """A live broker is taken for dead."""
    server = life.cluster.server
    if server.sessions:
        number = life.world.random.choice(list(server.sessions))
        life.world.tell(f"zk: session {number:#x} is ended")
        server.close_session(number)


def spoil_state(life: Life) -> None:
    """Garbage in the state of a partition, or in the node of the controller."""
    paths = [path for path in life.cluster.server.nodes if path.endswith("/state")] + ["/controller"]
    path = life.world.random.choice(paths)
    node = life.cluster.server.nodes.get(path)
    if node is None or path in life.cluster.spoilt:
        return
    data = life.world.random.choice((b"", b"\xff\xfe", b"{}", b"[]", b'{"leader":"x"}', b"null"))
    life.world.tell(f"zk: garbage {data!r} in {path}")
    life.cluster.meddled.append(path)
    life.cluster.spoilt[path] = (data, node.data)
    life.cluster.server.spoil(path, data)
    later(life.cluster, 0.5, 3.0, lambda: life.cluster.mend_node(path))


def lag_without_store(life: Life) -> None:
    """A follower lags for less than a session, while the controller cannot write down that it does."""
    controller = the_controller(life.cluster)
    others = [host for host in life.cluster.hosts if host is not controller]
    follower = life.world.random.choice(others)
    follower.pause()
    later(life.cluster, 1.0, 1.8, follower.resume)
    ways = both(controller.name, [STORE])
    later(life.cluster, 0.2, 0.9, lambda: cut(life, ways, 0.3, 1.8))


# ---- disks


def fill_disk(life: Life) -> None:
    host = a_victim(life.cluster)
    disk = life.cluster.disk.disk_of(host.name)
    life.world.tell(f"the disk of {host.name} is full")
    disk.is_full = True

    def mend() -> None:
        life.world.tell(f"the disk of {host.name} has space again")
        disk.is_full = False

    later(life.cluster, 0.2, 3.0, mend)


def refuse_sync(life: Life) -> None:
    host = a_victim(life.cluster)
    disk = life.cluster.disk.disk_of(host.name)
    life.world.tell(f"the disk of {host.name} cannot sync")
    disk.refuses_sync = True

    def mend() -> None:
        disk.refuses_sync = False

    later(life.cluster, 0.2, 1.0, mend)


# ---- clients


def visit(life: Life) -> None:
    """Others ask for something, too; some do not wait for the answer."""
    cluster, world = life.cluster, life.world
    for number in range(3):
        is_wish = world.chance(0.5)
        asked = a_wish(world, life.partitions, len(cluster.hosts)) if is_wish else a_question(world)
        kind = world.random.choice((Visitor, BusyVisitor, HastyVisitor))
        name = f"v{world.rounds}.{number}"
        world.tell(f"{name}: {kind.__name__} with {type(asked[0]).__name__}")
        kind(cluster, name, asked).start()


def move_coordinators(life: Life) -> None:
    """Another broker is to lead a partition of the offsets topic, without any failure."""
    world = life.world
    world.tell("a group coordinator moves")
    for number, asked in enumerate(a_move_of_coordinators(world)):
        visitor = Visitor(life.cluster, f"c{world.rounds}.{number}", asked)
        world.after(0.3 * number, visitor.start)


def vanish(life: Life) -> None:
    """Clients lose their connections while they wait."""
    for client in (*life.workers(), *life.consumers):
        for connection in list(client.connections.values()):
            if connection.calls and life.world.chance(0.5):
                life.world.tell(f"{client.name} hangs up on {connection.broker}")
                connection.abandon("hung up")


def change_password(life: Life) -> None:
    accounts = life.cluster.accounts
    if accounts is not None and not accounts.is_changing:
        password = f"alice-{len(accounts.old) + 1}"
        life.world.tell(f"alice gets the password {password}")
        accounts.is_changing = True
        PasswordSetter(life.cluster, password).start()


def intrude(life: Life) -> None:
    for number in range(life.world.random.choice((1, 3))):
        Intruder(life.cluster, f"i{life.world.rounds}.{number}").start()


def mistype_password(life: Life) -> None:
    """A broker is restarted with a password that the others refuse; the operator corrects it later."""
    host = a_victim(life.cluster)
    if host.mistakes:
        return
    life.world.tell(f"{host.name} gets a wrong password")
    host.kill()
    host.mistakes = dict(WRONG)
    host.start()
    later(life.cluster, 0.5, 2 * SESSION_SECONDS, host.correct)


class Theme(NamedTuple):
    """What happens in a life, and how often such a life is played; 0: only where it is asked for by name."""

    weight: int
    faults: tuple[Fault, ...]
    brokers: int = 3
    is_harmless: bool = False  # nothing happens that excuses a request without an answer
    small_buffers: bool = False  # of sockets, so that nothing is sent in one piece
    heals: bool = False  # a broker dies for good, and the others get what it held
    folders: int = 1  # of each broker; with more of them one fails for good, and another one gets what it held
    is_secured: bool = False  # all clients log in, also the brokers at each other
    renews: bool = False  # topics are deleted and recreated all the time, and their offsets expire slowly


PROCESSES: Final = (kill_any, kill_before_a_write, stop_any)
NETWORK: Final = (cut_one_off, cut_one_way, cut_from_store, slow_network, break_connections)
LOGINS: Final = (change_password, intrude)
HEALING: Final = (*PROCESSES, *NETWORK, pause, lose_session, step_clock, do_nothing, do_nothing, do_nothing)
THEMES: Final[dict[str, Theme]] = {
    "calm": Theme(1, (slow_network,), is_harmless=True),
    "kill": Theme(4, (kill_any,)),
    "writes": Theme(4, (kill_before_a_write,)),
    "stop": Theme(2, (stop_any,)),
    "power": Theme(3, (lose_power, lose_power, kill_any)),
    "pause": Theme(4, (pause,)),
    "network": Theme(5, NETWORK),
    "sessions": Theme(3, (lose_session, cut_from_store)),
    "lag": Theme(3, (lag_without_store, lag_without_store, kill_any)),
    "clocks": Theme(1, (step_clock, kill_any)),
    "disks": Theme(2, (fill_disk, kill_any)),
    "clients": Theme(2, (visit, vanish), is_harmless=True),
    "moves": Theme(3, (visit, visit, kill_any, cut_one_way, pause), brokers=4),
    "healing": Theme(0, HEALING, brokers=4, heals=True),
    "folders": Theme(0, HEALING, heals=True, folders=2),
    "garbage": Theme(2, (spoil_state, kill_any)),
    "small": Theme(2, (*NETWORK, vanish, kill_any), small_buffers=True),
    "passwords": Theme(0, LOGINS, is_harmless=True, is_secured=True),
    "logins": Theme(
        0,
        (*LOGINS, *LOGINS, mistype_password, mistype_password, *PROCESSES, *NETWORK, pause, lose_session, vanish),
        is_secured=True,
    ),
    "renewal": Theme(0, (slow_network, move_coordinators, move_coordinators), is_harmless=True, renews=True),
    "mixed": Theme(6, (*PROCESSES, *NETWORK, pause, lose_session, step_clock, visit, vanish)),
}
