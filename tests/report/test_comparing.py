"""Is a run called better only where that can be said, and do tables stand beside the paper's rows?"""

import json

import pytest

from logo_ssl.recipes import find_recipe
from logo_ssl.report.comparing import Spread, better, comparison, grouped, verdict
from logo_ssl.report.paper_tables import detection_table, transfer_table
from logo_ssl.report.reading import Told
from logo_ssl.report.results import Figure, figures, labels
from logo_ssl.report.sections import differences
from logo_ssl.report.telling import PAPERS, Teller, without_effect
from logo_ssl.run import Run

ACCURACY = Figure("kNN", 50.0, "higher")


@pytest.fixture
def make_told(tmp_path):
    """Runs with a kNN accuracy and a last loss, finished unless told otherwise."""

    def make(name, knn=50.0, loss=1.0, known_to=None, finished=True, **changes) -> Told:
        run, recipe = Run(tmp_path / name), find_recipe("tiny").changed(**changes)
        run.path.mkdir()
        run.recipe_file.write_text(recipe.to_json())
        epochs = recipe.epochs if known_to is None else known_to
        lines = [
            {"step": 1, "loss": loss, "omega": -1.0, "l_ll": 0.5, "images_per_s": 100.0},
            {"step": 2, "knn": knn, "knn_k": 20, "knn_tau": 0.07, "epochs_done": epochs},
        ]
        run.metrics_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        if finished:
            run.provenance_file.write_text('{"commit": "abc123"}')
        return Told(run, name, without_effect=without_effect)

    return make


def test_runs_that_differ_in_seed_or_harmless_settings_are_one_group(make_told):
    runs = [make_told("a"), make_told("b", seed=1, log_every=3, loading__workers=0), make_told("c", optimiser__lr=0.5)]
    assert [str(group) for group in grouped(runs)] == ["A: a, b", "B: c"]
    assert len(grouped([make_told("h"), make_told("i", loading__max_side=64)])) == 2
    assert len(grouped([make_told("d"), make_told("e", epochs=7)])) == 2
    assert len(grouped([make_told("f"), make_told("g", data="elsewhere")])) == 2


def test_a_seed_of_today_is_one_group_with_a_record_from_before_a_setting_was_written(make_told):
    old, new = make_told("old").run, make_told("new", seed=1, initialisation="library").run
    record = json.loads(old.recipe_file.read_text())
    del record["initialisation"], record["augself"], record["optimiser"]["eta_min"]
    old.recipe_file.write_text(json.dumps(record))
    runs = Teller(crops=False, images=0).tell([old, new])
    assert [str(group) for group in grouped(runs)] == ["A: old, new"]
    assert "<td>absent</td>" not in differences(runs)
    assert ">seed<" in differences(runs)
    assert ">initialisation<" not in differences(runs)
    other = make_told("other", seed=2, initialisation="torch").run
    assert len(grouped(Teller(crops=False, images=0).tell([old, other]))) == 2


def test_the_size_of_local_crops_parts_no_runs_that_have_none(make_told):
    none = {"strategy": "two-view", "crops__n_local": 0}
    runs = [make_told("a", **none, crops__local_size=16).run, make_told("b", **none, crops__local_size=24, seed=1).run]
    assert len(grouped(Teller(crops=False, images=0).tell(runs))) == 1
    runs = [make_told("c", crops__local_size=16).run, make_told("d", crops__local_size=24, seed=1).run]
    assert len(grouped(Teller(crops=False, images=0).tell(runs))) == 2


def test_seeds_on_the_same_images_are_one_group_wherever_these_lay(make_told):
    def evaluated(name, source, train, **changes):
        told = make_told(name, data=source, **changes)
        counts = {"train_images": 3, "test_images": 0}
        told.run.write_evaluation("knn", {"source": source, "data_fingerprint": {"train": train}, **counts})
        return told

    here, there = evaluated("a", "set.npz", "1234"), evaluated("b", "elsewhere/set.npz", "1234", seed=1)
    others = evaluated("c", "set.npz", "5678", seed=2)
    assert [str(group) for group in grouped([here, there, others])] == ["A: a, b", "B: c"]
    alone = [make_told("d", data="set.npz", seed=3), make_told("e", data="elsewhere/set.npz", seed=4)]
    assert [str(group) for group in grouped([here, *alone])] == ["A: a, d", "B: e"]
    assert [str(group) for group in grouped([here, there, *alone])] == ["A: a, b, d, e"]
    assert [str(group) for group in grouped([here, others, *alone])] == ["A: a", "B: c", "C: d", "D: e"]


def test_a_run_tells_itself_which_images_it_learned_from(make_told):
    runs = [make_told(name, data=f"{name}.npz", seed=seed) for seed, name in enumerate("abc")]
    for told, train in zip(runs, ("1234", "1234", "5678"), strict=True):
        noted = {"train_images": 3, "test_images": 0, "fingerprint": {"train": train}}
        told.run.images_file.write_text(json.dumps(noted))
    assert [str(group) for group in grouped(runs)] == ["A: a, b", "B: c"]


def test_the_reasons_of_an_automatic_recipe_tell_no_runs_apart(make_told):
    runs = [make_told("a", chosen=("for one machine",)), make_told("b", chosen=("for another",), seed=1)]
    assert len(grouped(runs)) == 1
    assert "chosen" not in differences(runs)


def test_the_interval_is_students():
    low, high = Spread((1.0, 2.0, 3.0)).interval()
    assert (low, high) == pytest.approx((2 - 2.4841, 2 + 2.4841), abs=1e-3)
    assert Spread((1.0,)).interval() is None
    wide, narrow = Spread((1.0, 2.0)).interval(), Spread((1.0, 2.0) * 10).interval()
    assert wide[1] - wide[0] > 10 * (narrow[1] - narrow[0])


def test_better_is_said_only_where_intervals_lie_apart():
    apart = {"A": Spread((50.0, 50.1, 49.9)), "B": Spread((60.0, 60.1, 59.9))}
    assert verdict(ACCURACY, apart) == "B is better"
    assert verdict(Figure("seconds", 1.0, "lower"), apart) == "A is better"
    close = {"A": Spread((50.0, 60.0)), "B": Spread((52.0, 61.0))}
    assert verdict(ACCURACY, close) == "B is higher, but its interval overlaps that of A"
    equal = {"A": Spread((50.0, 50.0)), "B": Spread((60.0, 60.1))}
    assert verdict(ACCURACY, equal).startswith("B is higher; seeds of A agree in every digit")
    single = {"A": Spread((50.0,)), "B": Spread((60.0, 60.1))}
    assert verdict(ACCURACY, single) == "B is higher; by one run of A this may be chance"
    few = {"A": Spread((50.0,)), "B": Spread((60.0,)), "C": Spread((55.0,))}
    assert verdict(ACCURACY, few) == "B is higher; by one run each this may be chance"
    few["D"] = Spread((1.0, 2.0))
    assert verdict(ACCURACY, few) == "B is higher; by one run of A, B and C this may be chance"
    assert verdict(ACCURACY, {"A": Spread((50.0,)), "B": Spread((50.0,))}) == "equal"


def test_of_three_groups_the_best_must_lie_apart_from_both():
    spreads = {"A": Spread((50.0, 50.1)), "B": Spread((60.0, 60.1)), "C": Spread((59.9, 60.3))}
    assert verdict(ACCURACY, spreads) == "C is higher, but its interval overlaps that of B"


def test_seconds_of_runs_have_no_good_direction_since_their_epochs_may_differ(make_told):
    runs = [make_told("a"), make_told("b", epochs=7)]
    for seconds, run in enumerate(runs, start=1):
        run.run.provenance_file.write_text(json.dumps({"seconds": seconds, "hardware": "toy"}))
    told = {kind.what: verdict(kind, spreads) for kind, spreads in comparison(grouped(runs))}
    assert told["seconds, toy"] == ""


@pytest.mark.parametrize("what", ["loss, last", "local-to-local loss, last", "omega, last"])
def test_losses_and_omega_have_no_good_direction(what, make_told):
    groups = grouped([make_told("a", loss=1.0), make_told("b", loss=9.0, optimiser__lr=0.5)])
    told = {kind.what: verdict(kind, spreads) for kind, spreads in comparison(groups)}
    assert told[what] == ""
    assert next(iter(told)).startswith("kNN")
    judged, _, rest = better([run for group in groups for run in group.runs]).partition(
        "neither better high nor better low"
    )
    assert f">{what}<" not in judged
    assert f">{what}<" in rest
    assert "no good direction" not in judged + rest


def test_the_page_shows_means_with_their_spread_in_one_format(make_told):
    runs = [make_told(f"a{i}", knn, seed=i) for i, knn in enumerate((56.3, 57.0, 58.0))]
    runs.append(make_told("b", 56.3, optimiser__lr=0.5))
    text = better(runs)
    assert "57.10 ± 0.85 (n=3)" in text
    assert "56.30 (n=1)" in text
    assert "A: a0, a1, a2" in text
    seeds = better(runs[:3])
    assert "differ in nothing that changes training but their seed" in seeds
    assert "57.10 ± 0.85 (n=3)" in seeds
    assert better(runs[:1]) == ""


def test_copies_of_a_seed_count_once_and_are_named(make_told):
    copies = [make_told("a", 50.0), make_told("copy", 50.1), make_told("b", 60.0, optimiser__lr=0.5)]
    copies.append(make_told("<again>", 60.1, optimiser__lr=0.5))
    text = better(copies)
    assert "n=2" not in text
    assert "±" not in text.replace("Mean ±", "")
    assert ">B is better<" not in text
    assert "left out here (2): copy, &lt;again&gt;." in text
    alone = better(copies[:2])
    assert "but their seed" not in alone
    assert "left out here (1): copy." in alone
    assert "left out" not in better([copies[0], copies[2]])


def test_of_two_copies_the_finished_one_counts(make_told):
    begun, finished = make_told("begun", finished=False), make_told("finished")
    (group,) = grouped([begun, finished, make_told("other", seed=1)])
    assert [run.name for run in group.runs] == ["finished", "other"]
    assert [run.name for run in group.repeated] == ["begun"]


@pytest.mark.parametrize(
    "setting",
    [
        {"size": 64},
        {"mean": [0.4, 0.5, 0.5]},
        {"std": [0.2, 0.3, 0.3]},
        {"test_images": 99},
        {"seed_of_probe": 1},
        {"data_fingerprint": {"train": "2"}},
    ],
    ids=lambda setting: next(iter(setting)),
)
def test_an_evaluation_with_other_settings_is_another_figure(setting, make_told):
    runs = [make_told("a"), make_told("b", optimiser__lr=0.5)]
    usual = {"size": 32, "mean": [0.5] * 3, "std": [0.3] * 3, "test_images": 100, "seed_of_probe": 0}
    usual |= {"protocol": "p", "data": "own", "data_fingerprint": {"train": "1"}}
    for i, (run, top1) in enumerate([(runs[0], 50.0), (runs[1], 60.0)]):
        usual |= {"evaluation": "knn"}
        write(run, f"knn-own-0000000{i}", **usual, results=[{"k": 20, "tau": 0.07, "top1": top1}])
        write(run, f"knn-own-1000000{i}", **usual, results=[{"k": 20, "tau": 0.07, "top1": top1}])  # the same again
        write(run, f"knn-own-2000000{i}", **usual | setting, results=[{"k": 20, "tau": 0.07, "top1": top1 + 1}])
        usual |= {"evaluation": "linear-sgd"}
        write(run, f"linear-sgd-own-0000000{i}", **usual, results={"top-1": top1})
        write(run, f"linear-sgd-own-2000000{i}", **usual | setting, results={"top-1": top1 + 1})
    found = [(kind.what, spreads) for kind, spreads in comparison(grouped(runs)) if " own" in kind.what]
    assert len(found) == 4
    assert all(len(spread.values) == 1 for _, spreads in found for spread in spreads.values())
    assert len(set(labels(kind for kind, _ in comparison(grouped(runs)) if " own" in kind.what).values())) == 4


SWEEP = {"data": "own", "rates": [0.1, 0.3, 1.0], "test_images": 500}


def of_two_seeds(make_told) -> list[Told]:
    """Two runs of MoCo and two others, by their seeds."""
    return [make_told(f"{name}{seed}", seed=seed, **how) for name, how in PAIR.items() for seed in (0, 1)]


PAIR = {"moco": {}, "logo": {"optimiser__lr": 0.5}}


def test_seeds_that_chose_different_rates_are_one_figure(make_told):
    runs = of_two_seeds(make_told)
    for run, lr, top1 in zip(runs, (1.0, 0.3, 0.3, 0.1), (34.6, 34.8, 34.6, 36.4), strict=True):
        write(run, "linear-sgd-own-00000000", results={"top-1": top1}, lr=lr, **SWEEP)
    text = better(runs)
    assert "34.70 ± 0.14 (n=2)" in text
    assert "35.50 ± 1.27 (n=2)" in text


def test_a_rate_that_was_given_is_a_setting(make_told):
    runs = of_two_seeds(make_told)
    for run, lr in zip(runs, (10.0, 30.0, 10.0, 30.0), strict=True):
        write(run, "linear-sgd-own-00000000", results={"top-1": 40 + lr / 10}, lr=lr, **SWEEP | {"rates": [lr]})
        write(run, "finetune-own-00000000", results=[{"top1": 60 + lr / 10}], lr=lr, data="own")
    text = better(runs)
    assert text.count("41.00 (n=1 of 2)") == text.count("43.00 (n=1 of 2)") == 2
    assert text.count("61.00 (n=1 of 2)") == text.count("63.00 (n=1 of 2)") == 2


def test_detectors_with_the_seeds_of_their_runs_are_one_figure_and_with_other_seeds_or_recipes_another(make_told):
    runs = of_two_seeds(make_told)
    for run, seed in zip(runs, (0, 1, 0, 1), strict=True):
        for i, changed in enumerate(({}, {"lr": 0.1 * (1 + seed)}, {"seed": 7})):
            rows = [{"of": "box", "measure": "COCO", "AP": 40.0 + seed + 10 * i}]
            recipe = {"lr": 0.3, "seed": seed} | changed
            write(run, f"detect-own-{i}", data="own", seed=seed, results=rows, detection_recipe=recipe)
    text = better(runs)
    assert text.count("40.50 ± 0.71 (n=2)") == 2
    assert text.count("50.00 (n=1 of 2)") == text.count("51.00 (n=1 of 2)") == 2
    assert text.count("60.50 ± 0.71 (n=2)") == 2


def test_runs_that_lack_a_figure_are_counted(make_told):
    runs = of_two_seeds(make_told)
    for run in (runs[0], runs[2], runs[3]):
        write(run, "linear-sgd-own-00000000", data="own", results={"top-1": 50.0})
    assert "50.00 (n=1 of 2)" in better(runs)
    assert "50.00 ± 0.00 (n=2)" in better(runs)
    assert "50.00 (n=1 of 2)" in better(runs[:2])


def test_last_values_of_a_run_that_goes_on_are_not_compared_and_it_is_named(make_told):
    runs = [make_told("a", 50.0), make_told("b", 90.0, known_to=0, finished=False, optimiser__lr=0.5)]
    runs.append(make_told("cut", 91.0, known_to=3, optimiser__lr=0.25))
    text = better(runs)
    assert "90.00" not in text
    assert "91.00" not in text
    assert "b (known to epoch 0 of 20), cut (known to epoch 3 of 20)" in text
    assert [kind.what for kind, _ in comparison(grouped(runs))] == ["images per second, median, unknown hardware"]
    assert "is not known" not in better([runs[0], make_told("c", optimiser__lr=0.5)])


def test_losses_and_speeds_of_other_data_or_batches_are_other_figures(make_told):
    runs = [make_told("a"), make_told("b", batch_size=16), make_told("c", data="elsewhere")]
    assert [kind.what[:3] for kind, _ in comparison(grouped(runs))] == ["kNN"]
    runs += [make_told("d", batch_size=16, optimiser__lr=0.5)]
    assert "loss, last" in {kind.what for kind, _ in comparison(grouped(runs))}


def test_a_label_tells_only_the_settings_that_tell_figures_apart():
    def measured(**settings):
        return Figure("linear, on own", 50.0, "higher", how=tuple(settings.items()))

    one, other, plain = measured(pixels="32", mean="0.5"), measured(pixels="64", mean="0.5"), measured(mean="0.5")
    assert list(labels([one, one]).values()) == ["linear, on own"]
    assert list(labels([one, other, plain]).values()) == [
        "linear, on own, pixels 32",
        "linear, on own, pixels 64",
        "linear, on own",
    ]
    assert list(labels([measured(**{"unfinished at": "epoch 2"})]).values()) == [
        "linear, on own, unfinished at epoch 2"
    ]


def test_runs_without_a_common_figure_are_not_compared(make_told):
    one, other = make_told("a"), make_told("b", optimiser__lr=0.5)
    other.run.metrics_file.unlink()
    assert "no figure in common" in better([one, other])


def write(run, name, **record):
    run.run.write_evaluation(name, record)


def test_an_evaluation_is_what_it_says_whatever_its_file_is_called(make_told):
    told = make_told("mine")
    write(told, "linear-copy", evaluation="linear-lbfgs", data="my set", results={"top-1": 71.0})
    write(told, "knn-linear-0123abcd", evaluation="transfer", data="linear", metric="linear top-1", value=12.0)
    write(told, "best", evaluation="knn", data="own", results=[{"k": 20, "tau": 0.1, "top1": 60.0}])
    names = {figure.what: figure.value for figure in figures(told)}
    assert names["linear-lbfgs, on my set"] == 71.0
    assert names["transfer to linear, linear top-1"] == 12.0
    assert names["kNN, k=20, tau=0.1, on own"] == 60.0


def test_transfer_stands_above_table_5(make_told):
    told = make_told("mine")
    write(told, "transfer-pets-1", protocol="p", data="pets", metric="pets mean per class", value=70.5)
    write(told, "transfer-own-1", protocol="p", data="own", metric="my/own top-1", value=12.0)
    text = transfer_table([told], PAPERS)
    assert "Pets mean per class" in text
    assert "70.50" in text
    assert "12.00" in text
    assert "paper, Table 5: MoCo-LoGo<" in text
    assert "76.17" in text
    assert "86.09" not in text  # CIFAR-10 was not measured
    assert transfer_table([make_told("bare")], PAPERS) == ""


def test_only_sets_of_our_own_have_no_paper_rows(make_told):
    told = make_told("mine")
    write(told, "transfer-own-1", protocol="p", data="own", metric="my/own top-1", value=12.0)
    assert "paper" not in transfer_table([told], PAPERS)


def test_detection_stands_above_table_6_by_the_same_measure(make_told):
    told = make_told("mine")
    rows = [
        {
            "of": "box",
            "measure": "VOC07",
            "overall": {"AP": 50.0, "AP50": 77.7, "AP75": None},
            "per_class": {"cat": 1.0},
        },
        {"of": "box", "measure": "COCO", "overall": {"AP": 49.0, "AP50": 76.0, "AP75": 50.0}, "per_class": {}},
    ]
    write(told, "detect-voc-1", protocol="p", data="voc07+12", official=True, results=rows)
    text = detection_table([told], PAPERS)
    assert "77.70" in text
    assert text.count("54.91") == 1  # MoCo-LoGo on VOC, once
    assert "40.23" not in text  # COCO was not measured
    write(told, "detect-own-1", protocol="p", data="own", official=False, results=rows)
    assert detection_table([Told(told.run, "mine")], PAPERS).count("paper, Table 6") == 3
    names = [figure.what for figure in figures(Told(told.run, "mine"))]
    assert "detect voc07+12, box AP50 (VOC07)" in names


def test_own_pictures_are_not_set_beside_the_papers(make_told):
    told = make_told("mine")
    rows = [{"of": "box", "measure": "COCO", "overall": {"AP": 49.0}, "per_class": {}}]
    write(told, "detect-own-1", protocol="p", data="coco", official=False, results=rows)
    assert "paper" not in detection_table([told], PAPERS)
