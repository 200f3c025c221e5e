"""The figures that the paper reports: of Tables 1, 2, 3, 4 and 7 by recipe, and Tables 5 and 6."""

from .config import PaperRow

PAPER: dict[str, list[PaperRow]] = {
    "cifar10-moco": [PaperRow(1, "MoCo", 79.58, 80.37)],
    "cifar10-moco-multicrop": [PaperRow(7, "MoCo-LoGo w/o L2L, CIFAR10", 82.31)],
    "cifar10-moco-logo": [PaperRow(1, "MoCo+LoGo", 84.44, 85.59), PaperRow(7, "MoCo-LoGo full, CIFAR10", 84.44)],
    "cifar10-simsiam": [PaperRow(1, "SimSiam", 80.48, 83.02)],
    "cifar10-simsiam-multicrop": [PaperRow(7, "SimSiam-LoGo w/o L2L, CIFAR10", 83.33)],
    "cifar10-simsiam-logo": [
        PaperRow(1, "SimSiam+LoGo", 87.67, 88.02),
        PaperRow(7, "SimSiam-LoGo full, CIFAR10", 87.67),
    ],
    "stl10-moco": [PaperRow(2, "MoCo", 72.13, 79.07)],
    "stl10-moco-multicrop": [PaperRow(7, "MoCo-LoGo w/o L2L, STL10", 74.26)],
    "stl10-moco-logo": [PaperRow(2, "MoCo+LoGo", 76.79, 80.73), PaperRow(7, "MoCo-LoGo full, STL10", 76.79)],
    "stl10-simsiam": [PaperRow(2, "SimSiam", 60.8, 71.66)],
    "stl10-simsiam-multicrop": [PaperRow(7, "SimSiam-LoGo w/o L2L, STL10", 60.21)],
    "stl10-simsiam-logo": [
        PaperRow(2, "SimSiam+LoGo", 76.96, 80.61),
        PaperRow(7, "SimSiam-LoGo full, STL10", 76.96),
    ],
    "imagenet100-moco": [PaperRow(3, "MoCo", 64.18, 68.48), PaperRow(4, "MoCo, ResNet-34", None, 68.48)],
    "imagenet100-moco-multicrop": [PaperRow(7, "MoCo-LoGo w/o L2L, IN100", 69.00)],
    "imagenet100-moco-logo": [
        PaperRow(3, "MoCo+LoGo", 76.82, 79.32),
        PaperRow(4, "MoCo-LoGo, ResNet-34", None, 79.32),
        PaperRow(7, "MoCo-LoGo full, IN100", 76.82),
    ],
    "imagenet100-simsiam": [PaperRow(3, "SimSiam", 71.21, 75.48)],
    "imagenet100-simsiam-multicrop": [PaperRow(7, "SimSiam-LoGo w/o L2L, IN100", 76.64)],
    "imagenet100-simsiam-logo": [
        PaperRow(3, "SimSiam+LoGo", 78.48, 80.94),
        PaperRow(7, "SimSiam-LoGo full, IN100", 78.48),
    ],
    "imagenet100-resnet50-moco": [PaperRow(4, "MoCo, ResNet-50", None, 74.84)],
    "imagenet100-resnet50-moco-logo": [PaperRow(4, "MoCo-LoGo, ResNet-50", None, 85.14)],
}

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
