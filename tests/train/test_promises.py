"""Is a part of somebody's own that gives what others cannot use told by an ordinary Python error?"""

import pytest
from small_runs import SMALL, train

from logo_ssl.data import load_data
from logo_ssl.frameworks import FRAMEWORKS, BYOLConfig
from logo_ssl.frameworks.byol import BYOL
from logo_ssl.similarity import negative_cosine
from logo_ssl.strategies import STRATEGIES
from logo_ssl.strategies.logo import LoGo
from logo_ssl.train import build
from logo_ssl.types import Projections

SMALL_BYOL = SMALL.changed(framework=BYOLConfig(dim=8, hidden=16))


def test_a_similarity_gives_one_loss_for_each_image(data, tmp_path, monkeypatch):
    monkeypatch.setattr(BYOL, "similarity", lambda self, q, t: negative_cosine(q, t).mean())
    with pytest.raises(ValueError, match="similarity gives shape"):
        train(SMALL_BYOL, data, tmp_path / "run")


def test_projections_have_a_row_for_each_crop(data, tmp_path, monkeypatch):
    project = BYOL.project

    def turned(self, crops, roles):
        return Projections(*(x.transpose(0, 1) for x in project(self, crops, roles)))

    monkeypatch.setattr(BYOL, "project", turned)
    with pytest.raises(ValueError, match="project gives"):
        train(SMALL_BYOL, data, tmp_path / "run")


def test_the_loss_has_a_gradient(data, tmp_path, monkeypatch):
    outer = LoGo.outer
    monkeypatch.setattr(
        LoGo, "outer", lambda self, *given: outer(self, *given)._replace(loss=outer(self, *given).loss.detach())
    )
    with pytest.raises(ValueError, match="outer gives a loss"):
        train(SMALL_BYOL, data, tmp_path / "run")


def test_a_name_in_kept_of_which_there_is_nothing_is_refused(data, tmp_path, monkeypatch):
    monkeypatch.setattr(BYOL, "kept", (*BYOL.kept, "momentum_encodr"))
    with pytest.raises(AttributeError, match="momentum_encodr"):
        train(SMALL_BYOL, data, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["h", "momentum_encoder", "encoder.net.projector.0"])
def test_whatever_a_framework_has_can_be_kept(name, data, monkeypatch):
    monkeypatch.setattr(BYOL, "kept", (name,))
    build(SMALL_BYOL, load_data(data, 16))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_our_own_have_what_they_keep(framework, strategy, data):
    build(SMALL.changed(framework=framework, framework__dim=8, strategy=strategy), load_data(data, 16))
