"""The order of a run: round by round, one system after the other, never two brokers at once."""

import time
from pathlib import Path

from bench.broker_process import BrokerProcess
from bench.context import Context
from bench.errors import BenchError
from bench.figures import Figures
from bench.kafka_process import KafkaProcess
from bench.machine import machine_facts
from bench.options import Options
from bench.ottla_process import LOOP_FIGURES, OttlaProcess, read_callback_at_shutdown
from bench.page_cache import PageCache
from bench.procfs import memory
from bench.progress import Progress
from bench.results import Results
from bench.sections import GROUPS, LOADS, NEED_NO_WARM_UP, RUN, physical, warm_up

BROKERS: dict[str, type[BrokerProcess]] = {"kafka": KafkaProcess, "ottla": OttlaProcess}
SETTLE_SECONDS = 1.0


class Run:
    """Measures everything that the options request; `results` is complete up to the current step."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.results = Results(
            {
                "started": time.strftime("%Y-%m-%d %H:%M"),
                "machine": machine_facts(options.systems),
                "options": options.for_json(),
                "is_complete": False,
            }
        )
        self.page_cache = PageCache(options.fills_page_cache)
        sections = sum(len(options.sections_of(round_index)) for round_index in range(options.rounds))
        self.progress = Progress(sections * len(options.systems))
        self._brokers_started = 0

    def __repr__(self) -> str:
        return f"<Run {self.progress!r}>"

    def run(self) -> None:
        for round_index in range(self.options.rounds):
            if "raw" in self.options.sections:
                self._measure_machine(round_index)
            # Alternating, so that neither system always runs first.
            systems = self.options.systems if round_index % 2 == 0 else self.options.systems[::-1]
            sections = self.options.sections_of(round_index)
            for system in systems:
                for group in GROUPS:
                    self._run_group(round_index, system, [name for name in group if name in sections])
        self.results.data["is_complete"] = True
        self._save()
        self.progress.finish()

    def _measure_machine(self, round_index: int) -> None:
        self.progress.enter(f"round {round_index + 1} · machine ·")
        figures = physical.run(self.options, self.page_cache, self.progress)
        self.results.add(round_index, "physical", "machine", figures)

    def _run_group(self, round_index: int, system: str, sections: list[str]) -> None:
        """Runs sections on one broker, or on as many as it takes when a broker dies."""
        waiting = list(sections)
        while waiting:
            self._brokers_started += 1
            broker = BROKERS[system](self.options.output / "logs" / f"{system}-{self._brokers_started}.log")
            self.progress.enter(f"round {round_index + 1} · {system} ·")
            self.progress.say("starts")
            try:
                self._run_on(broker, round_index, waiting)
            except (BenchError, OSError) as error:
                self._fail(round_index, system, " ".join(waiting), str(error))
                return

    def _run_on(self, broker: BrokerProcess, round_index: int, waiting: list[str]) -> None:
        is_warm = is_loaded = False
        with broker:
            while waiting and broker.is_alive:
                if not is_warm and waiting[0] not in NEED_NO_WARM_UP:
                    warm_up.run(self._context(broker))
                    is_warm = True
                section = waiting.pop(0)
                self._run_section(broker, round_index, section)
                is_loaded |= section in LOADS
            if is_loaded and broker.is_alive:
                time.sleep(SETTLE_SECONDS)
                figures = {"after_load": {"rss_mb": memory(broker.target.pid).rss_mb}}
                self.results.add(round_index, broker.system, "memory", figures)
        longest_ms = read_callback_at_shutdown(broker.log_text())
        at_shutdown: Figures | None = None if longest_ms is None else {"longest_callback_ms": longest_ms}
        self._note_callback(round_index, broker, "shutdown", at_shutdown)

    def _run_section(self, broker: BrokerProcess, round_index: int, section: str) -> None:
        self.progress.enter(f"round {round_index + 1} · {broker.system} · {section} ·")
        context = self._context(broker)
        try:
            RUN[section](context)
        except (BenchError, OSError) as error:
            self._fail(round_index, broker.system, section, str(error) or type(error).__name__)
        self.results.add(round_index, broker.system, section, context.figures)
        if isinstance(broker, OttlaProcess):
            self._note_callback(round_index, broker, section, broker.loop_figures())
        self._save()
        self.progress.leave()

    def _context(self, broker: BrokerProcess) -> Context:
        return Context(self.options, broker, self.page_cache, self.progress)

    def _note_callback(self, round_index: int, broker: BrokerProcess, section: str, told: Figures | None) -> None:
        """Keeps the figures of each section, and the longest of the whole round."""
        if told is None:
            return
        self.results.add(round_index, broker.system, "loop", {section: told})
        known = self.results.rounds[round_index][broker.system]["loop"]
        longest: Figures = {name: max(figures.get(name, 0) for figures in known.values()) for name in LOOP_FIGURES}
        self.results.add(round_index, broker.system, "loop", {"all": longest})

    def _fail(self, round_index: int, system: str, section: str, message: str) -> None:
        self.progress.note(f"FAILED {system} {section}: {message}")
        self.results.fail(round_index, system, section, (message.strip() or "no reason given").splitlines()[-1])

    def _save(self) -> None:
        self.results.save(results_path(self.options.output))


def results_path(output: Path) -> Path:
    return output / "results.json"
