import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from logo_ssl.models import Queue


@given(size=st.integers(1, 20), batches=st.lists(st.integers(1, 25), min_size=1, max_size=8))
def test_any_queue_with_any_batches_holds_the_newest_keys(size, batches):
    queue = Queue(size, 3)
    pushed = [F.normalize(torch.randn(n, 3), dim=-1) for n in batches]
    for keys in pushed:
        queue.push(keys)
    everything = torch.cat(pushed)
    held = queue.keys[~queue.vacant]
    for key in everything[-size:]:
        assert torch.isclose(held, key, atol=1e-6).all(dim=1).any()
    assert queue.vacant.sum() == max(0, size - len(everything))
    assert not queue.keys[queue.vacant].any()


def test_oldest_keys_leave_first():
    queue = Queue(4, 2)
    one, two, three = (torch.eye(2)[[i, i]] * sign for i, sign in ((0, 1.0), (1, 1.0), (0, -1.0)))
    for keys in (one, two, three):
        queue.push(keys)
    torch.testing.assert_close(queue.keys, torch.cat([three, two]))


def test_keys_are_unit_vectors():
    queue = Queue(8, 3)
    queue.push(7 * torch.randn(5, 3))
    torch.testing.assert_close(queue.keys[~queue.vacant].norm(dim=1), torch.ones(5))
