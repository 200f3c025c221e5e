"""What need a user not read? Advice to developers of Lightning and the compiler, and what is said elsewhere."""

import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

LOGGERS = {
    "lightning.pytorch": logging.ERROR,  # it concerns loaders and loggers that we do not use
    "lightning.fabric": logging.ERROR,
    "torch._dynamo": logging.CRITICAL,
    "torch._inductor": logging.CRITICAL,
    "torch.utils.cpp_extension": logging.CRITICAL,
}


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps it off the screen."""
    before, tell = {name: logging.getLogger(name).level for name in LOGGERS}, threading.excepthook
    threading.excepthook = lambda error: None if _is_told_elsewhere(error) else tell(error)
    for name, level in LOGGERS.items():
        logging.getLogger(name).setLevel(level)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"(lightning|torch)\..*")
        try:
            yield
        finally:
            threading.excepthook = tell
            for name, level in before.items():
                logging.getLogger(name).setLevel(level)


def _is_told_elsewhere(error: threading.ExceptHookArgs) -> bool:
    """A disk that refuses TensorBoard's thread is told by `Beside`, in a sentence."""
    return isinstance(error.exc_value, OSError) and type(error.thread).__module__.startswith("tensorboard.")
