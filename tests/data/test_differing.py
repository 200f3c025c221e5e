"""Where images are others than before, in words."""

import json

import pytest
import torch

from logo_ssl.data import ImageSet
from logo_ssl.data.differing import FEW as FEW_ENOUGH
from logo_ssl.data.differing import PLACES, difference, names_noted
from logo_ssl.data.folders import split_of


def photos(names):
    return split_of([f"/data/{name}" for name in names], [None] * len(names), ())


def told(then, now) -> str:
    noted = json.loads(json.dumps(names_noted(ImageSet("photos", photos(then)))))["train"]
    return difference(len(then), noted, photos(now).images)


FEW = [f"{folder}/{i}.jpg" for folder in "ab" for i in range(5)]
MANY = [f"{i:05}.jpg" for i in range(10_000)]
CLASSES = [f"{folder}/{i:05}.jpg" for folder in "abc" for i in range(1_000)]


@pytest.mark.parametrize(
    ("now", "sentence"),
    [
        (FEW[:3] + FEW[4:], "10 images then, 9 now: a/3.jpg is gone"),
        (FEW[1:-1], "10 images then, 8 now: a/0.jpg and b/4.jpg are gone"),
        ([*FEW, "b/new.jpg"], "10 images then, 11 now: b/new.jpg is new"),
        (["a/.jpg", *FEW], "10 images then, 11 now: a/.jpg is new"),
        ([*FEW[:6], "b/1-new.jpg", *FEW[7:]], "10 images: b/1-new.jpg is new, b/1.jpg is gone"),
        ([*FEW[:6], "b/1.png", *FEW[7:]], "10 images: b/1.png is new, b/1.jpg is gone"),
        (FEW[::-1], "10 images of the same names, with other contents or in another order"),
        (
            [f"c/x/{i}.png" for i in range(4)],
            "10 images then, 4 now: others everywhere, the first a/0.jpg then, 0.png now",
        ),
        ([], "10 images then, 0 now: others everywhere, the first a/0.jpg then, none now"),
        (FEW[::2], "10 images then, 5 now: a/1.jpg, a/3.jpg, b/0.jpg and 2 others are gone"),
    ],
)
def test_a_few_images_are_named(now, sentence):
    assert told(FEW, now) == sentence


def test_up_to_a_thousand_images_are_named_however_many_places_there_are():
    then = MANY[:FEW_ENOUGH]
    new = [f"run/{i}.png" for i in range(4)]
    now = f"1,024 images then, {FEW_ENOUGH - 1 + 4:,} now"
    assert told(then, [*then[1:], *new]) == (
        f"{now}: run/0.png, run/1.png, run/2.png and 1 other are new, 00000.jpg is gone"
    )


def test_many_images_are_noted_in_a_few_places_which_tell_where():
    noted = names_noted(ImageSet("photos", photos(MANY)))["train"]
    assert len(noted) == PLACES
    assert sum(place.n for place in noted) == len(MANY)
    assert len(json.dumps(noted)) < 4_000
    now = [name for name in MANY if name not in ("00500.jpg", "00501.jpg")]
    assert told(MANY, now) == "10,000 images then, 9,998 now: 158 then and 156 now from 00476.jpg up to 00634.jpg"


def test_what_comes_before_all_names_is_in_a_place_without_a_beginning():
    now = [*(f"0/{i}.jpg" for i in range(5)), *CLASSES]
    assert told(CLASSES, now) == "3,000 images then, 3,005 now: 47 then and 52 now up to a/00047.jpg"


def test_a_renamed_class_is_told_as_what_is_gone_and_what_came():
    now = [name.replace("b/", "d/") for name in CLASSES]
    assert told(CLASSES, now) == (
        "3,000 images: 1,047 then and 47 now from a/00999.jpg up to c/00046.jpg and 1 then and 1,001 now "
        "from c/00999.jpg on"
    )


def test_the_same_files_in_other_folders_are_told_as_such():
    alike = " (files are called as before, but lie in other folders)"
    beside = [f"a/{name}" for name in MANY] + ["b/new.jpg"]
    sentence = "10,000 images then, 10,001 now: others everywhere, the first 00000.jpg then, a/00000.jpg now"
    assert told(MANY, beside) == sentence + alike
    assert told(beside, MANY).startswith("10,001 images then, 10,000 now: others everywhere, the first a/00000.jpg")
    assert told(MANY, [f"a/x{name}" for name in MANY] + ["b/new.jpg"]) == sentence.replace("a/", "a/x")
    assert alike not in told(FEW, [*FEW, *(f"{name}.png" for name in FEW)])  # beside the others


def test_places_do_not_depend_on_the_order_of_a_list():
    assert told(MANY[::-1], [*MANY[:4000], *MANY[4001:]]).startswith("10,000 images then, 9,999 now: 159 then and 158")


def test_names_of_any_bytes_are_noted():
    assert told(["cl\udce9.jpg", "x.jpg"], ["x.jpg"]) == "2 images then, 1 now: cl\\xe9.jpg is gone"


def test_arrays_have_no_names_and_are_other_images_than_files():
    pixels = torch.zeros(4, 3, 8, 8, dtype=torch.uint8)
    assert difference(4, [], pixels) == "4 images of other pixels or in another order"
    assert difference(5, [], pixels) == "5 images then, 4 now"
    assert difference(4, None, pixels) == "4 images of other names, order or contents"  # an older run
    assert difference(4, None, photos(FEW).images) == "4 images then, 10 now"
    assert difference(10, [], photos(FEW).images) == "10 images; an array then, files now, which count as others"
    assert difference(4, [["a.jpg", 4, 0]], pixels) == "4 images; files then, an array now, which count as others"
