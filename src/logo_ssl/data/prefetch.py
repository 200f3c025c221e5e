"""How is the next batch ready before it is asked for? A thread prepares it on a stream of its own."""

import queue
import threading
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from ..types import ImageBatch
from .feed import Feed

AHEAD = 3  # batches


class Prefetch(Feed):
    """Another feed's batches, sent to a CUDA device ahead of their use."""

    def __init__(self, feed: Feed, device: torch.device) -> None:
        self.feed, self.device = feed, device
        self.stream = torch.cuda.Stream(device)

    def close(self) -> None:
        """Close the other feed."""
        self.feed.close()

    def batches(self, order: Iterable[Tensor]) -> Iterator[ImageBatch]:
        """The batches of the other feed; whatever it raises is raised here."""
        ready: queue.Queue = queue.Queue(AHEAD)
        closed = threading.Event()

        def hand_over(item: object) -> bool:
            while not closed.is_set():
                try:
                    ready.put(item, timeout=0.1)
                    return True
                except queue.Full:
                    continue
            return False

        def work() -> None:
            try:
                with torch.cuda.device(self.device), torch.cuda.stream(self.stream):
                    for batch in self.feed.batches(order):
                        pixels = batch.pixels
                        if pixels.device != self.device:
                            pixels = (pixels if pixels.is_pinned() else pixels.pin_memory()).to(
                                self.device, non_blocking=True
                            )
                        event = torch.cuda.Event()
                        event.record(self.stream)
                        if not hand_over((ImageBatch(pixels, batch.sizes), event)):
                            return
                hand_over(None)
            except BaseException as error:  # the consumer must hear of it
                hand_over(error)

        thread = threading.Thread(target=work, name="prefetch", daemon=True)
        thread.start()
        try:
            while (item := ready.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                batch, event = item
                now = torch.cuda.current_stream(self.device)
                now.wait_event(event)
                batch.pixels.record_stream(now)
                yield batch
        finally:
            closed.set()
            thread.join(timeout=10)
