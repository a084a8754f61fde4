"""Sends the activity of a web site to a topic: python -m ottla.pipelines.demo.site --rate 100.

Each record is an event as JSON: user (`user`, `session`), action (`action`: view or buy, `page`, `service`, `item`),
time (`at`) and response time (`ms`). Patterns for a pipeline to find:

* a few pages get most of the views, the others share a long tail; from time to time one page becomes hot;
* some items are bought together (`BUNDLES`): each is an event, and the session is the basket;
* a few requests take 15 to 40 times as long as usual;
* two percent of the events are sent twice, one percent arrive seconds late, and a few are unreadable.
"""

from __future__ import annotations

import heapq
import json
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import accumulate, count
from typing import Any, NamedTuple

from ottla.pipelines.demo.generator import GeneratorSettings, Record, run_generator

BUNDLES = (
    ("tent", "sleeping-bag", "camping-mat"),
    ("coffee", "coffee-filter"),
    ("notebook", "fountain-pen", "ink"),
    ("bicycle-lamp", "bicycle-bell"),
    ("flour", "yeast", "baking-tin"),
)
SINGLES = (
    "umbrella", "blanket", "kettle", "teapot", "lamp", "clock", "mirror", "vase", "candle", "basket", "apron", "towel",
    "scarf", "gloves", "hat", "belt", "wallet", "backpack", "thermos", "lunchbox",
)  # fmt: skip
PRODUCTS = (*(item for bundle in BUNDLES for item in bundle), *SINGLES)
ARTICLES = 150
USERS = 400
SERVICES_MS = {"home": 20.0, "catalog": 45.0, "blog": 30.0, "search": 120.0, "checkout": 180.0}
REQUEST_SPREAD = 0.18
PAGES_PER_VISIT = 7
OPEN_VISITS_MIN = 5
ADD_TO_BASKET_SHARE = 0.35
WHOLE_BUNDLE_SHARE = 0.85
SLOW_SHARE = 1 / 700
DUPLICATE_SHARE = 0.02
LATE_SHARE = 0.01
BROKEN_SHARE = 0.006
HOT_EVERY_MS, HOT_FOR_MS, HOT_SHARE = 60_000, 20_000, 0.4

TOPIC = "site-activity"


class Visit(NamedTuple):
    user: str
    session: str
    basket: list[str]


class Site:
    """The site on one day: `records` never ends. All randomness comes from the seed."""

    def __init__(self, plan: GeneratorSettings) -> None:
        self.plan = plan
        self.random = plan.random_generator()
        self.numbers = count()
        self.visits: list[Visit] = []
        self.slow: list[str] = []  # ids of the slow requests
        self.pages = _pages()
        self.page_weights = list(accumulate(1 / (rank + 1) ** 1.1 for rank in range(len(self.pages))))
        self.user_weights = list(accumulate(1 / (rank + 1) ** 0.7 for rank in range(USERS)))
        self.hot_page = ""
        self.hot_until_ms = 0
        self.hot_next_ms = plan.start_ms + HOT_EVERY_MS // 2

    def __repr__(self) -> str:
        return f"<Site visits={len(self.visits)} hot_page={self.hot_page!r} slow={len(self.slow)}>"

    def records(self) -> Iterator[Record]:
        """In the order in which they are sent."""
        waiting: list[tuple[int, int, Record]] = []
        order = count()
        for event in self.events():
            for record in self._sent(event):
                heapq.heappush(waiting, (record.at_ms, next(order), record))
            now_ms = _parse_time_ms(event["at"])
            while waiting and waiting[0][0] <= now_ms:
                yield heapq.heappop(waiting)[2]

    def events(self) -> Iterator[dict[str, Any]]:
        """The events in time order."""
        now = float(self.plan.start_ms)
        while True:
            now += self.random.expovariate(self.plan.rate / 1000)
            self._update_hot_page(int(now))
            visit = self._visit()
            if visit.basket and self.random.random() < 0.5:
                yield from (self._event(visit, int(now), "buy", "/checkout", item) for item in visit.basket)
                now += (len(visit.basket) - 1) * 1000 / self.plan.rate
                self.visits.remove(visit)
            else:
                page = self._page(int(now))
                self._add_to_basket(visit, page)
                yield self._event(visit, int(now), "view", page)
                if self.random.random() < 1 / PAGES_PER_VISIT and not visit.basket:
                    self.visits.remove(visit)

    # Visits

    def _visit(self) -> Visit:
        wanted = max(OPEN_VISITS_MIN, int(self.plan.rate))
        if len(self.visits) < wanted:
            user = self.random.choices(range(USERS), cum_weights=self.user_weights)[0]
            self.visits.append(Visit(f"user-{user:03d}", f"{self.random.getrandbits(48):012x}", []))
            return self.visits[-1]
        return self.random.choice(self.visits)

    def _update_hot_page(self, now_ms: int) -> None:
        if now_ms >= self.hot_next_ms:
            self.hot_page = self.random.choice(self.pages[10:])
            self.hot_until_ms = now_ms + HOT_FOR_MS
            self.hot_next_ms = now_ms + HOT_EVERY_MS

    def _page(self, now_ms: int) -> str:
        if now_ms < self.hot_until_ms and self.random.random() < HOT_SHARE:
            return self.hot_page
        return self.random.choices(self.pages, cum_weights=self.page_weights)[0]

    def _add_to_basket(self, visit: Visit, page: str) -> None:
        """A visitor of a product page may add the product, and its bundle, to the basket."""
        if not page.startswith("/products/") or self.random.random() > ADD_TO_BASKET_SHARE or visit.basket:
            return
        product = page.removeprefix("/products/")
        bundle = next((items for items in BUNDLES if product in items), (product,))
        taken = bundle if self.random.random() < WHOLE_BUNDLE_SHARE else (product,)
        others = self.random.sample(SINGLES, self.random.choice((0, 0, 1, 1, 2)))
        visit.basket.extend(dict.fromkeys((*taken, *others)))

    def _event(self, visit: Visit, at_ms: int, action: str, page: str, item: str | None = None) -> dict[str, Any]:
        number = next(self.numbers)
        event_id = f"{self.plan.start_ms:x}-{number:06d}"
        service = service_of(page)
        took = SERVICES_MS[service] * self.random.lognormvariate(0, REQUEST_SPREAD)
        if number > 500 and self.random.random() < SLOW_SHARE:
            took *= self.random.uniform(15, 40)
            self.slow.append(event_id)
        return {
            "id": event_id,
            "at": _format_time(at_ms),
            "user": visit.user,
            "session": visit.session,
            "action": action,
            "page": page,
            "service": service,
            "ms": round(took, 1),
            **({"item": item} if item else {}),
        }

    # Transport

    def _sent(self, event: dict[str, Any]) -> Iterator[Record]:
        at_ms = _parse_time_ms(event["at"])
        on_time_ms = at_ms + self.random.randint(2, 40)
        late_ms = self.random.randint(2_000, 8_000) if self.random.random() < LATE_SHARE else 0
        record = Record(on_time_ms + late_ms, event["user"], json.dumps(event).encode())
        yield record
        if self.random.random() < DUPLICATE_SHARE:
            yield record._replace(at_ms=record.at_ms + self.random.randint(50, 3_000))
        if self.random.random() < BROKEN_SHARE:
            yield Record(on_time_ms, event["user"], self._broken(event))

    def _broken(self, event: dict[str, Any]) -> bytes | None:
        """Broken like by a faulty producer; the id differs, so it replaces no event."""
        event = {**event, "id": f"{event['id']}-broken"}
        text = json.dumps(event)
        kind = self.random.randrange(6)
        if kind == 0:
            return text[: self.random.randint(1, len(text) - 1)].encode()  # truncated
        if kind == 1:
            return json.dumps({**event, "ms": "fast"}).encode()
        if kind == 2:
            return json.dumps({key: value for key, value in event.items() if key != "user"}).encode()
        if kind == 3:
            return b"\xff\xfe" + text.encode("utf-16-le")
        if kind == 4:
            return json.dumps({**event, "at": "yesterday"}).encode()
        return b"GET /health HTTP/1.1"


def visits(plan: GeneratorSettings) -> Iterator[Record]:
    """The generator of site activity."""
    return Site(plan).records()


def service_of(page: str) -> str:
    names = {"": "home", "products": "catalog", "blog": "blog", "search": "search", "checkout": "checkout"}
    return names[page.split("/")[1]]


def _pages() -> list[str]:
    """Most popular first, products and articles mixed."""
    articles = [f"/blog/{number}" for number in range(1, ARTICLES + 1)]
    mixed = ["/", "/search"]
    for place, product in enumerate(PRODUCTS):
        mixed += [f"/products/{product}", *articles[place * 2 : place * 2 + 1]]
    return [*mixed, *(article for article in articles if article not in mixed)]


def _format_time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _parse_time_ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def summary(records: Iterable[Record]) -> dict[str, Any]:
    """The expected results are in examples/pipelines/site-activity/generate.py."""
    return {"records": sum(1 for _ in records)}


if __name__ == "__main__":
    sys.exit(run_generator("Activity on a web site.", TOPIC, visits, summary))
