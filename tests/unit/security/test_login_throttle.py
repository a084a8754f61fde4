"""How fast logins may fail, in virtual time: one user, one address, who takes turns, and what is remembered."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from itertools import pairwise

import pytest

from ottla.security.login_throttle import (
    ABANDONED_MAX,
    ADDRESS_INTERVAL_MS,
    USER_INTERVAL_MS,
    LoginAttempt,
    LoginThrottle,
    key_of_address,
    key_of_user,
)

RIGHT = "right"


class Scene:
    """A broker's side: passwords are checked as it does, and every failure is noted when it is answered."""

    def __init__(self) -> None:
        self.logins = LoginThrottle()
        self.now_ms = 5_000
        self.answered: list[tuple[int, str, str]] = []  # when, which user, from where
        self.passed: dict[str, int] = {}  # when, by a name of the attempt
        self._passwords: dict[LoginAttempt, tuple[str, str, str, str]] = {}

    def try_login(self, user: str, address: str, password: str = "wrong", name: str = "") -> LoginAttempt | None:
        if self.logins.is_failing(user, address):
            attempt = self.logins.add_attempt(user, address, self.now_ms, is_checked=False)
            self._passwords[attempt] = user, address, password, name
            return attempt
        if password == RIGHT:
            self.passed[name] = self.now_ms
            return None
        attempt = self.logins.add_attempt(user, address, self.now_ms, is_checked=True)
        self._passwords[attempt] = user, address, password, name
        return attempt

    def run_until(self, end_ms: int) -> None:
        while (next_ms := self.logins.next_ms) is not None and next_ms <= end_ms:
            self.now_ms = max(self.now_ms, next_ms)
            for attempt in self.logins.take_due(self.now_ms):
                user, address, password, name = self._passwords.pop(attempt)
                if password == RIGHT:
                    self.passed[name] = self.now_ms
                    self.logins.on_success(attempt, self.now_ms)
                else:
                    self.answered.append((self.now_ms, user, address))
        self.now_ms = end_ms

    def check_rates(self) -> None:
        """No second has more failures than are allowed of a user, or of an address."""
        by_user, by_address = defaultdict(list), defaultdict(list)
        for time_ms, user, address in self.answered:
            by_user[user].append(time_ms)
            by_address[address].append(time_ms)
        for times in by_user.values():
            assert all(b - a >= USER_INTERVAL_MS for a, b in pairwise(times))
        for times in by_address.values():
            assert all(times[at + 101] - times[at] >= 1000 for at in range(len(times) - 101))


def test_600_guesses_per_second_for_one_user_fail_ten_times_a_second() -> None:
    scene = Scene()
    for _ in range(6_000):  # ten seconds
        scene.try_login("admin", "10.0.0.1")
        scene.run_until(scene.now_ms + 2)
    scene.check_rates()
    seconds = (scene.now_ms - 5_000) / 1000
    assert len(scene.answered) <= 10 * seconds
    assert len(scene.answered) == pytest.approx(seconds * 1000 / USER_INTERVAL_MS, abs=2)


def test_guesses_from_many_addresses_share_the_ten_per_second_and_take_turns() -> None:
    scene = Scene()
    for number in range(3_000):
        scene.try_login("admin", f"10.0.{number % 20}.1")
        scene.run_until(scene.now_ms + 2)
    scene.check_rates()
    counts = Counter(address for _, _, address in scene.answered)
    assert len(counts) == 20
    assert max(counts.values()) - min(counts.values()) <= 1


def test_one_address_fails_a_hundred_times_a_second_whatever_names_it_invents() -> None:
    scene = Scene()
    for number in range(3_000):
        scene.try_login(f"user-{number}", "10.0.0.1")
        scene.run_until(scene.now_ms + 1)
    scene.check_rates()
    assert len(scene.answered) <= 300
    assert len(scene.answered) == pytest.approx(3_000 / ADDRESS_INTERVAL_MS, abs=3)


def test_a_right_password_never_waits_for_wrong_ones_of_others() -> None:
    scene = Scene()
    for number in range(5_000):
        scene.try_login("alice", f"10.0.{number % 250}.1")
        scene.try_login(f"user-{number}", "10.9.9.9")
    scene.try_login("alice", "192.168.0.1", RIGHT, "other address")
    scene.try_login("bob", "10.9.9.9", RIGHT, "other user")
    assert scene.passed == {"other address": scene.now_ms, "other user": scene.now_ms}


def test_a_mistyped_password_delays_the_right_one_by_a_tenth_of_a_second() -> None:
    scene = Scene()
    scene.try_login("alice", "10.0.0.1")
    scene.try_login("alice", "10.0.0.1", RIGHT, "alice")
    began = scene.now_ms
    scene.run_until(began + 1_000)
    assert scene.passed["alice"] - began <= USER_INTERVAL_MS


def test_right_passwords_behind_a_wrong_one_use_up_no_turns() -> None:
    """One client of an application has an old password; its hundred others come back after a network fault."""
    scene = Scene()
    scene.try_login("app", "10.0.0.1")
    for number in range(100):
        scene.try_login("app", "10.0.0.1", RIGHT, f"client {number}")
    began = scene.now_ms
    scene.run_until(began + 5_000)
    assert len(scene.passed) == 100
    assert max(scene.passed.values()) - began <= USER_INTERVAL_MS + 100 * ADDRESS_INTERVAL_MS


def test_who_hangs_up_before_the_answer_gains_no_guess() -> None:
    scene = Scene()
    checked = 0
    for _ in range(6_000):
        attempt = scene.try_login("admin", "10.0.0.1")
        if attempt is not None:
            checked += attempt.has_failed
            scene.logins.on_disconnect(attempt)
        scene.run_until(scene.now_ms + 2)
    seconds = (scene.now_ms - 5_000) / 1000
    assert checked <= 10 * seconds + 1
    assert len(scene.logins) <= 1


def test_invented_names_and_addresses_cost_bounded_memory() -> None:
    scene = Scene()
    for number in range(20_000):
        attempt = scene.try_login(f"user-{number}" + "x" * 10_000, f"10.{number % 200}.{number // 200}.1")
        assert attempt is not None
        scene.logins.on_disconnect(attempt)
        assert len(attempt.user or "") <= 255
    assert len(scene.logins) <= ABANDONED_MAX
    scene.run_until(scene.now_ms + 60_000)
    assert len(scene.logins) == 0
    assert scene.logins.next_ms is None
    logins = scene.logins
    assert not logins._by_user._owners
    assert not logins._by_address._owners
    assert not logins._abandoned


@pytest.mark.parametrize("seed", range(30))
def test_rates_hold_and_nothing_is_lost_in_any_order_of_events(seed: int) -> None:
    chance = random.Random(seed)
    scene = Scene()
    waiting: list[LoginAttempt] = []
    wrong = left = 0
    for _ in range(1_500):
        password = RIGHT if chance.random() < 0.2 else "wrong"
        attempt = scene.try_login(
            f"user-{chance.randrange(8)}", f"10.0.0.{chance.randrange(5)}", password, str(chance.random())
        )
        wrong += password != RIGHT
        if attempt is not None:
            waiting.append(attempt)
        if waiting and chance.random() < 0.1:
            gone = waiting.pop(chance.randrange(len(waiting)))
            was_waiting = gone in scene._passwords
            scene.logins.on_disconnect(gone)
            if was_waiting and not gone.has_failed:
                left += scene._passwords.pop(gone)[2] != RIGHT
        scene.run_until(scene.now_ms + chance.choice((0, 0, 1, 3, 40)))
    scene.run_until(scene.now_ms + 600_000)
    scene.check_rates()
    assert len(scene.answered) == wrong - left
    assert len(scene.logins) == 0
    assert scene.logins.next_ms is None


def test_an_address_of_ipv6_counts_by_its_network() -> None:
    assert key_of_address("2001:db8:1:2::5") == key_of_address("2001:db8:1:2:ffff::1")
    assert key_of_address("2001:db8:1:2::5") != key_of_address("2001:db8:1:3::5")
    assert key_of_address("fe80::1%eth0") == key_of_address("fe80::2")
    assert key_of_address("::ffff:10.0.0.1") == key_of_address("10.0.0.1")
    assert key_of_address("not:an:address") == "not:an:address"
    assert key_of_user("a" * 300) != key_of_user("a" * 301)
