"""Functions that are called with each message: subscribe in code, without writing a polling loop.

dispatcher = Dispatcher({"bootstrap.servers": "127.0.0.1:9092", "group.id": "shop"})

@dispatcher.on("orders")
def book(message: Message) -> None: ...

dispatcher.start()      # a thread of its own; or dispatcher.run(), which does not return
dispatcher.close()
"""

from collections.abc import Callable
from threading import Event, Thread

from confluent_kafka import Consumer, Message
from examples.consumers.delivery import BY_HAND, Handle, Settings
from examples.consumers.positions import checked, place_of

POLL_SECONDS = 0.2


class Dispatcher:
    """Calls what was registered for the topic of a message, one message at a time; at least once."""

    def __init__(self, settings: Settings) -> None:
        self._consumer = Consumer(settings | BY_HAND)
        self._handlers: dict[str, list[Handle]] = {}
        self._stop = Event()
        self._thread: Thread | None = None
        self.failure: BaseException | None = None

    def on(self, topic: str) -> Callable[[Handle], Handle]:
        """Register a function; several for one topic are called in the order of their registration."""

        def register(handle: Handle) -> Handle:
            self._handlers.setdefault(topic, []).append(handle)
            return handle

        return register

    def run(self) -> None:
        """Until close(), or until a function raises: its message is not committed and comes again."""
        self._consumer.subscribe(list(self._handlers))
        try:
            while not self._stop.is_set():
                message = self._consumer.poll(POLL_SECONDS)
                if message is not None:
                    self._dispatch(message)
        finally:
            self._consumer.close()

    def _dispatch(self, message: Message) -> None:
        for handle in self._handlers[place_of(checked(message)).topic]:
            handle(message)
        self._consumer.commit(message=message, asynchronous=True)

    def start(self) -> None:
        self._thread = Thread(target=self._run_apart, daemon=True)
        self._thread.start()

    def _run_apart(self) -> None:
        try:
            self.run()
        except BaseException as error:  # # noqa: BLE001 (close() raises it)
            self.failure = error

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if self.failure is not None:
            raise self.failure
