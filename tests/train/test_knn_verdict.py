"""Is it told whether training has helped, and is chance told from it?"""

import pytest

from logo_ssl.train.knn_verdict import ADVICE, knn_verdict


def told(before, after, n: int | None = 100, **more):
    return knn_verdict([{"knn": before, "epochs_done": 0}, {"knn": after, "epochs_done": 6, "knn_images": n, **more}])


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (30.0, 30.0, f"no difference shows. {ADVICE}"),
        (30.0, 34.0, f"no difference shows. {ADVICE}"),
        (42.0, 33.0, f"no difference shows. {ADVICE}"),
        (28.0, 41.0, f"no difference shows. {ADVICE}"),  # 2.7 errors of one of them, 1.95 of the difference
        (30.0, 45.0, "training has helped, by more than chance."),
        (45.0, 30.0, "training has made it worse, by more than chance."),  # an alarm told the cure
    ],
)
def test_every_run_with_labels_ends_with_both_figures_and_whether_they_differ_by_more_than_chance(
    before, after, verdict
):
    sentence = told(before, after)
    assert sentence is not None
    assert sentence.startswith(
        f"kNN {after:.1f} % (epoch 6), untrained {before:.1f} %, on 100 images (standard error of "
    )
    assert sentence.endswith(f"): {verdict}")


def test_the_error_is_that_of_a_difference_on_so_many_images():
    assert "(standard error of the difference 6.6): no difference shows" in (told(30.0, 34.0) or "")
    assert "(standard error of the difference 0.7): training has helped" in (told(30.0, 34.0, 10_000) or "")
    assert (told(34.0, 30.0, 10_000) or "").endswith(f"has made it worse, by more than chance. {ADVICE}")
    assert "nor whether this is chance" in (told(30.0, 34.0, None) or "")


def test_what_was_not_measured_before_and_after_on_the_same_images_is_not_judged():
    assert told(42.0, 41.0, knn_of="others") is None
    assert knn_verdict([]) is None
    assert knn_verdict([{"knn": 42.0, "epochs_done": 0}]) is None
    assert knn_verdict([{"knn": 42.0, "epochs_done": 3}]) is None
    assert told(42.0, float("nan")) is told(42.0, "much") is None
