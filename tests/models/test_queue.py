import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from logo_ssl.models import Queue


@given(size=st.integers(1, 20), batches=st.lists(st.integers(1, 25), min_size=1, max_size=8))
def test_any_queue_with_any_batches_holds_the_newest_keys(size, batches):
    queue = Queue(size, 3)
    before = queue.keys.clone()
    pushed = [F.normalize(torch.randn(n, 3), dim=-1) for n in batches]
    for keys in pushed:
        queue.push(keys)
    everything = torch.cat(pushed)
    newest = everything[-size:]
    held = {tuple(row) for row in queue.keys.mul(1e4).round().tolist()}
    assert {tuple(row) for row in newest.mul(1e4).round().tolist()} <= held
    if len(everything) < size:
        torch.testing.assert_close(queue.keys[len(everything) :], before[len(everything) :])


def test_oldest_keys_leave_first():
    queue = Queue(4, 2)
    one, two, three = (torch.eye(2)[[i, i]] * sign for i, sign in ((0, 1.0), (1, 1.0), (0, -1.0)))
    for keys in (one, two, three):
        queue.push(keys)
    torch.testing.assert_close(queue.keys, torch.cat([three, two]))


def test_keys_are_unit_vectors():
    queue = Queue(8, 3)
    queue.push(7 * torch.randn(5, 3))
    torch.testing.assert_close(queue.keys.norm(dim=1), torch.ones(8))
