"""Which rows, which settings, and how a table reads."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from logo_ssl.frameworks import SupervisedConfig
from logo_ssl.recipes import find_recipe, literal
from logo_ssl.reproduce import tables
from logo_ssl.reproduce.images import _compared, cut, facts_of, remarks_on
from logo_ssl.reproduce.markdown import _minutes, markdown
from logo_ssl.reproduce.plan import MORE_FACTS, Place, tasks_for
from logo_ssl.reproduce.results import gather
from logo_ssl.reproduce.settings import decisive_differences, set_of, with_data, with_settings
from logo_ssl.run import IMAGES_TOLD

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("names", "rows"),
    [(["table1"], 4), (["table4"], 4), (["table5"], 5), (["table6"], 2), (["table7"], 12), (["table1", "table7"], 16)],
)
def test_a_table_has_the_papers_rows(names, rows):
    assert sum(len(table.rows) for table in tables.choose(names)) == rows


def test_table_5_has_the_papers_ten_figures_for_each_row():
    (table,) = tables.choose(["table5"], ["*-moco-logo"])
    (row,) = table.rows
    told = {figure.protocol: figure.paper for figure in row.figures}
    assert len(told) == 10
    assert (told["CIFAR10, top-1"], told["Pets, mean per class"], told["DTD, top-1"]) == (86.09, 76.17, 67.87)


def test_table_6_has_the_papers_nine_figures_for_each_row():
    (table,) = tables.choose(["table6"], ["*-moco-logo"])
    (row,) = table.rows
    told = {figure.protocol: (figure.measurement, figure.metric, figure.paper) for figure in row.figures}
    assert len(told) == 9
    assert told["voc07+12, box AP50"] == ("detect-voc07+12", "box AP50 (VOC07)", 81.12)
    assert told["coco, mask AP75"] == ("segment-coco", "mask AP75 (COCO)", 37.42)


@pytest.mark.parametrize(
    ("names", "patterns", "shown"),
    [
        (["fig1b"], [], "imagenet100"),
        (["fig1b", "table1"], [], "cifar10"),
        (["fig1b", "table1"], ["cifar10-*"], "cifar10"),
    ],
)
def test_figure_1b_shows_imagenet100_unless_another_table_is_asked_for(names, patterns, shown):
    curves = next(table for table in tables.choose(names, patterns) if table.name == "fig1b")
    assert [row.recipe.name for row in curves.rows] == [
        f"{shown}-{kind}" for kind in ("moco", "moco-logo", "simsiam", "simsiam-logo")
    ]


@pytest.mark.parametrize(
    ("names", "sources", "shown"),
    [
        (["fig1b"], ["sets/cifar10.npz"], ["cifar10"]),
        (["fig1b", "fig3"], ["cifar10=photos/"], ["cifar10"]),
        (["fig1b"], ["stl10/", "cifar10"], ["cifar10", "stl10"]),
        (["fig1b"], ["photos/"], ["imagenet100"]),
        (["fig1b", "table2"], ["cifar10.npz"], ["stl10"]),
        (["fig1b", "table7"], ["cifar10=photos/"], ["cifar10", "stl10", "imagenet100"]),
    ],
)
def test_a_figure_alone_shows_the_rows_on_the_set_that_data_is_called_like(names, sources, shown):
    curves = next(table for table in tables.choose(names, sets=[*map(set_of, sources)]) if table.name == "fig1b")
    assert list(dict.fromkeys(row.recipe.data for row in curves.rows)) == shown


@pytest.mark.parametrize(
    ("names", "patterns", "kinds"),
    [
        (["table7", "fig1b"], ["cifar10-*"], ["moco-multicrop", "moco-logo", "simsiam-multicrop", "simsiam-logo"]),
        (["fig1b"], ["cifar10-moco-multicrop"], ["moco-multicrop"]),
        (["fig1b"], ["cifar10-moco*"], ["moco", "moco-logo", "moco-multicrop"]),
        (["table7", "table1", "fig1b"], ["cifar10-moco*"], ["moco", "moco-logo", "moco-multicrop"]),
    ],
)
def test_figure_1b_shows_the_rows_of_the_tables_beside_it_and_alone_all_that_match(names, patterns, kinds):
    curves = next(table for table in tables.choose(names, patterns) if table.name == "fig1b")
    assert [row.recipe.name for row in curves.rows] == [f"cifar10-{kind}" for kind in kinds]


@pytest.mark.parametrize(("names", "shown"), [(["fig3"], "imagenet100"), (["fig3", "table1"], "cifar10")])
def test_figure_3_shows_the_rows_that_learn_a_measure(names, shown):
    pictures = next(table for table in tables.choose(names) if table.name == "fig3")
    assert [row.recipe.name for row in pictures.rows] == [f"{shown}-moco-logo", f"{shown}-simsiam-logo"]


def test_rows_with_settings_of_our_choice_stand_beside_the_papers_figures():
    table1, table7, curves = tables.choose(["table1", "table7", "fig1b"], own=True)
    names = ["moco", "moco-logo", "simsiam", "simsiam-logo"]
    assert [row.recipe.name for row in table1.rows] == [f"cifar10-tuned-{name}" for name in names]
    assert [row.label for row in table1.rows] == [
        "MoCo, tuned",
        "MoCo+LoGo, tuned",
        "SimSiam, tuned",
        "SimSiam+LoGo, tuned",
    ]
    assert [figure.paper for figure in table1.rows[-1].figures] == [87.67, 87.67, 88.02]
    assert len(table7.rows) == 4  # of twelve: those on CIFAR-10
    of_both = dict.fromkeys(row.recipe.name for table in (table1, table7) for row in table.rows)
    assert [row.recipe.name for row in curves.rows] == list(of_both)
    assert [len(table.rows) for table in tables.choose(["fig1b"], own=True)] == [4]
    assert (table1.stem, table1.title) == ("table1-tuned", "Table 1: CIFAR-10, ResNet-18, with settings of our choice")
    changed = decisive_differences(table1.rows[0].recipe, literal(table1.rows[0].recipe))
    assert changed["framework.tau"] == (0.2, 0.1)  # from the paper's settings, not from our own
    assert "crops.local_scale" not in changed  # of crops that the row does not have


def test_a_title_is_the_papers_unless_rows_have_other_data_or_backbones():
    titles = {table.name: table.title for table in tables.choose(list(tables.TITLES))}
    assert titles["table2"] == "Table 2: STL-10, small AlexNet"
    assert titles["table4"] == "Table 4: ImageNet-100, ResNet-34 and ResNet-50"
    assert titles["table6"] == "Table 6: detection and segmentation from ImageNet-100, ResNet-50"
    assert titles["table7"] == (
        "Table 7: with and without L2L, CIFAR-10, STL-10 and ImageNet-100, ResNet-18, small AlexNet and ResNet-34"
    )
    (table,) = tables.choose(["table1"])
    placed = with_data([row.recipe for row in table.rows], ["photos/"])
    changed = {recipe.name: recipe for recipe in with_settings(placed, ["backbone=tiny"])}
    assert table.with_recipes(changed).title == "Table 1: data photos, backbone tiny"
    changed["cifar10-moco"] = find_recipe("cifar10-moco")
    assert table.with_recipes(changed).title == "Table 1: CIFAR-10 and data photos, ResNet-18 and backbone tiny"


def test_rows_without_settings_of_our_choice_are_told():
    table7, table2 = tables.without_own(["table1", "table7", "table2", "fig1b"])
    assert table7.startswith("8 of 12 rows of table7 have no settings")
    assert table2.startswith("All 4 rows of table2 have no settings")


def test_tables_that_share_a_row_share_its_run():
    chosen = tables.choose(["table1", "table7"], ["cifar10-*"])
    tasks = tasks_for(chosen, 2, Path("out"))
    assert len(tasks) == 6 * 2
    measured = {task.recipe.name: task.measurements for task in tasks}
    assert measured["cifar10-moco-logo"] == ("knn", "linear-sgd")
    assert measured["cifar10-moco-multicrop"] == ("knn", "linear-sgd")  # of which the paper tells kNN alone
    assert tasks[1].place.run.path == Path("out/cifar10-moco/seed1")


def test_a_setting_reaches_the_rows_that_have_it():
    recipes = [find_recipe("cifar10-moco"), find_recipe("cifar10-simsiam-logo")]
    settings = ["strategy.lam=0.1", "framework.constant-lr=False", "crops.global_scale=0.3 1", "batch_size=256"]
    moco, simsiam = with_settings(recipes, settings)
    assert decisive_differences(moco, recipes[0]) == {
        "batch_size": (256, 512),
        "crops.global_scale": ([0.3, 1.0], [0.2, 1.0]),
    }
    assert (simsiam.strategy.lam, simsiam.framework.constant_lr) == (0.1, False)


def test_what_does_not_decide_a_result_is_no_difference():
    recipe = find_recipe("cifar10-moco")
    other = replace(recipe, seed=3, device="cpu", knn_every=0, loggers=(), data="/a/cifar10.npz")
    assert decisive_differences(other, recipe) == {}
    assert decisive_differences(replace(recipe, data="/a/other.npz"), recipe) == {"data": ("other", "cifar10")}
    labelled = find_recipe("cifar10-supervised")
    assert decisive_differences(replace(labelled, framework=SupervisedConfig(dim=7)), labelled) == {}


def test_data_are_given_for_one_set_or_for_each():
    moco, stl = find_recipe("cifar10-moco"), find_recipe("stl10-moco")
    assert [recipe.data for recipe in with_data([moco, stl], ["stl10=/a/stl"])] == ["cifar10", "/a/stl"]
    assert [recipe.data for recipe in with_data([moco, stl], ["/a/stl10.npz"])] == ["cifar10", "/a/stl10.npz"]
    assert with_data([moco], ["/a/c.npz"])[0].data == "/a/c.npz"
    assert with_data([moco], ["/a/stl10.npz"])[0].data == "/a/stl10.npz"  # for the only set there is


def test_figures_of_a_run_that_was_removed_are_forgotten(tmp_path):
    place, recipe = Place(tmp_path / "row" / "seed0"), find_recipe("cifar10-moco")
    place.start(recipe, jobs=4)
    place.note(figures={"knn": {"knn top-1, k=20, tau=0.07": 80.0}})
    place.start(recipe, jobs=1)
    assert place.figures() == {}
    assert place.record()["jobs"] == 1
    assert place.asked() == recipe


@pytest.mark.parametrize("file", ["speed.jsonl", "speed-cpu.jsonl"])
def test_packaged_speeds_are_those_of_the_results(file):
    packaged = (Path(tables.__file__).parent / file).read_text().splitlines()
    kept = (ROOT / "results" / "records" / "speed.jsonl").read_text().splitlines()
    measured = [{name: value for name, value in json.loads(line).items() if name != "date"} for line in kept]
    assert packaged
    for line in map(json.loads, packaged):
        del line["platform"]
        pairs = line.pop("pairs")  # which is in later lines; these are from when all but MoCo's baseline averaged
        assert line in measured or line | {"pairs": pairs} in measured


FACTS = {"train_images": 600, "test_images": 200, "test_images_compared": 200, "test_images_in_train": 3}


def test_test_images_that_validation_has_too_are_told_below_a_table(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (12, 8, 8, 3), dtype=np.uint8)
    parts = {"train": pixels[:6], "val": pixels[5:9], "test": pixels[8:]}
    arrays = {f"{part}_images": images for part, images in parts.items()}
    labels = {f"{part}_labels": np.arange(len(images)) % 2 for part, images in parts.items()}
    np.savez(tmp_path / "cifar10.npz", **arrays, **labels)
    facts = facts_of(str(tmp_path / "cifar10.npz"), 8)
    assert facts.keys() - {"val_images"} == IMAGES_TOLD | MORE_FACTS  # what is looked for is kept
    (told,) = remarks_on("cifar10", facts, by_linear=True)
    assert told.endswith(
        "; 1 of 4 test images that were looked at is among the validation images, so linear figures are too good"
        "; 1 of 4 validation images that were looked at is among the training images, so what linear chooses may be "
        "fitted too closely"
    )
    (told,) = remarks_on("cifar10", facts, by_linear=False)
    assert "validation" not in told
    table = {"title": "t", "rows": [RECORD["rows"][0] | {"runs": [run(0) | {"images": facts}]}]}
    assert "linear figures are too good" in markdown(table)
    table["rows"][0]["figures"] = table["rows"][0]["figures"][:1]
    assert "validation" not in markdown(table)


def test_how_many_images_there_are_is_told_where_any_is_known():
    then = {"test_images": 0, "fingerprint": {"test": "a"}}
    assert _compared(then, then | {"fingerprint": {"test": "b"}}) == "test: images of other names, order or contents"
    then["test_images"] = 9
    assert _compared(then, then | {"fingerprint": {"test": "b"}}).startswith("test: 9 images of other names")


def test_validation_images_that_linear_refuses_are_not_looked_among(tmp_path):
    for i, name in enumerate(["train/a/0", "train/b/1", "val/a/2", "val/stranger/3", "test/a/4", "test/b/5"]):
        file = tmp_path / f"{name}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (i, 0, 0)).save(file)
    facts = facts_of(str(tmp_path), 8)
    assert facts["test_images_in_train"] == 0
    assert "test_images_in_val" not in facts


def run(seed, state="done", sentence="", **provenance):
    known = {"hardware": "NVIDIA H200", "commit": "0123456789ab", "seconds": 300.0, "resumed": False} | provenance
    return {
        "seed": seed,
        "state": state,
        "sentence": sentence,
        "jobs": 1,
        "images": FACTS if state == "done" else {},
        "provenance": known if state == "done" else None,
    }


def figure(protocol, paper, mean, spread, n):
    kind = "knn" if protocol.startswith("kNN") else "linear-sgd"
    return {"measurement": kind, "protocol": protocol, "paper": paper, "mean": mean, "spread": spread, "n": n}


RECORD = {
    "title": "Table 1: CIFAR-10, ResNet-18",
    "rows": [
        {
            "row": "MoCo",
            "recipe": "cifar10-moco",
            "note": "",
            "departures": {"optimiser.lr": {"ours": 0.12, "recipe": 0.06}},
            "changed": {},
            "data": "sets/cifar10.npz",
            "crops": "2 + 0",
            "epochs": 200,
            "figures": [
                figure("kNN k=20, tau=0.07", 79.58, 80.125, 0.2, 2),
                figure("linear, sgd", 80.37, 82.0, None, 1),
            ],
            "runs": [run(0), run(1, seconds=360.0, commit="cafe")],
        },
        {
            "row": "MoCo+LoGo",
            "recipe": "cifar10-moco-logo",
            "note": "a remark",
            "departures": {
                "optimiser.lr": {"ours": 0.12, "recipe": 0.06},
                "crops.local_scale": {"ours": [0.1, 0.3], "recipe": [0.05, 0.4]},
            },
            "changed": {},
            "data": "sets/cifar10.npz",
            "crops": "2 + 2",
            "epochs": 200,
            "figures": [figure("kNN k=20, tau=0.07", 84.44, 85.0, None, 1), figure("linear, sgd", None, None, None, 0)],
            "runs": [run(0, resumed=True), run(1, "failed", "It crashed.")],
        },
    ],
}
GOLDEN = """\
# Table 1: CIFAR-10, ResNet-18

| row | protocol | paper | ours | seeds | crops x epochs | minutes | hardware | commit |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
| MoCo \\* | kNN k=20, tau=0.07 | 79.58 | 80.12 ± 0.20 | n=2 | (2 + 0) x 200 | 5.5 | NVIDIA H200 | 0123456789ab, cafe |
| MoCo \\* | linear, sgd | 80.37 | 82.00 | n=1 of 2 | (2 + 0) x 200 | 5.5 | NVIDIA H200 | 0123456789ab, cafe |
| MoCo+LoGo \\* | kNN k=20, tau=0.07 | 84.44 | 85.00 | n=1 of 2 | (2 + 2) x 200 | > 5.0 | NVIDIA H200 | 0123456789ab |
| MoCo+LoGo \\* | linear, sgd | - | - | n=0 of 2 | (2 + 2) x 200 | > 5.0 | NVIDIA H200 | 0123456789ab |

Accuracy in percent after the last epoch, mean ± sample standard deviation over n seeds. Minutes are those of \
pretraining, the mean of the runs. Recipes with LoGo bound Omega, where the paper does not (docs/decisions/0002), \
unless that is among the settings below.
Minutes after > are fewer than it took: a run was killed after its last checkpoint, or went on before its time was \
counted in full.
kNN: weighted votes of frozen backbone features, top-1; the paper names neither k nor tau.
Linear: MoCo's SGD on frozen backbone features, top-1; its learning rate is chosen on validation images or, without \
any, on a fifth of train.

\\* Settings that differ from the recipe with the paper's:

- All rows: optimiser.lr 0.12 (recipe: 0.06)
- MoCo+LoGo: crops.local_scale 0.1 0.3 (recipe: 0.05 0.4)

Images:

- cifar10: 600 images to train on, 200 to test on; not the 50,000 and 10,000 of the paper's cifar10; 3 of 200 test \
images that were looked at are among the training images, so figures are too good

Remarks:

- MoCo+LoGo: a remark

Not there:

- MoCo+LoGo (cifar10-moco-logo), seed 1, failed: It crashed.
"""


def test_a_table_reads_as_it_should():
    assert markdown(RECORD) == GOLDEN


def test_what_was_set_beside_our_own_choice_is_told_once_for_all_rows_and_older_records_lack_it():
    epochs, batch = {"epochs": {"ours": 1, "recipe": 200}}, {"batch_size": {"ours": 64, "recipe": 256}}
    moco, logo = RECORD["rows"]
    text = markdown(RECORD | {"rows": [moco | {"changed": epochs}, logo | {"changed": epochs | batch}]})
    told = text.split("not of our choice (the tuned recipe's in brackets):\n\n")[1].split("\n\n")[0]
    assert told == "- All rows: epochs 1 (recipe: 200)\n- MoCo+LoGo: batch_size 64 (recipe: 256)"
    older = [{key: value for key, value in row.items() if key != "changed"} for row in RECORD["rows"]]
    assert markdown(RECORD | {"rows": older}) == GOLDEN


def test_what_befell_a_run_is_told_below_the_table():
    moco, logo = RECORD["rows"]
    unlucky = moco | {"note": "a remark", "runs": [run(0, lr_scale=0.25), run(1, lr_scale=1.0, bad_images=9000)]}
    told = markdown(RECORD | {"rows": [unlucky, logo]}).split("Remarks:\n\n")[1].split("\n\n")[0]
    assert told.splitlines() == [
        "- All rows: a remark",
        "- MoCo, seed 0: it diverged on its way, and ended with 0.25 of its learning rate",
        "- MoCo, seed 1: 9,000 training images could not be read, and others took their place",
    ]


def test_smaller_photographs_are_another_setting_and_more_workers_are_not():
    recipe = find_recipe("imagenet100-moco")
    assert decisive_differences(recipe.changed(loading__max_side=64), recipe).keys() == {"loading.max_side"}
    assert decisive_differences(recipe.changed(loading__workers=1, seed=3, device="cpu"), recipe) == {}


def test_minutes_of_a_run_that_tells_nothing_of_its_sessions_are_those_it_tells():
    told = run(0)
    told["provenance"].pop("resumed")
    assert _minutes([told]) == "5.0"


@pytest.mark.parametrize(("seconds", "told"), [(9.4, "9 s"), (59.6, "60 s"), (60.0, "1.0"), (330.0, "5.5")])
def test_minutes_of_a_run_that_took_none_are_told_in_seconds(seconds, told):
    assert _minutes([run(0, seconds=seconds)]) == told


@pytest.mark.parametrize(("killed", "minutes"), [(0, "5.0"), (1, "> 5.0")])
def test_minutes_are_known_where_every_session_was_counted_to_its_end(killed, minutes):
    assert _minutes([run(0, resumed=True, sessions=2, sessions_killed=killed)]) == minutes


def test_minutes_beside_other_rows_are_told_as_such_where_there_are_any():
    moco, logo = RECORD["rows"]
    assert "at once" not in markdown(RECORD)
    text = markdown(RECORD | {"rows": [moco, logo | {"runs": [run(0) | {"jobs": 2}]}]})
    assert "| 5.0 (2 at once) |" in text
    assert "Minutes (N at once) are longer than a run's alone: up to N ran side by side on the device." in text
    assert "Minutes after >" not in text


@pytest.mark.parametrize(
    ("rows", "own", "left_out"),
    [
        (["cifar10-moco-logo"], False, ["MoCo", "SimSiam", "SimSiam+LoGo"]),
        (["*-simsiam*", "*-moco"], True, ["MoCo+LoGo, tuned"]),
        (["cifar10-tuned-simsiam-logo", "cifar10-tuned-moco"], True, ["MoCo+LoGo, tuned", "SimSiam, tuned"]),
        ([], False, []),
    ],
)
def test_a_table_of_some_rows_names_the_others_apart_from_failed_ones(rows, own, left_out):
    (table,) = tables.choose(["table1"], rows, own)
    record = gather(table, [])
    assert record["not_run"] == left_out
    text = markdown(RECORD | {"not_run": left_out})
    head, _, legend = text.partition("Accuracy in percent")
    assert head.endswith(f"|\n\nNot run: {'; '.join(left_out)}\n\n" if left_out else "|\n\n")
    assert "Not there:\n\n- MoCo+LoGo (cifar10-moco-logo), seed 1, failed" in legend
    (curves,) = tables.choose(["fig1b"], ["cifar10-moco"])
    assert gather(curves, [])["not_run"] == []


@pytest.mark.parametrize(
    ("data", "facts", "told"),
    [
        ("cifar10", {"train_images": 50_000, "test_images": 10_000}, ""),
        ("small/cifar10.npz", {"train_images": 1_000, "test_images": 10_000}, "1,000 images to train on, not 50,000"),
        ("mine.npz", {"train_images": 1_000, "test_images": 10}, ""),  # which is called by its own name
        ("cifar10.npz", {}, ""),  # not noted
    ],
)
def test_images_that_are_not_the_whole_set_that_they_are_called_after_are_told(data, facts, told):
    assert cut(data, facts) == told
