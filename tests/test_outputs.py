"""Is a file replaced only if we wrote it, or if somebody says so? One rule for every file that a command writes."""

import json
import os
import re
import signal
from pathlib import Path

import numpy as np
import onnx
import pyarrow as arrow
import pyarrow.parquet
import pytest
import safetensors.numpy
from logo_ssl.outputs import claim, claim_folder, clear_folder, is_ours
from PIL import Image
from PIL.PngImagePlugin import PngInfo

import logo_ssl
from logo_ssl.errors import UserError
from logo_ssl.files import write
from logo_ssl.provenance import provenance
from logo_ssl.report.page import page
from logo_ssl.run import Run
from logo_ssl.use.tables import Part, Shape, read_table, write_table

LINES = {
    "f.npz": "embed random/tiny --size 16 --data photos --out f.npz --device cpu --workers 0",
    "f.csv": "embed random/tiny --size 16 --data photos --out f.csv --device cpu --workers 0",
    "f.parquet": "embed random/tiny --size 16 --data photos --out f.parquet --device cpu --workers 0",
    "sheet.png": "search random/tiny --size 16 --index index.npz --query photos/a/0.png --out sheet.png",
    "crops.png": "show-crops tiny --data photos --images 1 --out crops.png",
    "knn.json": "eval knn random/tiny --size 16 --data photos --protocols 2 0.07 --out knn.json --no-cache --workers 0",
    "all-photos.json": "eval transfer random/tiny --size 16 --sets photos --out all.json --no-cache --workers 0",
    "encoder.safetensors": "export random/tiny --size 16 --to safetensors",
    "encoder.onnx": "export random/tiny --size 16 --to onnx",
}


@pytest.fixture
def shell(shell, tmp_path):
    rng = np.random.default_rng(0)
    for i in range(18):
        file = tmp_path / "photos" / "ab"[i % 2] / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (20, 24, 3), np.uint8)).save(file)
    return shell


@pytest.mark.parametrize("name", LINES)
def test_what_we_wrote_is_replaced_and_said_and_other_files_stay(shell, name):
    if name == "sheet.png":
        shell(LINES["f.npz"].replace("f.npz", "index.npz"))
    Path(name).write_text("precious")
    code, _, err = shell(LINES[name])
    assert code == 2
    assert (
        f"{name} is there, and does not say that logo-ssl wrote it; choose another --out, or replace it: --overwrite"
        in err
    )
    assert Path(name).read_text() == "precious"
    code, out, err = shell(f"{LINES[name]} --overwrite")
    assert code == 0, err
    assert f"{name} (replaced)" in out
    code, out, err = shell(LINES[name])
    assert code == 0, err
    assert f"{name} (replaced)" in out
    Path(name).unlink()
    code, out, err = shell(LINES[name])
    assert code == 0, err
    assert "(replaced)" not in out


OTHERS = {
    "knn.json": [
        ("eval transfer random/tiny --size 16 --sets photos --no-cache --workers 0 --out", "knn.json", None),
        (
            "eval knn random/small-alexnet --size 32 --data photos --protocols 2 0.07 --no-cache --workers 0 --out",
            "knn.json",
            "random/tiny, not by random/small-alexnet",
        ),
        (
            "eval linear random/tiny --size 16 --data photos --epochs 1 --no-cache --workers 0 --out",
            "knn.json",
            "knn, not by linear-sgd",
        ),
        ("eval finetune random/tiny --size 16 --data photos --epochs 1 --out", "knn.json", "knn, not by finetune"),
    ],
    "encoder.safetensors": [
        (
            "export random/small-alexnet --size 32 --to safetensors --out",
            "encoder.safetensors",
            "random/tiny, not by random/small-alexnet",
        )
    ],
    "encoder.onnx": [
        (
            "export random/small-alexnet --size 32 --to onnx --out",
            "encoder.onnx",
            "random/tiny, not by random/small-alexnet",
        )
    ],
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_result_of_another_protocol_or_encoder_stays(shell, name):
    assert shell(LINES[name])[0] == 0
    before = Path(name).read_bytes()
    for line, out, made_by in OTHERS[name]:
        code, _, err = shell(f"{line} {out}")
        if made_by is None:  # a file for each set, named after it
            assert code == 0, err
        else:
            assert (code, f"{out} is there, and was made by {made_by}; choose another --out" in err) == (2, True), err
        assert Path(name).read_bytes() == before
    code, out, err = shell(f"{line} {name} --overwrite")
    assert (code, f"{name} (replaced)" in out) == (0, True), err


FEATURES = "embed random/tiny --size 16 --data photos --device cpu --workers 0 --out"
OTHER_FEATURES = [
    (FEATURES.replace("tiny --size 16", "small-alexnet --size 32"), "by random/tiny, not by random/small-alexnet"),
    (FEATURES.replace("photos", "photos/a"), r"with --data \S+/photos, not with --data \S+/photos/a"),
    (FEATURES.replace("16", "24"), "with --size 16, not with --size 24"),
    (f"{FEATURES.removesuffix('--out')} --split train --out", "with --split all, not with --split train"),
]


@pytest.mark.parametrize("name", ["f.npz", "f.parquet"])
def test_features_of_another_encoder_other_images_or_settings_stay(shell, name):
    assert shell(f"{FEATURES} {name}")[0] == 0
    before = Path(name).read_bytes()
    for line, made in OTHER_FEATURES:
        code, _, err = shell(f"{line} {name}")
        cures = "; choose another --out, or replace it: --overwrite"
        assert (code, bool(re.search(f"{name} is there, and was made {made}.*{cures}", err))) == (2, True), err
        assert Path(name).read_bytes() == before
    code, out, err = shell(f"{OTHER_FEATURES[0][0]} {name} --overwrite")
    assert (code, f"{name} (replaced)" in out) == (0, True), err


def test_images_given_in_python_do_not_take_the_place_of_named_ones(shell):
    assert shell(f"{FEATURES} f.npz")[0] == 0
    encoder = logo_ssl.load("random/tiny", size=16)
    with pytest.raises(UserError, match=r"made with --data \S+/photos, not with --data given in Python; choose"):
        logo_ssl.embed(encoder, ["photos/a/0.png"], out="f.npz", workers=0)
    for _ in range(2):
        logo_ssl.embed(encoder, ["photos/a/0.png"], out="g.npz", workers=0)


@pytest.mark.parametrize("protocol", ["linear", "finetune", "semi"])
def test_every_evaluation_calls_itself_what_its_command_expects(shell, protocol):
    line = f"eval {protocol} random/tiny --size 16 --data photos --epochs 1 --workers 0 --out r.json"
    for told in ("Saved: r.json\n", "Saved: r.json (replaced)\n"):
        code, out, err = shell(line)
        assert (code, told in out) == (0, True), err


def test_the_same_encoder_may_be_spelt_in_several_ways_and_what_says_nothing_is_replaced(tmp_path):
    file = tmp_path / "r.json"
    made = {"protocol": "", "encoder": "runs/a", "fingerprint": "", "data_fingerprint": ""} | provenance("cpu")
    file.write_text(json.dumps(made))
    assert claim(file, telling={"encoder": "./runs/a/", "evaluation": "knn"}) is True
    assert claim(file, telling={"encoder": os.path.abspath("runs/a"), "evaluation": "knn"}) is True
    with pytest.raises(UserError, match="was made by runs/a, not by runs/b;"):
        claim(file, telling={"encoder": "runs/b", "evaluation": "knn"})
    file.write_bytes(b"")
    assert claim(file, telling={"encoder": "runs/b"}) is True


def test_a_page_says_who_made_it(tmp_path):
    (tmp_path / "report.html").write_text(page([]))
    assert claim(tmp_path / "report.html") is True


def test_an_empty_file_is_nobodys_and_a_link_that_leads_nowhere_somebodys(tmp_path):
    (tmp_path / "empty.csv").touch()
    assert not is_ours(tmp_path / "empty.csv")
    assert claim(tmp_path / "empty.csv") is True
    (tmp_path / "link.csv").symlink_to(tmp_path / "gone")
    with pytest.raises(UserError, match="does not say that logo-ssl wrote it"):
        claim(tmp_path / "link.csv")
    assert claim(tmp_path / "new.csv") is False


PART = Part(["a.png"], [None], ["train"], np.zeros((1, 2), np.float32))


def table(file: Path) -> None:
    write_table(file, iter([PART]), Shape(1, 2), {"encoder": "random/tiny"})


def parquet_of_a_folder_of_that_name(file: Path) -> None:
    arrow.parquet.write_table(arrow.table({"path": ["/home/me/logo-ssl/a.png"], "label": ["x"]}), file)


def parquet_with_a_column_of_mine(file: Path) -> None:
    table(file)
    ours = arrow.parquet.read_table(file)
    arrow.parquet.write_table(ours.append_column("notes", arrow.array(["mine"])), file)


def parquet_without_a_word(file: Path) -> None:
    table(file)
    arrow.parquet.write_table(arrow.parquet.read_table(file).replace_schema_metadata(), file)


def npz_with_an_array_of_mine(file: Path) -> None:
    table(file)
    with np.load(file) as ours:
        np.savez(file, **ours, mine=np.arange(3))


def parquet_before_splits(file: Path) -> None:
    table(file)
    with_splits = arrow.parquet.read_table(file)
    arrow.parquet.write_table(with_splits.drop_columns("split"), file)


def parquet_with_splits_of_mine(file: Path) -> None:
    parquet_before_splits(file)
    ours = arrow.parquet.read_table(file)
    arrow.parquet.write_table(ours.append_column("split", arrow.array(["mine"])), file)


def npz_before_splits(file: Path) -> None:
    table(file)
    with np.load(file) as ours:
        np.savez(file, **{name: ours[name] for name in ours if name != "splits"})


def npz_with_splits_of_mine(file: Path) -> None:
    npz_before_splits(file)
    with np.load(file) as ours:
        np.savez(file, **ours, splits=np.array(["mine"]))


def npz_saved_again_by_me(file: Path) -> None:
    npz_before_splits(file)
    with np.load(file) as ours:
        np.savez(file, **{name: ours[name] for name in sorted(ours)})


def csv_before_splits(file: Path) -> None:
    file.write_bytes(b"path,label,f0,f1\r\na.png,,1.0,2.0\r\n")


def npz_that_names_us(file: Path) -> None:
    np.savez(file, text=np.array("logo-ssl.npy"))


def png_that_speaks_of_us(file: Path) -> None:
    about = PngInfo()
    about.add_text("Comment", "made from a figure: tEXtSoftware logo-ssl")
    Image.new("RGB", (4, 4)).save(file, pnginfo=about)
    file.write_bytes(file.read_bytes() + b"tEXtSoftware\0logo-ssl")


def weights_that_tell_a_version(file: Path) -> None:
    safetensors.numpy.save_file({"w": np.zeros(2)}, file, {"logo_ssl": "0.1.0", "epochs": "3"})


def network_with_a_version(file: Path) -> None:
    value = onnx.helper.make_tensor_value_info("logo_ssl", onnx.TensorProto.FLOAT, [1])
    node = onnx.helper.make_node("Identity", ["logo_ssl"], ["y"])
    out = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "logo_ssl", [value], [out]))
    onnx.helper.set_model_props(model, {"logo_ssl": "0.1.0"})
    onnx.save(model, file)


GENERATOR = '<meta name="generator" content="logo-ssl">'
DRAWING = (
    '<svg xmlns="http://www.w3.org/2000/svg" xmlns:dc="http://purl.org/dc/elements/1.1/" '
    'xmlns:cc="http://creativecommons.org/ns#"><metadata><cc:Work><dc:title>logo-ssl</dc:title>'
    "<dc:creator><cc:Agent><dc:title>me</dc:title></cc:Agent></dc:creator></cc:Work></metadata></svg>"
)
LOOK_ALIKE = [
    ("f.parquet", parquet_of_a_folder_of_that_name),
    ("f.parquet", parquet_with_a_column_of_mine),
    ("f.parquet", parquet_without_a_word),
    ("f.parquet", parquet_with_splits_of_mine),
    ("f.npz", npz_with_an_array_of_mine),
    ("f.npz", npz_with_splits_of_mine),
    ("f.npz", npz_saved_again_by_me),
    ("f.npz", npz_that_names_us),
    ("photo.png", png_that_speaks_of_us),
    ("w.safetensors", weights_that_tell_a_version),
    ("w.safetensors", b"\xff" * 64),
    ("net.onnx", network_with_a_version),
    ("net.onnx", b"logo_ssl"),
    ("f.csv", b"path,label,f0,f1,notes\r\na.png,,1,2,mine\r\n"),
    ("f.csv", b"path,label,f0,f2\r\n"),
    ("f.csv", b"path,label\r\n"),
    ("f.csv", b"path,label,split\r\n"),
    ("f.csv", b"path,label,split,f1,f2\r\n"),
    ("f.csv", b"path,label,f0,f1\na.png,x,1,2\n"),  # as another program writes it
    ("f.csv", b"image,reason\r\n"),
    ("f.npz-bad-images.csv", b"image,reason,who looks\r\n"),
    ("package.json", json.dumps({"dependencies": {"logo-ssl": "0.1.0"}}).encode()),
    ("made.json", json.dumps(provenance("cpu")).encode()),
    ("made.json", json.dumps({"protocol": "http", "versions": {"logo-ssl": "2"}}).encode()),
    ("list.json", b'["logo-ssl", "protocol", "versions"]'),
    ("blog.html", f"<html><head><!-- {GENERATOR} --></head><body></body></html>".encode()),
    ("blog.html", f"<html><head></head><body>{GENERATOR}</body></html>".encode()),
    ("logo.svg", DRAWING.encode()),
    ("logo.svg", b"<!-- <dc:title>logo-ssl</dc:title> --><svg/>"),
    ("notes.txt", b"logo-ssl"),
]


@pytest.mark.parametrize(("name", "made"), LOOK_ALIKE)
def test_files_of_others_that_look_like_ours_stay(tmp_path, name, made):
    file = tmp_path / name
    file.write_bytes(made) if isinstance(made, bytes) else made(file)
    with pytest.raises(UserError, match="does not say that logo-ssl wrote it"):
        claim(file)
    assert claim(file, overwrite=True) is True


@pytest.mark.parametrize("name", ["f.parquet", "f.npz", "f.csv", "F.CSV"])
def test_our_tables_are_known_by_what_they_hold(tmp_path, name):
    table(tmp_path / name)
    assert is_ours(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "made"),
    [("f.parquet", parquet_before_splits), ("f.npz", npz_before_splits), ("f.csv", csv_before_splits)],
)
def test_our_tables_from_before_splits_were_written_are_known_and_read(tmp_path, name, made):
    made(tmp_path / name)
    assert is_ours(tmp_path / name)
    (part,) = read_table(tmp_path / name)
    assert (part.paths, part.labels, part.splits) == (["a.png"], [None], [None])
    assert part.vectors.shape == (1, 2)


@pytest.mark.parametrize("file", Run("").own_files(), ids=str)
def test_the_files_of_a_run_are_never_taken_there_or_not(tmp_path, file):
    run, place = Run(tmp_path), tmp_path / file.name
    assert claim(place) is False
    run.recipe_file.write_text("{}")
    (tmp_path / f"link{file.suffix}").symlink_to(place)
    for name in (place, tmp_path / f"link{file.suffix}"):
        with pytest.raises(UserError, match=r"is a file of the run in .*; choose another name"):
            claim(name, overwrite=True)
    assert claim(tmp_path / "features.npz") is False


@pytest.fixture
def impatient():
    def late(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_no_ordinary_file_is_refused_and_not_waited_for(tmp_path, overwrite):
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "round.json").symlink_to("round.json")
    for name in ("pipe.json", "round.json"):
        assert not is_ours(tmp_path / name)
        with pytest.raises(UserError, match=f"{name} is no ordinary file"):
            claim(tmp_path / name, overwrite)
        assert os.path.lexists(tmp_path / name)


def test_where_a_link_lies_what_it_leads_to_is_written(tmp_path):
    (tmp_path / "there").mkdir()
    for name, writes in (("a.txt", lambda file: write(file, "new")), ("f.csv", table)):
        target, link = tmp_path / "there" / name, tmp_path / name
        target.write_text("old")
        link.symlink_to(target)
        writes(link)
        assert link.is_symlink()
        assert target.read_text() != "old"
        assert {child.name for child in tmp_path.iterdir()} <= {"there", "a.txt", "f.csv"}
    assert is_ours(tmp_path / "f.csv")


OURS = re.compile(r"part-\d+")


def test_a_folder_is_ours_while_it_holds_nothing_else_and_only_our_files_are_removed(tmp_path):
    claim_folder(tmp_path / "new", OURS)
    clear_folder(tmp_path / "new", OURS)
    folder = tmp_path / "kept"
    folder.mkdir()
    (folder / "part-1").touch()
    claim_folder(folder, OURS)
    (folder / "part-2").mkdir()
    (folder / "part-2" / "thesis.txt").touch()
    with pytest.raises(UserError, match="kept holds part-2, which logo-ssl did not write"):
        claim_folder(folder, OURS)
    clear_folder(folder, OURS)
    assert [child.name for child in folder.iterdir()] == ["part-2"]
    (folder / "part-2" / "thesis.txt").unlink()
    (folder / "part-2").rmdir()
    clear_folder(folder, OURS)
    assert not folder.exists()
    folder.write_text("precious")
    with pytest.raises(UserError, match="kept is to be a folder, and is none"):
        claim_folder(folder, OURS)


def test_a_result_is_a_json_file(shell):
    for name in ("result.txt", "result"):
        code, _, err = shell(LINES["knn.json"].replace("knn.json", name))
        assert (code, f"--out is {name}; a result is a .json file." in err) == (2, True)
        assert not Path(name).exists()


def test_a_result_goes_where_a_link_leads(shell):
    assert shell(LINES["knn.json"])[0] == 0
    Path("knn.json").rename("there.json")
    Path("knn.json").symlink_to("there.json")
    Path("there.json").write_text(Path("there.json").read_text() + "\n\n")
    code, out, _ = shell(LINES["knn.json"])
    assert (code, "knn.json (replaced)" in out) == (0, True)
    assert Path("knn.json").is_symlink()
    assert not Path("there.json").read_text().endswith("\n\n")
