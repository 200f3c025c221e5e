"""Is what `load` gives a plain module, and is its transform what evaluation shows?"""

import copy
import pickle

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from torch import nn

import logo_ssl
from logo_ssl.encoders import load_encoder
from logo_ssl.errors import UserError
from logo_ssl.models.batch_norm import BatchNorm, with_our_batch_norm, with_plain_batch_norm


def test_a_loaded_encoder_has_only_modules_of_its_library():
    encoder = logo_ssl.load("random/resnet18", size=32)
    assert not encoder.training
    assert not any(isinstance(module, BatchNorm) for module in encoder.modules())
    assert sum(isinstance(module, nn.BatchNorm2d) for module in encoder.modules()) == 20
    assert all(parameter.requires_grad for parameter in encoder.parameters())
    plain = torchvision.models.resnet18()
    plain.fc = nn.Identity()
    plain.load_state_dict(encoder.state_dict())
    x = torch.randn(2, 3, 32, 32)
    assert plain.eval()(x).equal(encoder(x))
    assert load_encoder("random/resnet18", size=32).backbone(x).equal(encoder(x))


@pytest.mark.parametrize("name", ["resnetv2_18", "test_efficientnet"])
def test_batch_norms_that_carry_an_activation_come_back(name):
    import timm

    original = timm.create_model(name, num_classes=0).eval()
    x, kinds = torch.randn(1, 3, 64, 64), [type(module) for module in original.modules()]
    expected = original(x)
    back = with_plain_batch_norm(with_our_batch_norm(original))
    assert [type(module) for module in back.modules()] == kinds
    torch.testing.assert_close(back(x), expected)


def test_the_transform_shows_what_evaluation_shows(encoder, photos):
    found = logo_ssl.embed(encoder, photos, workers=0)
    for i in (0, 7):
        path = found.paths[i]
        with Image.open(path) as image:
            inputs = [encoder.transform(path), encoder.transform(image)]
        assert inputs[0].equal(inputs[1])
        features = encoder(inputs[0][None]).detach().numpy()[0]
        np.testing.assert_allclose(features, found.vectors[i], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_the_transform_leaves_the_callers_image_as_it_was(encoder, tmp_path, mode):
    pixels = Image.fromarray(np.random.default_rng(0).integers(0, 256, (400, 600, 3), np.uint8)).convert(mode)
    pixels.save(tmp_path / "large.jpg")
    with Image.open(tmp_path / "large.jpg") as image, Image.open(tmp_path / "large.jpg") as untouched:
        encoder.transform(image)
        assert (image.size, image.mode) == ((600, 400), mode)
        assert np.array_equal(np.array(image), np.array(untouched))


def test_arrays_and_tensors_are_transformed_alike(encoder):
    array = np.random.default_rng(0).integers(0, 256, (30, 20, 3), np.uint8)
    first, second = encoder.transform(array), encoder.transform(torch.from_numpy(array).permute(2, 0, 1))
    assert first.equal(second)
    assert first.shape == (3, 16, 16)
    grey = torch.randint(0, 256, (1, 16, 16), dtype=torch.uint8)
    assert encoder.transform(grey).equal(encoder.transform(grey.expand(3, -1, -1)))


@pytest.mark.parametrize(
    ("image", "sentence"),
    [
        ("nowhere.jpg", "nowhere.jpg cannot be read as an image"),
        (np.zeros((4, 4, 2), np.uint8), "2 channels, and this encoder sees 3"),
        (np.zeros((4, 4, 3)), "float64"),
    ],
)
def test_what_is_no_image_is_told(encoder, image, sentence):
    with pytest.raises(UserError, match=sentence):
        encoder.transform(image)


def test_an_encoder_survives_copying_and_pickling(encoder):
    x = torch.randn(2, 3, 16, 16)
    for other in (copy.deepcopy(encoder), pickle.loads(pickle.dumps(encoder))):
        assert other(x).equal(encoder(x))
        assert other.transform == encoder.transform
        assert other.about.backbone is other
