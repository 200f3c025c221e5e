import pytest
import timm
import torch
from torch import nn

from logo_ssl.models.batch_norm import BatchNorm, fitting_batch, fitting_splits, set_groups, with_our_batch_norm


@pytest.mark.parametrize("shape", [(12, 3), (12, 3, 4, 5)])
@pytest.mark.parametrize("groups", [1, 2, 3])
def test_statistics_are_per_group(random, shape, groups):
    x = random(*shape).requires_grad_()
    ours, torchs = BatchNorm(3).double(), nn.BatchNorm1d(3) if len(shape) == 2 else nn.BatchNorm2d(3)
    torchs = torchs.double()
    with torch.no_grad():
        for norm in (ours, torchs):
            norm.weight.copy_(torch.tensor([1.0, 2.0, 3.0]))
            norm.bias.copy_(torch.tensor([0.0, 1.0, -1.0]))
    ours.groups = groups
    expected = torch.cat([torchs(part) for part in x.chunk(groups)])
    torch.testing.assert_close(ours(x), expected)
    weights = random(*shape)
    (got,) = torch.autograd.grad((ours(x) * weights).sum(), x)
    (wanted,) = torch.autograd.grad((expected * weights).sum(), x)
    torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("affine", [True, False])
def test_both_ways_to_normalise_groups_agree(random, affine):
    x = random(12, 3, 4, 5).requires_grad_()
    one, other = BatchNorm(3, affine=affine).double(), BatchNorm(3, affine=affine).double()
    one.groups = other.groups = 3
    weights = random(12, 3, 4, 5)
    by_group, at_once = one._group_by_group(x), other._all_groups_at_once(x, 1)
    torch.testing.assert_close(by_group, at_once)
    gradients = [torch.autograd.grad((out * weights).sum(), x)[0] for out in (by_group, at_once)]
    torch.testing.assert_close(*gradients)
    torch.testing.assert_close(one.state_dict(), other.state_dict())


def test_running_statistics_move_once_towards_the_mean_over_groups(random):
    x = random(12, 3)
    norm = BatchNorm(3).double()
    norm.groups = 2
    norm(x)
    mean = torch.stack([part.mean(0) for part in x.chunk(2)]).mean(0)
    var = torch.stack([part.var(0) for part in x.chunk(2)]).mean(0)
    torch.testing.assert_close(norm.running_mean, 0.1 * mean)
    torch.testing.assert_close(norm.running_var, 0.9 + 0.1 * var)
    assert norm.num_batches_tracked == 1


def test_eval_mode_uses_running_statistics_whatever_the_groups(random):
    x = random(5, 3)
    norm = BatchNorm(3).double().eval()
    norm.groups = 2
    torch.testing.assert_close(norm(x), x / (1 + 1e-5) ** 0.5)


def test_half_precision_comes_back_as_it_went_in():
    norm = BatchNorm(3)
    norm.groups = 2
    assert norm(torch.randn(8, 3, dtype=torch.bfloat16)).dtype == torch.bfloat16


@pytest.mark.parametrize(("n_images", "splits", "expected"), [(512, 8, 8), (12, 8, 6), (7, 8, 1), (2, 8, 1), (9, 4, 3)])
def test_splits_shrink_until_they_part_a_batch_evenly(n_images, splits, expected):
    assert fitting_splits(n_images, splits) == expected


@pytest.mark.parametrize("splits", [1, 2, 8])
@pytest.mark.parametrize("processes", [1, 2, 3, 8])
def test_a_fitting_batch_has_as_many_splits_as_were_asked(splits, processes):
    for n_images in (*range(16 * processes, 100), 127, 509, 1009, 1021):
        batch = fitting_batch(n_images, splits, processes)
        assert n_images - max(splits, processes) < batch <= n_images
        assert batch % processes == 0
        assert fitting_splits(batch // processes, splits // processes) == max(1, splits // processes)


@pytest.mark.parametrize(("n_images", "expected"), [(2, 2), (3, 3), (4, 4), (5, 4), (7, 6), (11, 10), (16, 16)])
def test_few_images_fit_fewer_splits(n_images, expected):
    assert fitting_batch(n_images, 8) == expected
    assert fitting_splits(expected, 8) == max(1, expected // 2)


def test_conversion_keeps_every_key_and_every_output():
    torch.manual_seed(0)
    for name in ("resnet18", "efficientnet_b0"):  # the second hides its activations inside its norms
        theirs = timm.create_model(name, num_classes=0).eval()
        keys, x = list(theirs.state_dict()), torch.randn(2, 3, 64, 64)
        expected = theirs(x)
        ours = with_our_batch_norm(theirs)
        assert not any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in ours.modules())
        assert sorted(ours.state_dict()) == sorted(keys)
        torch.testing.assert_close(ours(x), expected)


def test_groups_reach_every_norm():
    net = nn.Sequential(BatchNorm(3), nn.Sequential(BatchNorm(3)))
    set_groups(net, 4)
    assert [m.groups for m in net.modules() if isinstance(m, BatchNorm)] == [4, 4]
