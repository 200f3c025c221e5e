"""Do exported encoders load by the printed lines, strictly, and give the features of the run?"""

import json
from itertools import product

import pytest
import safetensors.torch
import timm
import torch
import torchvision
from PIL import Image
from use_encoders import executed, lived_in, untrained_run

import logo_ssl
from logo_ssl.data import ImageSet, Split
from logo_ssl.errors import UserError

TOLERANCE = 1e-4  # of the largest feature
SIZE = 64
EVERYWHERE = ("torchvision", "timm", "onnx", "safetensors", "hf")
CASES = {
    "resnet18, CIFAR stem": ("random/resnet18", {"stem": "cifar"}, ("torchvision", "timm")),
    "resnet18, solo-learn's stem": ("random/resnet18", {"stem": "solo-learn"}, ("torchvision", "safetensors")),
    "resnet18, five channels": ("random/resnet18", {"mean": (0.5,) * 5, "std": (0.2,) * 5}, ("torchvision", "timm")),
    "small-alexnet": ("random/small-alexnet", {}, ("safetensors",)),
    "vit": ("random/timm/test_vit", {}, ("timm", "onnx", "safetensors", "hf")),
    "timm's resnet18, CIFAR stem in name only": ("random/timm/resnet18", {"stem": "cifar"}, ("timm", "hf")),
    "efficientnet": ("random/timm/test_efficientnet", {}, ("timm", "safetensors", "hf")),
}
SLOW = {  # the exporter of ONNX takes seconds for each
    "resnet18": ("random/resnet18", {}, EVERYWHERE),
    "resnet34": ("random/resnet34", {}, EVERYWHERE),
    "resnet50": ("random/resnet50", {}, EVERYWHERE),
    "resnet18, CIFAR stem": ("random/resnet18", {"stem": "cifar"}, ("onnx", "safetensors")),
    "small-alexnet": ("random/small-alexnet", {}, ("onnx",)),
    "vit": ("random/timm/vit_tiny_patch16_224", {}, ("timm", "onnx", "safetensors", "hf")),
}
SUFFIXES = {"hf": "", "onnx": ".onnx"}
SHAPES = (
    (301, 200),
    (107, 80),
    (80, 121),
    (85, 85),
    (467, 80),
)


def photograph(file, width: int, height: int, turned: bool) -> None:
    """Something smooth with edges; lying on its side, as phones write it, if it is turned."""
    y, x = torch.meshgrid(torch.linspace(0, 1, height), torch.linspace(0, 1, width), indexing="ij")
    colours = torch.stack([x, y, ((x - 0.3) ** 2 + (y - 0.6) ** 2 < 0.05).float()], dim=-1)
    image = Image.fromarray((255 * colours * (0.7 + 0.3 * torch.sin(40 * x * y))[..., None]).byte().numpy())
    about = Image.Exif()
    about[0x0112] = 6 if turned else 1
    image.save(file, quality=95, exif=about)


def transformed(transform, path: str) -> torch.Tensor:
    with Image.open(path) as image:  # of a GIF, Pillow would leave the file open
        return transform(image)


@pytest.mark.parametrize("target", ["torchvision", "hf"])
def test_the_printed_lines_give_the_features_of_embed(tmp_path, target):
    encoder = lived_in("random/resnet18", size=SIZE)
    (tmp_path / "photos").mkdir()
    for turned, (width, height) in product((False, True), SHAPES):
        photograph(tmp_path / "photos" / f"{width} x {height}, {turned}.jpg", width, height, turned)
    found = logo_ssl.embed(encoder, tmp_path / "photos", workers=0)
    exported = logo_ssl.export(encoder, target, tmp_path / f"x{SUFFIXES.get(target, '.safetensors')}")
    lines = exported.snippet
    if target == "hf":  # those of the card are the same, for whoever has the folder
        card = (exported.path / "README.md").read_text().replace("THIS_FOLDER", str(exported.path))
        lines = card.split("```python\n")[1].split("```")[0]
        assert lines == exported.snippet
    names = executed(lines)
    images = torch.stack([transformed(names["transform"], path) for path in found.paths])
    theirs, ours = names["encoder"](images).detach(), torch.from_numpy(found.vectors)
    apart = (theirs - ours).norm(dim=1) / ours.norm(dim=1)
    assert apart.max() < 1e-5, dict(zip(found.paths, apart.tolist(), strict=True))


def features_by(snippet: str, images: torch.Tensor) -> torch.Tensor:
    """What the encoder that the printed lines load makes of images."""
    return executed(snippet)["encoder"](images).detach()


@pytest.mark.parametrize(
    "case",
    [*CASES.values(), *(pytest.param(case, marks=pytest.mark.slow) for case in SLOW.values())],
    ids=[*CASES, *(f"{name}, slow" for name in SLOW)],
)
def test_features_make_the_round_trip(tmp_path, case):
    source, options, targets = case
    encoder = lived_in(source, size=SIZE, **options)
    images = torch.randn(3, encoder.about.channels, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
    expected = encoder(images).detach()
    for target in targets:
        exported = logo_ssl.export(encoder, target, tmp_path / f"x-{target}{SUFFIXES.get(target, '.safetensors')}")
        apart = (features_by(exported.snippet, images) - expected).abs().max() / expected.abs().max()
        assert apart <= TOLERANCE, (target, float(apart))


@pytest.mark.parametrize(
    ("source", "options", "target", "named"),
    [
        ("random/resnet18", {"stem": "cifar"}, "hf", "cifar"),
        ("random/small-alexnet", {}, "torchvision", "small-alexnet"),
        ("random/tiny", {}, "timm", "tiny"),
        ("random/timm/vit_tiny_patch16_224", {}, "torchvision", "vit_tiny"),
    ],
)
def test_what_a_target_does_not_have_is_refused(tmp_path, source, options, target, named):
    encoder = logo_ssl.load(source, size=32, **options)
    with pytest.raises(UserError, match=named):
        logo_ssl.export(encoder, target, tmp_path / f"x{SUFFIXES.get(target, '.safetensors')}")
    assert not list(tmp_path.iterdir())


def test_published_networks_are_not_exported_back(tmp_path, monkeypatch):
    state = torchvision.models.resnet18().state_dict()
    monkeypatch.setattr(torchvision.models.ResNet18_Weights, "get_state_dict", lambda *_, **__: state)
    with pytest.raises(UserError, match="torchvision/resnet18"):
        logo_ssl.export("torchvision/resnet18", "timm", tmp_path / "x.safetensors")


@pytest.mark.parametrize(
    ("target", "out", "sentence"),
    [
        ("onnx", "x.pt", "x.pt"),
        ("timm", "folder", "folder"),
        ("hf", "folder", "folder exists"),
        ("hf", "file", "file exists"),
    ],
)
def test_places_that_cannot_be_written_are_refused(tmp_path, target, out, sentence):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "precious").write_text("")
    (tmp_path / "file").write_text("precious")
    with pytest.raises(UserError, match=sentence):
        logo_ssl.export(logo_ssl.load("random/resnet18", size=32), target, tmp_path / out)
    assert (tmp_path / "file").read_text() == "precious"


def test_exporting_again_keeps_what_was_added_to_the_folder(tmp_path):
    encoder, out = logo_ssl.load("random/timm/test_vit", size=32), tmp_path / "hub"
    logo_ssl.export(encoder, "hf", out)
    (out / "notes").write_text("precious")
    with pytest.raises(UserError, match="hub exists"):
        logo_ssl.export(encoder, "hf", out)
    logo_ssl.export(encoder, "hf", out, overwrite=True)
    assert sorted(child.name for child in out.iterdir()) == ["README.md", "config.json", "model.safetensors", "notes"]


@pytest.fixture
def noise():
    images = torch.randint(0, 256, (8, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return ImageSet("noise", Split(images))


@pytest.fixture
def run(tmp_path, noise):
    return untrained_run(tmp_path / "run", noise)


def test_metadata_say_what_the_weights_need(run, tmp_path):
    logo_ssl.export(run.path, "safetensors", tmp_path / "x.safetensors")
    encoder = logo_ssl.load(run.path)
    with safetensors.safe_open(tmp_path / "x.safetensors", framework="pt") as file:
        told = file.metadata()
    assert json.loads(told["mean"]) == list(encoder.transform.mean)
    assert json.loads(told["std"]) == list(encoder.transform.std)
    assert (told["size"], json.loads(told["recipe"])["name"]) == ("32", "tiny")
    again = logo_ssl.load(tmp_path / "x.safetensors")
    assert again.transform == encoder.transform
    assert again.about.fingerprint == encoder.about.fingerprint
    assert logo_ssl.export(again, "safetensors", tmp_path / "y.safetensors").path.is_file()


def test_a_torn_export_is_told(run, tmp_path):
    file = logo_ssl.export(run.path, "safetensors", tmp_path / "x.safetensors").path
    weights = safetensors.torch.load_file(file)
    del weights["0.weight"]
    with safetensors.safe_open(file, framework="pt") as whole:
        safetensors.torch.save_file(weights, tmp_path / "torn.safetensors", whole.metadata())
    with pytest.raises(UserError, match=r"torn\.safetensors"):
        logo_ssl.load(tmp_path / "torn.safetensors")


def test_a_hub_folder_has_a_card_and_timm_makes_the_same_input(tmp_path, photos, noise):
    run = untrained_run(tmp_path / "run", noise, backbone="resnet18")
    folder = logo_ssl.export(run.path, "hf", tmp_path / "hub").path
    assert {child.name for child in folder.iterdir()} == {"config.json", "model.safetensors", "README.md"}
    card = (folder / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: timm\n")
    assert "framework moco, strategy logo, recipe `tiny`" in card
    encoder, other = logo_ssl.load(run.path), timm.create_model(f"local-dir:{folder}", pretrained=True)
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(other))
    with Image.open(photos / "a" / "00.png") as image:
        torch.testing.assert_close(transform(image), encoder.transform(image), atol=0.02, rtol=0)


def test_an_onnx_graph_says_what_it_needs_and_takes_any_batch(run, tmp_path):
    import onnx
    import onnxruntime

    file = logo_ssl.export(run.path, "onnx", tmp_path / "x.onnx").path
    told = {entry.key: entry.value for entry in onnx.load(file).metadata_props}
    assert (told["backbone"], told["size"]) == ("tiny", "32")
    session, encoder = onnxruntime.InferenceSession(file), logo_ssl.load(run.path)
    for n in (1, 7):
        x = torch.randn(n, 3, 32, 32)
        (features,) = session.run(None, {"images": x.numpy()})
        torch.testing.assert_close(torch.from_numpy(features), encoder(x).detach(), rtol=1e-4, atol=1e-4)


def test_an_onnx_graph_that_computes_something_else_is_not_written(run, tmp_path, monkeypatch):
    monkeypatch.setattr("logo_ssl.embedding.exporting.TOLERANCE", 0.0)
    with pytest.raises(UserError, match="differ"):
        logo_ssl.export(run.path, "onnx", tmp_path / "x.onnx")
    assert not (tmp_path / "x.onnx").exists()


def test_a_foreign_checkpoint_can_be_exported(tmp_path):
    net = torchvision.models.resnet18()
    torch.save({f"module.encoder_q.{key}": value for key, value in net.state_dict().items()}, tmp_path / "moco.pth")
    exported = logo_ssl.export(str(tmp_path / "moco.pth"), "timm", tmp_path / "x.safetensors")
    assert "torch.randn(2, 3, 224, 224)" in exported.snippet
    net.fc = torch.nn.Identity()
    images = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(features_by(exported.snippet, images), net.eval()(images).detach())
