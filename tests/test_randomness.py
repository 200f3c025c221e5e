from itertools import combinations

import pytest
import torch

from logo_ssl.errors import UserError
from logo_ssl.system.randomness import stream


def test_a_place_draws_the_same_every_time_and_no_two_places_alike():
    places = [(0, "order", 3), (0, "step", 3), (0, "step", 3, 0), (0, "step", 3, 1), (1, "step", 3), (0, "step", 4)]
    draws = [torch.rand(4, generator=stream(*place)) for place in places]
    again = [torch.rand(4, generator=stream(*place)) for place in places]
    assert all(torch.equal(one, other) for one, other in zip(draws, again, strict=True))
    assert not any(torch.equal(one, other) for one, other in combinations(draws, 2))


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_that_no_stream_begins_with_is_refused(seed):
    with pytest.raises(UserError, match=f"^seed={seed}: must be 0 to"):
        stream(seed, "order")
