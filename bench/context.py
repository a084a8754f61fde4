"""The context of a section: the running broker, and the means to measure it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Concatenate, ParamSpec, TypeVar

from bench.broker_process import BrokerProcess
from bench.figures import Figures
from bench.loads.serving import Watch
from bench.options import Options
from bench.page_cache import PageCache
from bench.progress import Progress
from bench.raw_client import Target, create_topic, delete_topics
from bench.worker import run_apart

DELETE_SECONDS_MAX = 10.0

P = ParamSpec("P")
R = TypeVar("R")


@dataclass
class Context:
    """`figures` collects the measurements of one section."""

    options: Options
    broker: BrokerProcess
    page_cache: PageCache
    progress: Progress
    figures: dict[str, Figures] = field(default_factory=dict)

    @property
    def target(self) -> Target:
        return self.broker.target

    def measure(
        self, name: str, load: Callable[Concatenate[Target, P], Figures], *arguments: P.args, **_: P.kwargs
    ) -> Figures:
        """Runs a load against the broker in a process of its own and keeps its figures."""
        self.progress.say(name)
        return self.keep(name, self.apart(load, *arguments, **_))

    def apart(self, load: Callable[Concatenate[Target, P], R], *arguments: P.args, **_: P.kwargs) -> R:
        """Like measure(), but discards the figures: to warm up and to prepare."""
        result: R = run_apart(self.options.timeout_s, load, self.target, *arguments)
        return result

    def keep(self, name: str, figures: Figures) -> Figures:
        self.figures[name] = figures
        self.progress.tell(name, figures)
        return figures

    def serve_again(self, topics: dict[str, int], small: str, seconds_max: float) -> Figures:
        """Restart the ended broker and wait until all these partitions are served."""
        started = self.broker.launch()
        watch = Watch(self.target, started, lambda: self.broker.check_alive(started, seconds_max))
        return watch.run(topics, small)

    @contextmanager
    def topic(self, purpose: str, partitions: int, fill_cache: bool = False) -> Iterator[str]:
        """A new topic for one measurement; with fill_cache the page cache is normalized before."""
        if fill_cache:
            self.progress.say("fills the page cache")
            self.page_cache.fill()
        name = create_topic(self.target, purpose, partitions)
        yield name
        delete_topics(self.target, name)
        if fill_cache:
            self._wait_until_gone(name)

    def _wait_until_gone(self, topic: str) -> None:
        """Wait until the files of a deleted topic are removed, so that their dirty pages are dropped."""
        end = time.monotonic() + DELETE_SECONDS_MAX
        while time.monotonic() < end and next(self.broker.data_folder.glob(f"{topic}-*"), None):
            time.sleep(0.05)
