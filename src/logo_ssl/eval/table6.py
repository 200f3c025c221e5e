"""What does the paper's Table 6 report? Detection on VOC 07+12 and COCO, and masks on COCO."""

COLUMNS = ("AP50", "AP", "AP75")
MEASURES = {"voc07+12": "VOC07", "coco": "COCO"}
"""By which measure each set is told."""
PAPER: dict[
    tuple[str, str], dict[str, tuple[float, float, float]]
] = {  # (data, what is found), in the order of COLUMNS
    ("voc07+12", "box"): {
        "Super(IN-1k)": (81.30, 53.50, 58.80),
        "MoCo": (78.65, 52.43, 57.22),
        "MoCo-LoGo": (81.12, 54.91, 61.06),
    },
    ("coco", "box"): {
        "Super(IN-1k)": (59.90, 40.00, 43.10),
        "MoCo": (59.11, 39.38, 42.55),
        "MoCo-LoGo": (59.74, 40.23, 43.48),
    },
    ("coco", "mask"): {
        "Super(IN-1k)": (56.50, 34.70, 36.90),
        "MoCo": (55.83, 34.52, 36.84),
        "MoCo-LoGo": (56.55, 35.04, 37.42),
    },
}
