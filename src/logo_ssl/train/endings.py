"""How does a training end before its time? Whatever trained, the user reads the same sentence, and how to go on."""

from collections.abc import Iterator
from contextlib import contextmanager

import lightning as L
import torch

from ..errors import Interrupted, UserError
from ..signals import Stopped
from .faults import dead_worker
from .processes import lost_another, whose_end


@contextmanager
def ends_in_a_sentence(trainer: L.Trainer, cure: str, fewer_workers: str) -> Iterator[None]:
    """Tell an interruption, the end of another process and that of a worker; who trains tells the rest."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):  # the second is how Lightning ends after Ctrl-C
        raise Interrupted(f"Interrupted; {cure}.") from None
    except Stopped as stop:
        raise stop.interrupted(cure) from None
    except torch.OutOfMemoryError:  # a RuntimeError, too
        raise
    except RuntimeError as error:
        if trainer.world_size > 1 and lost_another(error):
            raise UserError(f"{whose_end(trainer.strategy)}; {cure}.") from error
        if sentence := dead_worker(error, fewer_workers):
            raise sentence from error
        raise
