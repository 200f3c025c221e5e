"""Why do the latents collapse? The known cause that fits best, and its cure."""

from ..recipes import Recipe
from ..strategies import LoGoConfig
from ..text import counted

SMALL_BATCH = 32
HIGH_RATE = 0.5  # of SGD, for a batch of 256
STRONG_PUSH = 1.0  # L2L's gradient over all others'
WEAK_SCALE = 0.8  # global crops that all but equal the image
ALIKE = 0.99  # mean cosine of a queue's keys
FEW_STEPS = 300  # in which MoCo had learned little (results/README.md, experiment 2)


def diagnose(recipe: Recipe, ratio: float | None = None, queue_alike: float | None = None) -> str:
    """A sentence with cause and cure, which names options as they are typed.

    `ratio` is the latest norm of the similarity gradient over that of L2L's, `queue_alike` the queue's mean cosine.
    """
    optimiser, crops = recipe.optimiser, recipe.crops
    logo = recipe.strategy if isinstance(recipe.strategy, LoGoConfig) else LoGoConfig(lam=0.0)  # others push nothing
    rate = optimiser.lr * 256 / recipe.batch_size
    push = logo.lam
    if logo.balance == "weight":  # lambda is a plain weight: what it comes to depends on the ratio
        push = push / ratio if ratio else 0.0
    weak = crops.jitter_p == 0 or max(crops.jitter) == 0
    causes = [
        (
            push > STRONG_PUSH,
            f"local crops are pushed apart harder than the others are pulled together ({push:.2f} times): lower "
            "strategy.lam",
        ),
        (
            recipe.batch_size < SMALL_BATCH,
            f"a batch of {recipe.batch_size} is small for batch norm: use batch_size={SMALL_BATCH} or more",
        ),
        (
            optimiser.kind == "sgd" and rate > HIGH_RATE,
            f"the learning rate is high ({optimiser.lr:g} for a batch of {recipe.batch_size}): lower optimiser.lr, "
            "or add optimiser.warmup_epochs",
        ),
        (
            queue_alike is not None and queue_alike > ALIKE,
            f"the queue holds nearly equal keys (mean cosine {queue_alike or 0:.3f}): the data repeat themselves or "
            "are fewer than its places; remove duplicates or lower framework.queue",
        ),
        (
            weak and crops.global_scale[0] > WEAK_SCALE,
            "the augmentation is weak, so that crops are alike without learning: use stronger crops.jitter and a "
            "lower crops.global_scale",
        ),
        (
            not recipe.framework_traits.constant_lr,
            "the predictor's learning rate falls with the encoder's: use framework.constant_lr=True",
        ),
        (
            logo.lam > 0 and logo.affinity == "cosine",
            "the affinity is a cosine, which the paper saw collapse: use strategy.affinity=learned",
        ),
    ]
    likely = next((cause for applies, cause in causes if applies), None)
    weaker = " or a smaller strategy.lam" if logo.lam > 0 else ""
    return f"Most likely {likely}." if likely else f"A lower optimiser.lr{weaker} usually helps."


def diagnose_loss(recipe: Recipe, steps: int, epochs_done: int) -> str:
    """Why kNN is below the untrained encoder's after so many steps: a run that is short has to be longer first."""
    in_all = steps * recipe.epochs // epochs_done
    short = f"A run of {counted(in_all, 'step')} is short: first use more epochs. " if 0 < in_all < FEW_STEPS else ""
    return f"{short}{diagnose(recipe)}"
