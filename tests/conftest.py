"""Every test runs with shapes checked: jaxtyping's annotations, by beartype.

Not on a GPU, where tests compile: torch.compile would trace the checks too.
"""

import torch
from jaxtyping import install_import_hook

if not torch.cuda.is_available():
    install_import_hook("logo_ssl", "shapecheck.checked")

import pytest

torch.set_num_threads(1)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture
def random(generator: torch.Generator):
    """Draws float64 tensors of a shape."""
    return lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)
