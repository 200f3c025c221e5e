"""Do frozen features come from running statistics and from the middle of the image?"""

import torch
from torch import nn

from logo_ssl.knn import extract

SETTINGS = ((0.5,) * 3, (0.25,) * 3, 16)


def test_a_backbone_in_training_is_looked_at_in_eval_mode_and_left_as_it_was(generator):
    images = torch.randint(0, 256, (6, 3, 16, 16), generator=generator, dtype=torch.uint8)
    backbone = nn.Sequential(nn.BatchNorm2d(3), nn.Dropout(0.5), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    frozen = extract(backbone.eval(), images, *SETTINGS)
    assert extract(backbone.train(), images, *SETTINGS).equal(frozen)
    assert backbone.training
    assert all(value.equal(before[name]) for name, value in backbone.state_dict().items())


def test_images_that_are_no_squares_are_cut_and_not_squashed(generator):
    middle = torch.randint(0, 256, (2, 3, 16, 16), generator=generator, dtype=torch.uint8)
    margin = torch.zeros(2, 3, 16, 24, dtype=torch.uint8)
    wide = torch.cat([margin, middle, margin], dim=3)
    backbone = nn.Sequential(nn.Conv2d(3, 1, 1), nn.Flatten())
    assert extract(backbone, wide, *SETTINGS).equal(extract(backbone, middle, *SETTINGS))
    assert extract(backbone, wide.transpose(2, 3), *SETTINGS).equal(extract(backbone, middle.mT, *SETTINGS))
