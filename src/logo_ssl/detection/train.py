"""Training of a detector: images in batches, SGD with steps through Lightning, exact resume, new batch-norm statistics.

Order, flips and scales follow from (seed, place) alone, so that there is no state to lose.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, cast

import lightning as L
import numpy as np
import torch
from jaxtyping import Bool, Int32, UInt8
from lightning.fabric.utilities import move_data_to_device
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ..data.loader import Waiting, waited_for
from ..data.workers import fitting_workers, start, stop, worker_options
from ..errors import UserError
from ..models.batch_norm import BatchNorm, set_synchronised
from ..ranges import Allowed, BelowOne, Count, NotNegative, Positive, Seed, at_least, check_ranges
from ..run import CHECKPOINT, Run
from ..system.distributed import rank
from ..system.hardware import best_device
from ..system.launch import is_first
from ..system.randomness import stream
from ..system.signals import StopSignals
from ..system.terminal import lasting
from ..train.checkpoint import UNFINISHED, Checkpoints, Writer, clear, interruptible
from ..train.compile import first_line
from ..train.loggers import Sessions
from ..train.monitors import Diverged
from ..train.trainer import DDP, check_processes, explain_end, processes_for, quiet, take_over_signals
from ..weights import load, newest_whole
from .data import VOC, AnnotatedImage, AnnotatedImages
from .model import Detector, DetectorConfig, Target

Progress = Callable[[str, int, int], None]
Say = Callable[[str], None]
BYTES, WITH_MASKS = 3 * 640 * 480, 11 * 640 * 480
"""Of an image as it is common in these sets, and with the masks of eight objects."""
LOOK_EVERY = 50
"""Iterations between looks at the loss: each look waits for the device."""
LINES = 10
"""Printed lines about the loss in a training."""
KEPT = re.compile(rf"{CHECKPOINT.pattern}|{re.escape(UNFINISHED)}-\d+|\.?(sessions|sittings)\.json(\.\w+)?|\.lock")
"""How the files of a training's folder are called."""
CURE = "the same command goes on"


# -- MoCo's protocol for VOC 07+12 and COCO, number by number

Steps = Annotated[tuple[int, ...], Allowed(lambda steps: [0, *steps] == sorted([0, *steps]), "0 or more, in order")]


@dataclass(frozen=True)
class DetectionRecipe:
    """What is trained for how long, and by which numbers."""

    detector: DetectorConfig = field(default_factory=DetectorConfig)
    iterations: Count = 24_000
    """Batches to learn from; `steps` and `warm-up` are scaled with it unless given."""
    batch_size: Count = 16
    """Images in a batch; `lr` is scaled with it unless given, `iterations` stay."""
    lr: Positive = 0.02
    """Learning rate after the warm-up, for this batch size."""
    steps: Steps = (18_000, 22_000)
    """Iterations at which the learning rate falls to a tenth."""
    warm_up: Annotated[int, at_least(0)] = 100
    """Iterations in which the learning rate rises from a thousandth."""
    momentum: BelowOne = 0.9
    """Momentum of SGD."""
    weight_decay: NotNegative = 1e-4
    """Weight decay, except for batch norms."""
    flip: bool = True
    """Mirror half of the training images."""
    learn_from_empty: bool = False
    """Also train on images without objects."""
    norm_batches: Annotated[int, at_least(0)] = 200
    """Training batches for new batch-norm statistics before the test; 0: keep the running ones."""
    seed: Seed = 0
    """Decides the start of the head, order, scales and flips."""

    def __post_init__(self) -> None:
        check_ranges(self)


VOC_RECIPE = DetectionRecipe()
COCO_RECIPE = DetectionRecipe(
    DetectorConfig(short_sides=tuple(range(640, 801, 32))), iterations=180_000, steps=(120_000, 160_000), warm_up=1_000
)
SMALL = DetectionRecipe(
    DetectorConfig(
        short_sides=(224, 256, 288, 320), test_side=320, longest=533, anchors=(16, 32, 64, 128, 256),
        candidates=(2_000, 1_000), proposals=(300, 200), regions=32,
    ),
    iterations=600, batch_size=4, lr=0.005, steps=(450, 550), warm_up=100, norm_batches=50,
)  # fmt: skip
"""What two cores learn in about a quarter of an hour."""
EPOCHS = 23.2
"""Passes over VOC 07+12 (16,551 images) in its 24,000 iterations."""
FEWEST_ITERATIONS = 300
"""Of small sets: a head that starts from nothing needs some."""
Schedule = Literal["auto", "protocol", "small"]


def scaled(recipe: DetectionRecipe, iterations: int) -> DetectionRecipe:
    """The recipe for so many iterations: steps move along, and the warm-up is a fifth at most."""
    share = iterations / recipe.iterations
    steps = tuple(round(step * share) for step in recipe.steps)
    return replace(recipe, iterations=iterations, steps=steps, warm_up=min(recipe.warm_up, iterations // 5))


def recipe_for(name: str, n_images: int, official: bool, small: bool = False) -> DetectionRecipe:
    """The protocol of a set of Table 6; for any other VOC's, or a small one: as many passes, in batches it can fill."""
    if official and not small:
        return VOC_RECIPE if name == VOC else COCO_RECIPE
    most = SMALL if small else VOC_RECIPE
    batch_size = min(most.batch_size, n_images)
    recipe = replace(most, batch_size=batch_size, lr=most.lr * batch_size / most.batch_size)
    iterations = round(EPOCHS * n_images / recipe.batch_size)
    return scaled(recipe, min(max(iterations, FEWEST_ITERATIONS), most.iterations))


def learning_rate(recipe: DetectionRecipe, iteration: int) -> float:
    """The learning rate of an iteration, counted from 0."""
    rate = recipe.lr * 0.1 ** sum(iteration >= step for step in recipe.steps)
    risen = min(iteration / recipe.warm_up, 1.0) if recipe.warm_up else 1.0
    return rate * (0.001 * (1 - risen) + risen)


# -- Images


class Sample(NamedTuple):
    """An image, and what torchvision's detectors learn from it."""

    pixels: UInt8[Tensor, "3 H W"]
    target: Target


class TrainingImages:
    """The images in random order, pass after pass, in batches of landscape or of portrait, mirrored by chance."""

    def __init__(self, data: AnnotatedImages, recipe: DetectionRecipe, masks: bool) -> None:
        kept = [p for p in data.images if recipe.learn_from_empty or (~p.crowd).any()]
        if not kept:
            raise UserError("No training image has an object other than a crowd.")
        self.images, self.recipe, self.masks = kept, recipe, masks
        landscape = np.array([image.width > image.height for image in kept])
        n_batches = max(recipe.iterations, recipe.norm_batches)
        self.rows = batches_by_orientation(landscape, recipe.batch_size, n_batches, recipe.seed)

    def __len__(self) -> int:
        return self.rows.size

    def __getitem__(self, place: int) -> Sample:
        sample = make_sample(self.images[self.rows.flat[place]], self.masks)
        chance = torch.rand(1, generator=stream(self.recipe.seed, "flip", place)).item()
        return flipped(sample) if self.recipe.flip and chance < 0.5 else sample


def batches_by_orientation(
    landscape: Bool[np.ndarray, " images"], batch_size: int, n_batches: int, seed: int
) -> Int32[np.ndarray, "n_batches batch_size"]:
    """Rows of the images of each batch.

    Pass after pass in random order, each joins the next batch of landscape or of portrait images; a batch goes when it
    is full.
    """
    waiting = 2 * (batch_size - 1)  # at most, in batches that are not yet full
    n_passes = -(-(n_batches * batch_size + waiting) // len(landscape))
    order = np.concatenate(
        [torch.randperm(len(landscape), generator=stream(seed, "order", n)).int().numpy() for n in range(n_passes)]
    )
    full = []
    for alike in (landscape[order], ~landscape[order]):
        seats = np.flatnonzero(alike)
        full.append(seats[: len(seats) // batch_size * batch_size].reshape(-1, batch_size))
    batches = np.concatenate(full)
    return order[batches[np.argsort(batches[:, -1])][:n_batches]]


def pixels_of(image: AnnotatedImage) -> UInt8[Tensor, "3 H W"]:
    """An image's pixels; bytes travel four times as fast as floats."""
    return torch.from_numpy(image.pixels()).permute(2, 0, 1)


def make_sample(image: AnnotatedImage, masks: bool) -> Sample:
    """An image with all objects but crowds."""
    seen, rows = pixels_of(image), np.flatnonzero(~image.crowd)  # which are of the size that masks must have
    target = {"boxes": torch.from_numpy(image.boxes[rows]), "labels": torch.from_numpy(image.labels[rows])}
    if masks:
        pixels = np.array([image.mask(int(row)) for row in rows], np.uint8)
        target["masks"] = torch.from_numpy(pixels.reshape(-1, image.height, image.width))
    return Sample(seen, target)


def flipped(sample: Sample) -> Sample:
    """Left becomes right, of pixels, boxes and masks."""
    left, top, right, bottom = sample.target["boxes"].unbind(1)
    width = sample.pixels.shape[2]
    target = sample.target | {"boxes": torch.stack((width - right, top, width - left, bottom), 1)}
    if "masks" in target:
        target["masks"] = target["masks"].flip(2)
    return Sample(sample.pixels.flip(2), target)


@dataclass(eq=False)  # Lightning hashes it
class Batches:
    """The batches of a training; of several processes, each gets its slice of every batch."""

    images: TrainingImages
    n_batches: int
    workers: int
    """Processes that decode images, on this machine in all; -1: one per core."""
    done: int = 0
    """Iterations before the first of these batches."""
    part: tuple[int, int] = (0, 1)
    """The number of this process, and that of all."""
    sharers: int = 1
    """Processes on this machine."""
    waiting: Waiting = nullcontext
    """What to be in while a batch is waited for."""

    def __len__(self) -> int:
        return self.n_batches  # of the whole training: Lightning knows how many are done

    def __iter__(self) -> Iterator[list[Sample]]:
        (number, parts), size = self.part, self.images.recipe.batch_size
        share = size // parts
        starts = (i * size + number * share for i in range(self.done, self.n_batches))
        workers = max(1, self.workers // self.sharers) if self.workers > 0 else self.workers
        fitting = fitting_workers(workers, WITH_MASKS if self.images.masks else BYTES, self.sharers)
        # worker processes start with the first batch that is asked for: Lightning asks for two iterators, and drops one
        batches = read(self.images.__getitem__, [range(start, start + share) for start in starts], fitting)
        yield from waited_for(batches, self.waiting)


class ErrorsAsValues(Dataset[Any]):
    """What is made of a place, or the error: raised in a worker process, it would arrive as a traceback."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        self.make = make

    def __getitem__(self, place: int) -> Any:
        try:
            return self.make(place)
        except UserError as error:
            return error


def read(make: Callable[[int], Any], places: Sequence[Sequence[int]], workers: int) -> Iterator[list[Any]]:
    """Batches as plain lists, since images differ in size; made by worker processes, whose errors are raised here."""
    loader = DataLoader(
        ErrorsAsValues(make),
        batch_sampler=cast(Any, places),
        collate_fn=list,
        pin_memory=torch.cuda.is_available(),
        **worker_options(workers),
    )
    batches = start(loader)
    try:
        for batch in batches:
            for each in batch:
                if isinstance(each, UserError):
                    raise each
            yield batch
    finally:
        stop(batches)


@dataclass(frozen=True)
class TrainerConfig:
    """Where a detector is trained, and how often that is saved; nothing here changes what it learns."""

    device: str = "auto"
    devices: int | Literal["auto"] = 1
    """Processes that share each batch."""
    nodes: int = 1
    workers: int = -1
    """Processes that decode images, on each machine in all; -1: one per core."""
    folder: Path | None = None
    """Where an interrupted training can go on from; None: nowhere."""
    identity: str = ""
    """What is trained on what; a training of another identity is not continued."""
    checkpoint_minutes: float = 2.0


class DetectorModule(L.LightningModule):
    """A detector in training."""

    def __init__(
        self, detector: Detector, recipe: DetectionRecipe, identity: str, progress: Progress, say: Say
    ) -> None:
        super().__init__()
        self.detector, self.recipe, self.identity, self.progress, self.say = detector, recipe, identity, progress, say

    def training_step(self, batch: list[Sample], batch_idx: int) -> Tensor:
        """The sum of all losses of a batch; the draws of an iteration come from its number."""
        iteration = self.global_step
        self.detector.draws.begin(self.recipe.seed, iteration, rank() * len(batch))
        loss = torch.stack(list(losses_of(self.detector, batch).values())).sum()
        if iteration % LOOK_EVERY == 0 and not loss.isfinite():
            raise UserError(f"The loss is not finite at iteration {iteration}; lower lr or raise warm_up.")
        self.progress("training", done := iteration + 1, self.recipe.iterations)
        if done % max(self.recipe.iterations // LINES, 1) == 0:
            rate = learning_rate(self.recipe, iteration)
            self.say(
                f"Iteration {done:,}/{self.recipe.iterations:,}: loss {loss.item():.3f}, learning rate {rate:.2g}."
            )
        return loss

    def configure_optimizers(self) -> Any:
        """SGD with momentum; weights of batch norms do not decay."""
        norms = {w for module in self.detector.modules() if isinstance(module, BatchNorm) for w in module.parameters()}
        weights = [weight for weight in self.detector.parameters() if weight.requires_grad]
        groups = [
            {"params": [weight for weight in weights if weight not in norms]},
            {"params": [weight for weight in weights if weight in norms], "weight_decay": 0.0},
        ]
        recipe = self.recipe
        sgd = torch.optim.SGD(groups, recipe.lr, recipe.momentum, weight_decay=recipe.weight_decay)
        rates = torch.optim.lr_scheduler.LambdaLR(sgd, lambda i: learning_rate(recipe, i) / recipe.lr)
        return {"optimizer": sgd, "lr_scheduler": {"scheduler": rates, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep what is trained."""
        checkpoint["identity"] = self.identity


def losses_of(detector: Detector, batch: Sequence[Sample]) -> dict[str, Tensor]:
    """What the detector makes of a batch in train mode."""
    return detector([sample.pixels for sample in batch], [sample.target for sample in batch])


def train_detector(
    detector: Detector,
    images: TrainingImages,
    recipe: DetectionRecipe,
    where: TrainerConfig = TrainerConfig(),  # noqa: B008 (frozen)
    progress: Progress = lambda what, done, total: None,
    say: Say = lambda sentence: None,
) -> dict[str, float]:
    """Train a detector in place, in bfloat16 on CUDA, and refresh its batch norms.

    With a folder, it continues a training that was interrupted there. Of several processes, only the first has a
    detector to test in the end. Gives back the iterations of earlier sessions, the seconds of all, and how many there
    were; one that was killed counts up to its last checkpoint.
    """
    check_processes(where, recipe.batch_size)
    processes = processes_for(where)
    checkpoint, done = _checkpoint(where, say)
    sessions = Sessions(Run(where.folder or Path()), resumed=checkpoint is not None)
    try:
        with quiet():
            trainer = _trainer(where, say, sessions)
            device = trainer.strategy.root_device
            cuda = [device] if device.type == "cuda" else []
            if cuda:
                detector.to(memory_format=torch.channels_last)  # type: ignore[call-overload] (an overload of Module.to)
            part = (trainer.global_rank, trainer.world_size)
            waiting = partial(interruptible, trainer)
            batches = Batches(images, recipe.iterations, where.workers, done, part, processes.devices, waiting)
            module = DetectorModule(detector.train(), recipe, where.identity, progress, say)
            with torch.random.fork_rng(cuda), explain_end(trainer, CURE if where.folder else "start again"):
                trainer.fit(module, batches, ckpt_path=checkpoint, weights_only=True)
                if is_first():
                    again = Batches(images, recipe.norm_batches, where.workers)
                    refresh_norms(detector.to(device), again, device, recipe.seed)
    except torch.OutOfMemoryError as error:
        raise UserError(f"Out of memory: lower batch_size={recipe.batch_size} or short_sides.") from error
    except Diverged as error:
        raise UserError(f"A weight is not finite at iteration {error.step}; lower lr or raise warm_up.") from error
    finally:
        if where.folder is not None and is_first():
            sessions.save(ended=True)
    return {"resumed_at": done, **sessions.record()}


def estimate(detector: Detector, images: TrainingImages, recipe: DetectionRecipe, device: torch.device) -> str:
    """How long an iteration takes, by the first batch and a copy of the detector, and all of them."""
    trial, began, cuda = deepcopy(detector).to(device).train(), 0.0, device.type == "cuda"
    batch = move_data_to_device([images[place] for place in range(recipe.batch_size)], device)
    in_bfloat16 = torch.autocast(device.type, torch.bfloat16, enabled=cuda)
    with torch.random.fork_rng(), in_bfloat16:
        for _ in range(2 if cuda else 1):  # the first on a GPU loads libraries and chooses kernels
            began = time.perf_counter()
            torch.stack(list(losses_of(trial, batch).values())).sum().backward()
            if cuda:
                torch.cuda.synchronize(device)
    seconds = time.perf_counter() - began
    whole = lasting(seconds * recipe.iterations)
    return f"An iteration takes {seconds:.1f} s, and all {recipe.iterations:,} about {whole}."


@torch.no_grad()
def refresh_norms(detector: Detector, batches: Iterable[list[Sample]], device: torch.device, seed: int = 0) -> None:
    """Make the running statistics of batch norms plain means over batches, with the weights as they are now."""
    norms = [module for module in detector.modules() if isinstance(module, BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    set_synchronised(detector, False)  # whole batches, by one process
    detector.train()
    for n, batch in enumerate(batches, 1):
        detector.draws.begin(seed, n - 1)
        for norm in norms:
            norm.momentum = 1 / n  # the n-th of a running mean
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            losses_of(detector, move_data_to_device(batch, device))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    set_synchronised(detector, True)
    detector.eval()


def _checkpoint(where: TrainerConfig, say: Say) -> tuple[Path | None, int]:
    """The checkpoint to go on from, if there is one, and the iterations that are done."""
    if where.folder is None:
        return None, 0
    checkpoint, done = newest_whole(where.folder, say), 0
    if checkpoint is not None:
        content = load(checkpoint)
        if content.get("identity") != where.identity:
            raise UserError(f"{where.folder} has a training of another encoder, data or settings; name another --out.")
        done = content["global_step"]
        say(f"Continuing after {done:,} iterations.")
    if is_first():
        clear(where.folder, checkpoint)
    return checkpoint, done


def _trainer(where: TrainerConfig, say: Say, sessions: Sessions) -> L.Trainer:
    processes, kept, folder = processes_for(where), where.folder is not None, where.folder or Path()
    on_cuda = best_device(where.device).type == "cuda"
    keeper = Checkpoints(folder, 1, where.checkpoint_minutes, StopSignals(CURE, speaks=is_first()))
    try:
        trainer = L.Trainer(
            accelerator=where.device,
            devices=processes.devices,
            num_nodes=processes.nodes,
            strategy=DDP(CURE) if processes.total > 1 else "auto",
            precision="bf16-mixed" if on_cuda else "32-true",
            use_distributed_sampler=False,
            max_epochs=1,
            callbacks=[keeper] if kept else [],
            plugins=[Writer(folder, 1, sessions)] if kept else [],
            logger=False,
            enable_checkpointing=kept,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
    except (MisconfigurationException, RuntimeError) as error:
        raise UserError(f"{processes.devices} devices cannot be used here: {first_line(error)}") from error
    take_over_signals(trainer)
    return trainer
