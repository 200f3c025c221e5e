"""Two processes with half a batch each normalise as one process with the whole."""

import os

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from logo_ssl.models.batch_norm import BatchNorm, set_synchronised, set_uneven
from logo_ssl.regressor import Regressor
from logo_ssl.system.distributed import all_gather, permute_across_ranks, simulated_peers

GROUPS, PER_GROUP, CHANNELS = 2, 6, 3


def two_processes(work, *arguments):
    mp.start_processes(_ended_at_once, (work, *arguments), nprocs=2, start_method="spawn")


def _ended_at_once(rank, work, *arguments):
    """Without the interpreter's own end, in which a thread of gloo's may still run on a busy machine (SIGABRT)."""
    work(rank, *arguments)
    os._exit(0)


def batch():
    torch.manual_seed(0)
    return torch.randn(GROUPS, PER_GROUP, CHANNELS, 4, dtype=torch.float64)


def work(rank, folder, synchronised):
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    half = batch().chunk(2, dim=1)[rank].flatten(0, 1).requires_grad_()
    norm = BatchNorm(CHANNELS).double()
    norm.groups = GROUPS
    set_synchronised(norm, synchronised)
    out = norm(half)
    out.pow(3).sum().backward()
    torch.save([out.detach(), half.grad, norm.running_mean, norm.running_var], f"{folder}/{rank}.pt")
    torch.save(uneven(uneven_parts()[rank]), f"{folder}/uneven-{rank}.pt")
    dist.destroy_process_group()


def uneven_parts():
    return batch().flatten(0, 1).split([3, 9])


def uneven(part):
    """Output, gradient and statistics of a part that others do not equal in size."""
    norm, part = BatchNorm(CHANNELS).double(), part.clone().requires_grad_()
    set_uneven(norm)
    out = norm(part)
    out.pow(3).sum().backward()
    return [out.detach(), part.grad, norm.running_mean, norm.running_var]


def rehearse(rank, folder):
    """What a compiled norm gives in a rehearsal that the other process takes no part in, and then together."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    half, graphs = batch().chunk(2, dim=1)[rank].flatten(0, 1), []
    norm = BatchNorm(CHANNELS).double()

    def compiler(graph, inputs):
        graphs.append(graph)
        return graph

    norm.compile(backend=compiler, dynamic=False)
    if rank == 1:
        with simulated_peers():
            alone = derived(norm, half)
            assert torch.equal(all_gather(half), torch.cat([half, half]))
            assert permute_across_ranks(half[None], torch.arange(2 * len(half)).roll(3)).shape == half[None].shape
        torch.save(alone, f"{folder}/alone.pt")
    torch.save(derived(norm, half), f"{folder}/{rank}.pt")
    assert len(graphs) == 1
    dist.destroy_process_group()


def derived(norm, x):
    """Output and gradient."""
    x = x.clone().requires_grad_()
    out = norm(x)
    out.pow(3).sum().backward()
    return out.detach(), x.grad


def test_what_one_process_compiles_in_a_rehearsal_is_synchronised_afterwards(tmp_path):
    two_processes(rehearse, str(tmp_path))
    halves = [half.flatten(0, 1) for half in batch().chunk(2, dim=1)]
    together = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)]
    out, gradient = derived(BatchNorm(CHANNELS).double(), torch.cat(halves))
    torch.testing.assert_close(torch.cat([part[0] for part in together]), out)
    torch.testing.assert_close(torch.cat([part[1] for part in together]), gradient)
    alone, _ = torch.load(tmp_path / "alone.pt", weights_only=True)
    torch.testing.assert_close(alone, derived(BatchNorm(CHANNELS).double(), halves[1])[0])


@pytest.mark.parametrize("synchronised", [True, False])
def test_statistics_are_shared_by_processes_when_asked(tmp_path, synchronised):
    two_processes(work, str(tmp_path), synchronised)
    (out_0, grad_0, *running_0), (out_1, grad_1, *running_1) = (
        torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)
    )
    whole = batch().flatten(0, 1).requires_grad_()
    norm = BatchNorm(CHANNELS).double()
    norm.groups = GROUPS
    expected = norm(whole)
    expected.pow(3).sum().backward()

    def joined(first, second):
        halves = [half.unflatten(0, (GROUPS, -1)) for half in (first, second)]
        return torch.cat(halves, dim=1).flatten(0, 1)

    same = torch.allclose(joined(out_0, out_1), expected)
    assert same == synchronised
    if synchronised:
        torch.testing.assert_close(joined(grad_0, grad_1), whole.grad)
        torch.testing.assert_close(running_0, [norm.running_mean, norm.running_var])
        torch.testing.assert_close(running_0, running_1)
        out, grad, *running = uneven(batch().flatten(0, 1))
        parts = [torch.load(tmp_path / f"uneven-{rank}.pt", weights_only=True) for rank in range(2)]
        torch.testing.assert_close(torch.cat([part[0] for part in parts]), out)
        torch.testing.assert_close(torch.cat([part[1] for part in parts]), grad)
        assert all(
            torch.allclose(ours, theirs) for part in parts for ours, theirs in zip(part[2:], running, strict=True)
        )


def test_the_regressors_norms_are_synchronised():
    norms = [m for m in Regressor(4).modules() if isinstance(m, BatchNorm)]
    assert len(norms) == 5
    assert all(norm.synchronised for norm in norms)
