"""What the tests of pages share: a recipe that takes a second."""

from logo_ssl.augment import CropPlan
from logo_ssl.frameworks import MoCoConfig
from logo_ssl.recipes import find_recipe
from logo_ssl.strategies import LoGoConfig

SMALL = find_recipe("tiny").changed(
    epochs=2,
    batch_size=16,
    framework=MoCoConfig(dim=8, queue=32, splits=2),
    strategy=LoGoConfig(depth=2, width=16),
    crops=CropPlan(global_size=16, local_size=8),
    knn_every=1,
    log_every=1,
    loggers=(),
    device="cpu",
)
