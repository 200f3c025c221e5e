"""Are the made-up scenes reproducible, balanced, rightly labelled, and not solved by raw pixels?"""

from functools import cache

import pytest
import torch
from torch.nn.functional import interpolate, normalize

from logo_ssl.data.scenes import CHUNK, CLASSES, make_scenes, paint_chunks


@cache
def scenes(n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    return make_scenes(n, 32, seed)


@cache
def shown(n: int = 400) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Labels, kinds and visible areas (in images) of n scenes."""
    chunks = list(paint_chunks(n, 32, 0))
    labels, kinds = torch.cat([c.labels for c in chunks]), torch.cat([c.kinds for c in chunks])
    return labels, kinds, torch.cat([c.visible.mean((2, 3)) for c in chunks])


@pytest.mark.parametrize("n", [1, CHUNK - 1, CHUNK, CHUNK + 1])
def test_scene_i_does_not_depend_on_n(n: int):
    for few, many in zip(make_scenes(n), scenes(1000), strict=True):
        assert torch.equal(few, many[:n])


def test_every_class_occurs_and_about_equally_often():
    counts = scenes(4000)[1].bincount(minlength=len(CLASSES))
    assert counts.min() > 320  # 400 expected, standard deviation 19
    assert counts.max() < 480


def test_the_label_is_the_class_of_the_object_with_the_largest_visible_area():
    labels, kinds, areas = shown()
    assert torch.equal(kinds.gather(1, areas.argmax(1, keepdim=True))[:, 0], labels)
    first, second = areas.topk(2).values.unbind(1)
    assert (first > 2 * second).all()
    assert 0.2 < first.min() < first.max() < 0.6


def test_every_scene_shows_two_to_five_objects_of_different_classes():
    _, kinds, areas = shown()
    seen = (areas > 0.005).sum(1)
    assert set(seen.tolist()) == {2, 3, 4, 5}
    assert all(len(set(row)) == len(row) for row in kinds.tolist())


def test_two_local_crops_of_a_scene_may_show_different_classes():
    """Opposite quarters: in most scenes the object that fills most of one is not the only one seen in the other."""
    visible = torch.cat([c.visible for c in paint_chunks(400, 32, 0)])
    quarters = interpolate(visible, (2, 2), mode="area").flatten(2) > 0.02  # [N slots 4]
    differ = (quarters[..., 0] != quarters[..., 3]).any(1) | (quarters[..., 1] != quarters[..., 2]).any(1)
    assert differ.float().mean() > 0.8


@pytest.mark.parametrize("size", [16, 32, 64, 96, 127])
def test_a_size_changes_the_resolution_and_not_the_scene(size: int):
    images, labels = make_scenes(CHUNK, size)
    reference, same = make_scenes(CHUNK, 32)
    assert images.shape == (CHUNK, 3, size, size)
    assert torch.equal(labels, same)
    small, large = (interpolate(x.float(), (8, 8), mode="area").flatten(1) for x in (images, reference))
    assert torch.corrcoef(torch.stack([small.flatten(), large.flatten()]))[0, 1] > 0.95


def test_raw_pixels_tell_the_classes_better_than_chance_but_badly():
    train, test = (x.float().flatten(1) for x in (scenes(4000)[0], scenes(500, 1)[0]))
    train, test = normalize(train - train.mean(0)), normalize(test - train.mean(0))
    votes = scenes(4000)[1][(test @ train.T).topk(20).indices]
    accuracy = (votes.mode(1).values == scenes(500, 1)[1]).float().mean()
    assert 0.12 < accuracy < 0.4


def test_mean_colour_tells_little_of_the_class():
    train, test = (x.float().mean((2, 3)) for x in (scenes(4000)[0], scenes(500, 1)[0]))
    votes = scenes(4000)[1][torch.cdist(test, train).topk(20, largest=False).indices]
    assert (votes.mode(1).values == scenes(500, 1)[1]).float().mean() < 0.25  # plain stars and dots are the extremes
