"""How is the next batch on the device before it is asked for? A thread sends it, on a stream of its own."""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from ..types import ImageBatch
from .ahead import Ahead
from .ending import GRACE_S
from .feed import Feed

AHEAD = 3  # batches


class Prefetch(Feed):
    """Another feed's batches, sent to a CUDA device ahead of their use."""

    def __init__(self, feed: Feed, device: torch.device) -> None:
        self.feed, self.device = feed, device
        self.feed.pinned = True  # from there a device fetches without another copy
        self.stream = torch.cuda.Stream(device)
        self.sent: Ahead[tuple[ImageBatch, torch.cuda.Event]] | None = None

    def close(self) -> None:
        """End the thread, then close the other feed; a batch that takes too long is not waited for."""
        if self.sent is not None:
            self.sent.join(GRACE_S)
        self.feed.close()

    def batches(self, order: Iterable[Tensor]) -> Iterator[ImageBatch]:
        """The batches of the other feed; whatever it raises is raised here."""
        if self.sent is not None:
            self.sent.join()  # at most one batch is being made
        self.stream.wait_stream(torch.cuda.current_stream(self.device))  # on which the images may have been made
        self.sent = sent = Ahead(self._send(order), AHEAD, "prefetch")
        try:
            for batch, event in sent:
                now = torch.cuda.current_stream(self.device)
                now.wait_event(event)
                batch.pixels.record_stream(now)
                yield batch
        finally:
            sent.close()

    def _send(self, order: Iterable[Tensor]) -> Iterator[tuple[ImageBatch, torch.cuda.Event]]:
        """Each batch on its way, and the event that tells of its arrival."""
        with torch.cuda.device(self.device), torch.cuda.stream(self.stream):
            for batch in self.feed.batches(order):
                pixels = batch.pixels
                if not pixels.is_cuda:  # a device without a number equals none that has one
                    pinned = pixels if pixels.is_pinned() else pixels.pin_memory()
                    pixels = pinned.to(self.device, non_blocking=True)
                event = torch.cuda.Event()
                event.record(self.stream)
                yield batch._replace(pixels=pixels), event
