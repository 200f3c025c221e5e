import pytest
import torch
from torch import nn

from crop_by_crop import crop_by_crop
from logo_ssl.models import BatchNorm, Encoder, build_backbone, per_crop
from logo_ssl.models.backbones import tiny


def test_each_crop_of_a_stack_comes_out_as_if_it_were_alone(random):
    net, stack = nn.Sequential(nn.Linear(3, 4), BatchNorm(4)).double(), random(2, 6, 3)
    torch.testing.assert_close(per_crop(net, stack), crop_by_crop(net, stack))


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_half_precision_ends_at_the_latents(precision):
    net, stack = nn.Linear(3, 4), torch.randn(2, 6, 3)
    with torch.autocast("cpu", precision):
        assert net(stack).dtype == precision
        assert per_crop(net, stack).dtype == torch.float32
    assert per_crop(net.double(), stack.double()).dtype == torch.float64


@pytest.mark.parametrize("local_size", [16, 8], ids=["one size", "two sizes"])
def test_kept_features_and_maps_are_those_of_each_kind_of_crop(random, local_size):
    torch.manual_seed(0)
    encoder = Encoder(build_backbone("tiny"), nn.Linear(256, 4)).double()
    encoder.keeps_features = True
    encoder.keep_maps("8")
    x_g, x_l = random(2, 6, 3, 16, 16), random(2, 6, 3, local_size, local_size)
    encoder.encode(x_g, x_l)
    torch.testing.assert_close(encoder.features_g, crop_by_crop(encoder.backbone, x_g))
    torch.testing.assert_close(encoder.features_l, crop_by_crop(encoder.backbone, x_l))
    torch.testing.assert_close(encoder.maps_g, crop_by_crop(encoder.backbone[:9], x_g))
    torch.testing.assert_close(encoder.maps_l, crop_by_crop(encoder.backbone[:9], x_l))


def test_a_compiled_network_gives_the_same_maps_and_gradients(random):
    torch.manual_seed(0)
    encoder = Encoder(tiny(3, "imagenet")[0], nn.Linear(256, 4)).double()  # torch's batch norm: ours has shapes checked
    encoder.keep_maps("8")
    x_g, x_l = random(2, 6, 3, 32, 32), random(2, 6, 3, 16, 16)

    def step():
        _, z_l = encoder.encode(x_g, x_l)
        loss = (encoder.maps_g.mean(dim=(1, 3, 4)) * encoder.maps_l.mean(dim=(1, 3, 4))).sum() + z_l.square().sum()
        return encoder.maps_g, encoder.maps_l, *torch.autograd.grad(loss, list(encoder.backbone.parameters()))

    expected = step()
    encoder.net.compile(backend="aot_eager", dynamic=False, fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(step(), expected)
