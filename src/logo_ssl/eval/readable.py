"""Which images can be read? Those that cannot are left out with their labels, before anything is split."""

import torch

from ..data import BadImages, Photos, Split
from ..data.decode import none_readable
from ..data.loader import CHUNK
from ..data.workers import Decoding, Reader, Reading, fitting_workers
from .how import Extraction

SIDE = 64  # pixels: JPEG is decoded faster when it is shrunk, and a broken file stays broken


def readable(split: Split, how: Extraction, what: str) -> Split:
    """The images of a split that can be decoded; which cannot is said, and too many stop an evaluation."""
    if not isinstance(split.images, Photos):
        return split
    bad, kept = BadImages(len(split), how.max_bad), list[bool]()
    workers = min(fitting_workers(how.workers, 3 * SIDE**2), len(split) // CHUNK)
    reader = Reader(Reading(Decoding(split.images, max_side=SIDE)), workers)
    try:
        for messages in reader.read(torch.arange(len(split)).split(CHUNK)):
            bad.note([found for message in messages for found in message.bad])
            kept += [not failed for message in messages for failed in message.failed]
            how.progress(f"reading {what}", len(kept), len(split))
    finally:
        reader.close()
    if all(kept):
        return split
    if not any(kept):
        raise none_readable(split.images, what)
    how.leave_out([split.images.name(row) for row, good in enumerate(kept) if not good], len(split), what)
    return split[torch.tensor(kept)]
