"""How is the next batch ready before it is asked for? A thread prepares it on a stream of its own."""

import queue
import threading
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from ..types import ImageBatch
from .ending import GRACE_S
from .feed import Feed

AHEAD = 3  # batches


class Prefetch(Feed):
    """Another feed's batches, sent to a CUDA device ahead of their use."""

    def __init__(self, feed: Feed, device: torch.device) -> None:
        self.feed, self.device = feed, device
        self.stream = torch.cuda.Stream(device)
        self.thread: threading.Thread | None = None
        self.closed = threading.Event()

    def close(self) -> None:
        """End the thread, then close the other feed; a batch that takes too long is not waited for."""
        self._end(GRACE_S)
        self.feed.close()

    def _end(self, patience: float | None = None) -> None:
        if self.thread is not None:
            self.closed.set()
            self.thread.join(patience)  # at most one batch is being made
            self.thread = None

    def batches(self, order: Iterable[Tensor]) -> Iterator[ImageBatch]:
        """The batches of the other feed; whatever it raises is raised here."""
        self._end()
        self.stream.wait_stream(torch.cuda.current_stream(self.device))  # on which the images may have been made
        ready: queue.Queue = queue.Queue(AHEAD)
        self.closed = closed = threading.Event()

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
                        if not pixels.is_cuda:  # a device without a number equals none that has one
                            pixels = (pixels if pixels.is_pinned() else pixels.pin_memory()).to(
                                self.device, non_blocking=True
                            )
                        event = torch.cuda.Event()
                        event.record(self.stream)
                        if not hand_over((batch._replace(pixels=pixels), event)):
                            return
                hand_over(None)
            except BaseException as error:  # the consumer must hear of it
                hand_over(error)

        self.thread = threading.Thread(target=work, name="prefetch", daemon=True)
        self.thread.start()
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
