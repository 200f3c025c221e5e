"""What need a user not read? Advice of Lightning and of the compiler to their own developers."""

import logging
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
    before = {name: logging.getLogger(name).level for name in LOGGERS}
    for name, level in LOGGERS.items():
        logging.getLogger(name).setLevel(level)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"(lightning|torch)\..*")
        try:
            yield
        finally:
            for name, level in before.items():
                logging.getLogger(name).setLevel(level)
