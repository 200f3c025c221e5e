"""Do features and exports of an encoder hold what the encoder gives?"""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from made_up_data import as_png, labelled, save_folder
from PIL import Image

import logo_ssl


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    """Photographs of several sizes and kinds in four classes; one is no image."""
    folder = save_folder(tmp_path_factory.mktemp("photos") / "photos", labelled(16))
    rng = np.random.default_rng(1)
    for name, mode, size in (
        ("grey.png", "L", (40, 50)),
        ("alpha.png", "RGBA", (50, 33)),
        ("large.jpg", "RGB", (90, 70)),
    ):
        shape = (*size[::-1], len(mode)) if mode != "L" else size[::-1]
        Image.fromarray(rng.integers(0, 256, shape, np.uint8), mode).save(folder / "ash" / name)
    (folder / "birch" / "bad.jpg").write_bytes(b"no image")
    return folder


def read(file: Path) -> tuple[list[str], list[str], list[str], np.ndarray]:
    """Paths, labels, splits and vectors of a file of features."""
    if file.suffix == ".npz":
        table = np.load(file)
        return *(table[name].tolist() for name in ("paths", "labels", "splits")), table["vectors"]
    if file.suffix == ".csv":
        with file.open(newline="") as lines:
            header, *rows = csv.reader(lines)
        assert header[:3] == ["path", "label", "split"]
        return *([row[i] for row in rows] for i in range(3)), np.array([row[3:] for row in rows], float)
    table = pytest.importorskip("pyarrow.parquet").read_table(file).to_pydict()
    return table["path"], table["label"], table["split"], np.array(table["vector"])


@pytest.mark.parametrize("ending", [".npz", ".csv", ".parquet"])
def test_every_format_holds_the_features_of_the_encoder_in_order(logo, cwd, run, photos, ending):
    done = logo("embed", run, "--data", photos, "--out", f"features{ending}", "--workers", "0")
    assert done.code == 0, done.err
    paths, labels, splits, vectors = read(cwd / f"features{ending}")
    assert len(paths) == 19
    assert not any("bad.jpg" in path for path in paths)
    assert "bad.jpg" in (cwd / f"features{ending}-bad-images.csv").read_text()
    assert [Path(path).parent.name for path in paths] == labels
    assert set(splits) == {"train"}
    encoder = logo_ssl.load(run)
    with torch.no_grad():
        one_by_one = torch.cat([encoder(encoder.transform(path)[None]) for path in map(str, paths)]).numpy()
    np.testing.assert_allclose(vectors, one_by_one, rtol=1e-3, atol=1e-4)
    found = logo_ssl.embed(encoder, photos, workers=0)
    assert (found.paths, found.labels, found.splits) == (paths, labels, splits)
    assert [Path(path).name for path in found.bad] == ["bad.jpg"]
    np.testing.assert_allclose(vectors, found.vectors, rtol=1e-5, atol=1e-6)


def test_one_split_alone_is_embedded_if_it_is_named(logo, cwd, run, data):
    for split, n in (("train", 64), ("test", 32), ("all", 96)):
        done = logo("embed", run, "--out", f"{split}.npz", "--split", split)
        assert done.code == 0, done.err
        assert len(np.load(cwd / f"{split}.npz")["vectors"]) == n
    found = logo_ssl.embed(run, data, split="test")
    np.testing.assert_allclose(np.load(cwd / "test.npz")["vectors"], found.vectors, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("ending", [".npz", ".csv", ".parquet"])
def test_an_image_of_the_index_is_its_own_nearest_neighbour(logo, cwd, run, data, ending):
    assert logo("embed", run, "--out", f"features{ending}").code == 0
    (cwd / "query.png").write_bytes(as_png(np.load(data)["train_images"][5]))
    words = ("search", run, "--index", f"features{ending}", "--query", "query.png", "--k", "3")
    done = logo(*words, "--out", "sheet.png")
    assert done.code == 0, done.err
    first = done.out[done.out.index("1.000") :].splitlines()[0]
    assert "5" in first
    assert logo(*words, "--out", "sheet.html").code == 0
    page = (cwd / "sheet.html").read_text()
    assert (page.count("<img"), page.count("no image")) == ((1, 3) if ending == ".csv" else (4, 0))
    ((neighbour, *others),) = logo_ssl.search(run, cwd / f"features{ending}", cwd / "query.png", k=3)
    assert (neighbour.cosine, len(others)) == (pytest.approx(1, abs=1e-4), 2)
    assert neighbour.path in first


def test_what_was_found_is_a_picture_a_page_or_a_table_without_the_query_itself(logo, cwd, run, photos):
    photos = Path(shutil.copytree(photos, cwd / "photos"))
    (photos / "elm" / "003.png").rename(photos / "elm" / "\u732b <b>.png")
    assert logo("embed", run, "--data", photos, "--out", "features.npz", "--workers", "0").code == 0
    (photos / "elm" / "007.png").unlink()
    queries = (photos / "ash" / "grey.png", photos / "ash" / "alpha.png")
    words = ("search", run, "--query", *queries, "--k", "18", "--index", "features.npz")
    for ending in ("png", "html", "csv"):
        done = logo(*words, "--out", f"found.{ending}")
        assert done.code == 0, done.err
    with (cwd / "found.csv").open(newline="") as lines:
        header, *rows = csv.reader(lines)
    assert header == ["query", "rank", "path", "label", "cosine"]
    assert [int(row[1]) for row in rows] == 2 * list(range(1, 19))
    assert all(row[0] != row[2] for row in rows)
    page = (cwd / "found.html").read_text()
    assert page.count("<img") == 2 * 19 - 2  # but for what is gone
    assert page.count("no image") == 2
    assert "\u732b &lt;b&gt;.png" in page
    assert "http" not in page
    with Image.open(cwd / "found.png") as sheet:
        assert min(sheet.size) > 500


OUTPUTS = (
    *("embed {run} --out f.csv", "embed {run} --out f.npz", "export {run} --to safetensors --out f.safetensors"),
    *("search {run} --index features.npz --query query.png --out f.png", "affinity {run} --rows 1 --out f.png"),
    *("search {run} --index features.npz --query query.png --out f.html", "report {run} --out f.html"),
    *("eval knn {run} --protocols 5 0.07 --out f.json", "show-crops tiny --data {data} --images 2 --out f.png"),
)


@pytest.mark.parametrize("line", OUTPUTS)
def test_an_existing_file_is_kept_unless_overwrite_is_given(logo, cwd, own_run, data, line):
    if "--index" in line:
        assert logo("embed", own_run, "--out", "features.npz").code == 0
        (cwd / "query.png").write_bytes(as_png(np.load(data)["train_images"][5]))
    words = line.format(run=own_run, data=data).split()
    (cwd / words[-1]).write_text("precious")
    done = logo(*words)
    assert (done.code, words[-1] in done.err) == (2, True), done.err
    assert (cwd / words[-1]).read_text() == "precious"
    assert logo(*words, "--overwrite").code == 0
    assert (cwd / words[-1]).read_bytes() != b"precious"


@pytest.fixture(scope="module")
def expected(resnet) -> tuple[torch.Tensor, torch.Tensor]:
    """Some input of the encoder, and what it makes of it."""
    x = torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return x, logo_ssl.load(resnet)(x)


def of_torchvision(path: Path, x: torch.Tensor) -> torch.Tensor:
    import torchvision
    from safetensors.torch import load_file

    network = torchvision.models.resnet18()
    network.fc = torch.nn.Identity()
    network.load_state_dict(load_file(path))
    return network.eval()(x)


def of_timm(path: Path, x: torch.Tensor) -> torch.Tensor:
    import timm
    from safetensors.torch import load_file

    network = timm.create_model("resnet18", num_classes=0)
    network.load_state_dict(load_file(path))
    return network.eval()(x)


def of_hub(path: Path, x: torch.Tensor) -> torch.Tensor:
    import timm

    assert (path / "README.md").is_file()
    return timm.create_model(f"local-dir:{path}", pretrained=True, num_classes=0).eval()(x)


def of_onnx(path: Path, x: torch.Tensor) -> torch.Tensor:
    session = pytest.importorskip("onnxruntime").InferenceSession(str(path))
    (name,) = (each.name for each in session.get_inputs())
    return torch.from_numpy(session.run(None, {name: x.numpy()})[0])


def of_ours(path: Path, x: torch.Tensor) -> torch.Tensor:
    return logo_ssl.load(path)(x)


FORMATS = {
    "safetensors": ("encoder.safetensors", of_ours),
    "torchvision": ("encoder.safetensors", of_torchvision),
    "timm": ("encoder.safetensors", of_timm),
    "hf": ("encoder", of_hub),
    "onnx": ("encoder.onnx", of_onnx),
}


@pytest.mark.filterwarnings("ignore")  # of torch's exporter and of timm's
@pytest.mark.parametrize("to", FORMATS)
def test_every_export_gives_the_features_of_the_encoder_where_it_is_loaded(logo, cwd, resnet, expected, to):
    name, features = FORMATS[to]
    done = logo("export", resnet, "--to", to, "--out", name)
    assert done.code == 0, done.err
    x, theirs = expected
    with torch.no_grad():
        torch.testing.assert_close(features(cwd / name, x), theirs, rtol=1e-4, atol=1e-4)


def test_a_network_that_only_we_know_is_exported_as_safetensors_and_knows_its_input(logo, cwd, run):
    assert logo("export", run, "--to", "safetensors", "--out", "tiny.safetensors").code == 0
    ours, exported = logo_ssl.load(run), logo_ssl.load(cwd / "tiny.safetensors")
    assert exported.transform == ours.transform
    x = torch.rand(2, 3, 32, 32)
    assert torch.equal(exported(x), ours(x))
    done = logo("eval", "knn", "tiny.safetensors", "--data", "missing.npz")
    assert (done.code, "missing.npz" in done.err) == (2, True)
    done = logo("export", run, "--to", "timm", "--out", "timm.safetensors")
    assert (done.code, "tiny" in done.err, (cwd / "timm.safetensors").exists()) == (2, True, False)


def test_python_exports_and_embeds_to_files_too(run, data, tmp_path):
    exported = logo_ssl.export(run, "safetensors", tmp_path / "encoder.safetensors")
    assert exported.path == tmp_path / "encoder.safetensors"
    out = logo_ssl.embed(exported.path, data, out=tmp_path / "features.npz")
    assert out == tmp_path / "features.npz"
    np.testing.assert_allclose(np.load(out)["vectors"], logo_ssl.embed(run, data).vectors, rtol=1e-5, atol=1e-6)


def test_features_are_a_step_of_a_pipeline_of_scikit_learn(run, photos):
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    found = logo_ssl.embed(run, photos, workers=0)
    paths, labels = found.paths, found.labels
    model = make_pipeline(logo_ssl.LoGoFeatures(encoder=str(run), workers=0), LogisticRegression(max_iter=2000))
    assert set(model.fit(paths, labels).predict(paths)) <= set(labels)
    np.testing.assert_allclose(model[0].transform(paths), found.vectors, rtol=1e-3, atol=1e-4)


def test_the_file_of_a_resnets_weights_has_the_keys_of_torchvision(resnet, expected):
    x, theirs = expected
    with torch.no_grad():
        torch.testing.assert_close(of_torchvision(resnet / "backbone.safetensors", x), theirs, rtol=1e-4, atol=1e-4)
        network, needs = logo_ssl.load_backbone(resnet)
        torch.testing.assert_close(network(x), theirs, rtol=1e-4, atol=1e-4)
    assert (needs["size"], len(needs["mean"])) == (32, 3)


def test_a_recipe_survives_its_own_json():
    for recipe in logo_ssl.RECIPES.values():
        assert logo_ssl.Recipe.from_json(recipe.to_json()) == recipe
        assert json.loads(recipe.to_json())["name"] == recipe.name
