"""The paper's Tables 5 and 6: transfer from ImageNet-100, detection and masks."""

TRANSFER_SETS = {  # Table 5, and the figure that the literature reports for each set
    "cifar10": "top-1",
    "cifar100": "top-1",
    "food101": "top-1",
    "mit67": "top-1",
    "pets": "mean per class",
    "flowers": "mean per class",
    "caltech101": "mean per class",
    "cars": "top-1",
    "aircraft": "mean per class",
    "dtd": "top-1",
}
TRANSFER = {  # in the order of TRANSFER_SETS
    "Super(IN-100)": (86.16, 62.7, 53.89, 52.91, 73.50, 76.09, 77.53, 30.61, 36.78, 62.07),
    "MoCo": (83.71, 60.59, 58.21, 57.54, 64.30, 85.56, 74.12, 32.63, 46.23, 60.64),
    "MoCo+Aug*": (85.26, 63.90, 60.78, 63.36, 73.46, 85.70, 78.93, 37.35, 39.47, 66.22),
    "MoCo-LoGo w/o L2L": (85.19, 61.47, 63.66, 65.45, 71.74, 90.2, 77.91, 37.22, 48.21, 65.74),
    "MoCo-LoGo": (86.09, 63.43, 65.67, 67.54, 76.17, 92.13, 82.09, 40.77, 50.07, 67.87),
}
DETECTION_COLUMNS = ("AP50", "AP", "AP75")
DETECTION_MEASURES = {"voc07+12": "VOC07", "coco": "COCO"}
"""By which measure Table 6 reports each data set."""
DETECTION = {  # (data, what is found), in the order of DETECTION_COLUMNS
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
