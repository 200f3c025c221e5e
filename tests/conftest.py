"""Every test runs with shapes checked: jaxtyping's annotations, by beartype."""

from jaxtyping import install_import_hook

install_import_hook("logo_ssl", "shapecheck.checked")

import pytest  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture
def random(generator: torch.Generator):
    """Draws float64 tensors of a shape."""
    return lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)
