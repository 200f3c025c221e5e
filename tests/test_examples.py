"""Do the examples run, stay short, and learn?"""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import logo_ssl
from logo_ssl.data.scenes import make_scenes
from logo_ssl.frameworks import FRAMEWORKS
from logo_ssl.models import build_backbone
from logo_ssl.run import Run
from logo_ssl.strategies import STRATEGIES
from logo_ssl.system.distributed import local_slice, rank
from logo_ssl.weights import load

EXAMPLES = Path(__file__).parent.parent / "examples"
EXTEND = EXAMPLES.parent / "docs" / "how-to" / "extend.md"
LONGEST = 60


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.py")), ids=lambda file: file.stem)
def test_examples_are_short(file):
    assert len(file.read_text().splitlines()) < LONGEST


def test_a_plain_loop_learns():
    train = runpy.run_path(str(EXAMPLES / "plain_loop.py"))["train"]
    images, _ = make_scenes(64, 32, 0)
    losses = train(images, 16)
    assert np.isfinite(losses).all()
    assert np.mean(losses[-4:]) < np.mean(losses[4:8])  # the queue is full after four steps
    assert train(images, 2) == losses[:2]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_hugging_face_data_train(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from PIL import Image

    images, _ = make_scenes(32, 32, 0)
    pictures = [
        Image.fromarray(image.permute(1, 2, 0).numpy()).resize((40 + i % 3, 36)) for i, image in enumerate(images)
    ]
    data = datasets.Dataset.from_dict({"image": pictures}, features=datasets.Features({"image": datasets.Image()}))
    backbone, losses = runpy.run_path(str(EXAMPLES / "hugging_face_data.py"))["train"](data, 6)
    assert len(losses) == 6
    assert np.isfinite(losses).all()
    assert backbone.eval()(torch.zeros(1, 3, 32, 32)).shape == (1, 256)


def save_scenes(folder):
    images, _ = make_scenes(32, 32, 0)
    np.savez(folder / "scenes.npz", train_images=images.permute(0, 2, 3, 1).numpy())


def test_the_framework_with_state_of_the_page_trains_and_its_state_moves(tmp_path):
    (code,) = re.findall(r"^```python\n(.*?after_step.*?)^```$", EXTEND.read_text(), re.MULTILINE | re.DOTALL)
    *lines, condition, call = (EXAMPLES / "own_framework.py").read_text().splitlines()
    (tmp_path / "followed.py").write_text("\n".join([*lines, code, condition, call]))
    save_scenes(tmp_path)
    words = "--framework followed --framework.m 0.9 --epochs 2 --data scenes.npz --out run"
    command = [sys.executable, str(tmp_path / "followed.py"), "pretrain", "tiny", *words.split()]
    env = os.environ | {"PYTHONPATH": str(Path(logo_ssl.__file__).parent.parent)}
    trained = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert trained.returncode == 0, trained.stderr
    newest, before = (load(checkpoint)["state_dict"] for checkpoint in Run(tmp_path / "run").saved())
    weights = [name for name in newest if re.search(r"momentum_encoder.*projector.*weight", name)]
    assert weights
    assert not any(torch.equal(newest[name], before[name]) for name in weights)


@pytest.mark.parametrize(
    ("example", "options"),
    [("overlap_l2l", "--strategy overlap"), ("lambda_warmup", "--strategy warm-logo --strategy.warmup 0.5")],
)
def test_a_variant_of_logo_trains(tmp_path, monkeypatch, example, options):
    save_scenes(tmp_path)
    monkeypatch.chdir(tmp_path)
    line = f"{example} pretrain tiny {options} --epochs 1 --data scenes.npz --out run"
    monkeypatch.setattr(sys, "argv", line.split())
    with patch.dict(STRATEGIES), patch.dict(sys.modules):
        sys.modules.pop("logo_ssl.training_commands", None)  # its options are those of what is registered at its import
        with pytest.raises(SystemExit) as stop:
            runpy.run_path(str(EXAMPLES / f"{example}.py"), run_name="__main__")
    assert not stop.value.code
    assert options.split()[1] in (tmp_path / "run" / "recipe.json").read_text()


def test_the_overlap_of_boxes_is_that_of_their_pixels():
    with patch.dict(STRATEGIES):
        overlap = runpy.run_path(str(EXAMPLES / "overlap_l2l.py"))["overlap"]
    corners = torch.randint(0, 10, (2, 50, 2), generator=torch.Generator().manual_seed(0))
    sides = torch.randint(1, 11, (2, 50, 2), generator=torch.Generator().manual_seed(1))
    masks = torch.zeros(2, 50, 20, 20)
    for box in range(2):
        for image, ((top, left), (height, width)) in enumerate(zip(corners[box], sides[box], strict=True)):
            masks[box, image, top : top + height, left : left + width] = 1
    shared = masks.prod(dim=0).sum(dim=(1, 2)) / masks.sum(dim=(2, 3)).min(dim=0).values
    described = torch.cat([(corners + sides / 2) / 20, sides / 20, torch.zeros(2, 50, 5)], dim=2)
    torch.testing.assert_close(overlap(*described), shared)


def compared():
    """The example's losses of this process's part of a batch, and their gradient."""
    with patch.dict(FRAMEWORKS):  # other tests know ours alone
        config = runpy.run_path(str(EXAMPLES / "own_framework.py"))["AlignUniformConfig"]
    batch = torch.randn(2, 6, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    q, t = local_slice(batch, 1).clone().requires_grad_()
    losses = config(dim=8).build(build_backbone("tiny"), 256).similarity(q, t)
    return losses.detach(), *torch.autograd.grad(losses.mean(), (q, t))


def compared_together(process, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=process, world_size=2)
    torch.save(compared(), f"{folder}/{rank()}.pt")
    dist.destroy_process_group()
    os._exit(0)  # a thread of gloo's may still run in the interpreter's own end


def test_two_processes_with_a_framework_of_ones_own_learn_what_one_learns(tmp_path):
    mp.start_processes(compared_together, (tmp_path,), nprocs=2, start_method="spawn")
    halves = [torch.load(tmp_path / f"{each}.pt") for each in range(2)]
    losses, *gradients = (torch.cat(parts) for parts in zip(*halves, strict=True))
    expected, *theirs = compared()
    torch.testing.assert_close(losses, expected)
    for ours, of_one in zip(gradients, theirs, strict=True):
        torch.testing.assert_close(ours / 2, of_one)  # of the sum of both processes' means
