import torch

from logo_ssl.probes import Labelled, fit, mean_per_class, select, top1


def halves(generator, dtype=torch.float64):
    labels = torch.arange(200) % 4
    centres = torch.randn(4, 10, generator=generator, dtype=dtype)
    features = centres[labels] + 1.5 * torch.randn(200, 10, generator=generator, dtype=dtype)
    return Labelled(features[:120], labels[:120]), Labelled(features[120:], labels[120:])


def test_the_weight_is_the_best_on_validation_and_trains_on_both_halves(generator):
    train, val = halves(generator)
    weights = [1e3, 10.0, 1.0, 1e-3]
    for metric in (top1, mean_per_class):
        chosen = select(train, val, 4, weights, metric)
        alone = {w: metric(fit(*train, 4, w).probe.scores(val.features), val.labels) for w in weights}
        assert chosen.validation == alone
        assert alone[chosen.w] == max(alone.values())
        both = fit(*train.joined(val), 4, chosen.w, tolerance=1e-5).probe
        assert (chosen.probe.weight - both.weight).abs().max() < 1e-2 * both.weight.abs().max()


def test_of_equals_the_strongest_penalty_is_chosen(generator):
    train, val = halves(generator)
    chosen = select(train, val, 4, [1e-3, 0.1, 10.0], metric=lambda scores, labels: 50.0)
    assert chosen.w == 10.0


def test_progress_is_told_after_every_weight(generator):
    told: list[int] = []
    select(*halves(generator), 4, [1e-3, 0.1, 10.0], progress=told.append)
    assert told == [1, 2, 3]
