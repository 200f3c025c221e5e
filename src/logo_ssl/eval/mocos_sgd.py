"""Which classifier does MoCo's SGD give, on cached features or on features of random crops? Rates from one sweep."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

import torch

from ..augment import CropPlan, make_crops
from ..data import BadImages, Batches, LoadingConfig, Split, place
from ..hardware import best_device, exact_device, to_device
from ..probes import Labelled, Linear, Rated, SGDConfig, SGDProbes, train_probes
from ..randomness import stream
from .encoders import FrozenEncoder
from .extraction import exactly
from .held_out import Parts
from .how import Extraction
from .labelled import labels_of
from .pixels import in_channels

SWEEP, LAST = "epochs of all learning rates", "epochs of the last classifier"
STANDARD = CropPlan(n_global=1, n_local=0, global_scale=(0.08, 1.0), jitter_p=0.0, grey_p=0.0)
"""The augmentation of MoCo's linear classifier: random crops and flips."""


def on_features(
    parts: Parts, n_classes: int, rates: Sequence[float], config: SGDConfig, seed: int, how: Extraction
) -> tuple[Rated, Linear]:
    """The best rate on validation, and the classifier that it gives on all of train; on cached features."""

    def trained(train: Labelled, rates: Sequence[float], what: str) -> SGDProbes:
        watched = how.counting(what, config.epochs)
        return train_probes(train, n_classes, stream(seed, "linear"), rates, config, watched)

    rated = trained(parts.train, rates, SWEEP).select(parts.val)
    return rated, trained(parts.train.joined(parts.val), [rated.rate], LAST).probes()[0]


def on_crops(
    encoder: FrozenEncoder,
    train: Split,
    parts: Parts,
    n_classes: int,
    rates: Sequence[float],
    config: SGDConfig,
    seed: int,
    how: Extraction,
) -> tuple[Rated, Linear]:
    """The same on features of random crops; `train` are the images whose features were parted."""
    settings = (n_classes, config, seed, how)
    rated = _trained_on_crops(encoder, train[parts.rows.train], rates, SWEEP, *settings).select(parts.val)
    return rated, _trained_on_crops(encoder, train[parts.rows.known], [rated.rate], LAST, *settings).probes()[0]


@torch.no_grad()
def _trained_on_crops(
    encoder: FrozenEncoder,
    train: Split,
    rates: Sequence[float],
    what: str,
    n_classes: int,
    config: SGDConfig,
    seed: int,
    how: Extraction,
) -> SGDProbes:
    """All rates at once on the features of one random crop of each image and epoch."""
    device = best_device(how.device)
    loading = LoadingConfig(workers=how.workers, max_bad=how.max_bad)
    bad, images = BadImages(len(train), how.max_bad), in_channels(encoder, train).images
    plan, labels, home = replace(STANDARD, global_size=encoder.size), labels_of(train), exact_device(device)
    backbone, probes = encoder.backbone.to(device).eval(), None
    with exactly(), closing(place(images, device, loading, bad)[0]) as feed:
        batches = Batches(feed, len(train), config.batch_size, seed, keeps_last=True)
        for epoch in range(config.epochs):
            batches.set_epoch(epoch)
            for step, batch in enumerate(batches):
                draws = stream(seed, "linear crops", epoch, step)
                crops = make_crops(batch.pixels, plan, draws, encoder.mean, encoder.std, sizes=batch.sizes)
                features = backbone(crops.x_g[0]).float().to(home)
                probes = probes or SGDProbes(
                    features.shape[1], n_classes, rates, stream(seed, "linear"), config.momentum, home
                )
                assert batch.rows is not None
                shown = (batch.rows >= 0).nonzero().squeeze(1)  # grey ones have no label
                if len(shown):
                    own = to_device(labels[batch.rows[shown]], home)
                    probes.step(features[to_device(shown, home)], own, config.decay(epoch))
            how.progress(what, epoch + 1, config.epochs)
    assert probes is not None
    return probes
