"""The image that a broker goes by, and who wants to hear of a new one.

One a broker. On the active controller the service publishes here what the store has committed; on every other broker
the deltas that come from the controller end here.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.base.tasks import tell
from ottla.controller.image import MetadataImage

ImageListener = Callable[[MetadataImage, MetadataImage], None]


class ImageHolder:
    """All calls are made on the event loop."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self._listeners: list[ImageListener] = []

    def on_image(self, listener: ImageListener) -> None:
        """Call `listener(old, new)` with every new image, before anybody is answered."""
        self._listeners.append(listener)

    def forget(self, listener: ImageListener) -> None:
        """The listener hears of no more images."""
        self._listeners.remove(listener)

    def publish(self, image: MetadataImage) -> None:
        old, self.image = self.image, image
        for listener in tuple(self._listeners):
            tell(listener, old, image)

    def __repr__(self) -> str:
        return f"<ImageHolder {self.image!r}>"
