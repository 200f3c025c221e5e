"""Runs with untrained weights: what is shown does not depend on how good it is."""

import pytest
import torch
from shown_runs import SMALL

from logo_ssl.data import ImageSet, Split
from logo_ssl.errors import UserError
from logo_ssl.recipes import flat, read_recipe
from logo_ssl.report.summary import RunSummary
from logo_ssl.run import Run
from logo_ssl.train import build
from logo_ssl.train.pretrain import save_encoder


@pytest.fixture
def images(generator) -> ImageSet:
    """24 training and 16 test images of 4 classes, 16 px."""
    splits = []
    for n in (24, 16):
        labels = torch.arange(n) % 4
        noise = torch.randint(0, 60, (n, 3, 16, 16), generator=generator)
        splits.append(Split((noise + 40 * labels.view(-1, 1, 1, 1)).to(torch.uint8), labels))
    return ImageSet("blobs", *splits, ("ash", "birch", "cedar", "<b>elm</b>"), source="blobs")


def _found(source: str, images: ImageSet) -> ImageSet:
    if "nowhere" in source:
        raise UserError(f"{source} is not there.")
    return images


@pytest.fixture
def make_run(tmp_path, images, monkeypatch):
    """Writes a run folder whose data are `images`."""
    monkeypatch.setenv("LOGO_CACHE", str(tmp_path / "cache"))
    for place in ("eval.protocol", "report.collect"):
        monkeypatch.setattr(f"logo_ssl.{place}.load_data", lambda source, size: _found(source, images))

    def make(name="run", **changes) -> Run:
        recipe = SMALL.changed(**changes)
        run = Run(tmp_path / name)
        save_encoder(run, build(recipe, images))
        run.recipe_file.write_text(recipe.to_json())
        return run

    return make


@pytest.fixture
def summarise():
    """Summarises a run by its files alone."""

    def make(run: Run, name: str | None = None, **more) -> RunSummary:
        return RunSummary(run, name or run.path.name, list(run.metrics()), flat(read_recipe(run)), **more)

    return make
