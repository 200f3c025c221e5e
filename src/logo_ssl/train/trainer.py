"""Lightning's trainer with all callbacks of a run, in one process or several, and how a training ends early.

Lightning's launcher kills all processes without a word when one ends; ours ends a run with one sentence.
"""

import errno
import logging
import os
import signal
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Any

import lightning as L
import torch
import torch.distributed as dist
from lightning.fabric.utilities.distributed import _set_num_threads_if_needed
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.strategies.launchers.subprocess_script import _SubprocessScriptLauncher
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from ..data import ImageSet
from ..errors import Interrupted, UserError
from ..recipes import Recipe
from ..run import Run
from ..system.hardware import best_device, seconds_by_threads
from ..system.launch import Processes, is_first, is_restarted, started
from ..system.signals import Stopped, StopSignals
from ..system.terminal import complain
from .checkpoint import Checkpoints, Writer, interruptible
from .compile import Replay, compile_in_all_processes, first_line, has_compiler, without_trace
from .loggers import JsonlLogger, ProgressDisplay, Sessions, Steps, other_logger
from .module import Pretraining
from .monitors import CollapseGauge, OnlineKNN

QUIET = {
    "lightning.pytorch": logging.ERROR,  # advice on loaders and loggers that we do not use
    "lightning.fabric": logging.ERROR,
    "torch._dynamo": logging.CRITICAL,
    "torch._inductor": logging.CRITICAL,
    "torch.utils.cpp_extension": logging.CRITICAL,
}
STEPS_OF_PACE = 10  # whose median is compared
SLOW = 2.0  # times as long as usual: threads are chosen again
GRACE_S = 10.0  # in which a process usually notices by itself that another is gone: the connection breaks
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)
LOST = ("closed by peer", "reset by peer", "Broken pipe", "Connection refused", "Timed out waiting", "NCCL error")
"""What gloo and NCCL say then."""


def processes_for(options: Any) -> Processes:
    """As many as torchrun or Slurm started or, if neither did, as `device`, `devices` and `nodes` ask for."""
    if (others := started()) is not None:
        return others
    if options.devices == "auto":
        usable = torch.cuda.device_count() if options.device in ("auto", "cuda") else 1
        return Processes(max(1, usable), options.nodes)
    return Processes(options.devices, options.nodes)


def check_processes(options: Any, batch_size: int) -> None:
    """UserError if the options ask for other processes than were started, or a batch does not split over them."""
    others, asked = started(), (options.devices, options.nodes)
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK") if name not in os.environ]
    if others is None and options.nodes > 1 and missing:
        raise UserError(
            f"nodes={options.nodes}: {', '.join(missing)} is not set; set it on each machine, or start with torchrun "
            "or Slurm (docs/scaling.md)."
        )
    if others is not None and options.devices != "auto" and asked not in ((1, 1), (others.devices, others.nodes)):
        raise UserError(
            f"{others.by} started {others.nodes} x {others.devices} processes, but nodes={options.nodes} and "
            f"devices={options.devices}; leave both out."
        )
    total = processes_for(options).total
    if total > 1 and (batch_size % total or batch_size < 2 * total):
        raise UserError(f"batch_size={batch_size}: must be a multiple of the {total} processes, 2 images or more each.")


def build_trainer(
    run: Run,
    recipe: Recipe,
    data: ImageSet,
    journal: JsonlLogger,
    progress: ProgressDisplay,
    sessions: Sessions | None = None,
    detail: Callable[[str], None] = lambda sentence: None,
    *,
    benchmark: bool = True,
    others: Sequence[L.Callback] = (),
) -> L.Trainer:
    """The Lightning trainer of a run, with all callbacks and others; `benchmark` lets the clock choose kernels."""
    if best_device(recipe.device).type == "cpu" and recipe.precision == "bf16":
        # oneDNN may take gradients of small padded convolutions from memory that it never wrote (docs/decisions/0014)
        raise UserError("precision=bf16: needs a GPU; on a CPU use fp32.")
    sessions, processes = sessions or Sessions(run), processes_for(recipe)
    stop = StopSignals(run.how_to_resume(), speaks=is_first())
    callbacks = [
        Threads(detail),  # before the compiler, whose code has their number in it
        Acceleration(detail),
        Steps(progress.say),
        CollapseGauge(progress.say, recipe),
        OnlineKNN(data, recipe, run.bad_images_file, progress.say),
        progress,
        *others,
        Checkpoints(run.checkpoints, recipe.checkpoint_every, recipe.checkpoint_minutes, stop),
    ]
    with quiet():
        try:
            trainer = L.Trainer(
                accelerator=recipe.device,
                devices=processes.devices,
                num_nodes=processes.nodes,
                strategy=DDP(run.how_to_resume()) if processes.total > 1 else "auto",
                use_distributed_sampler=False,
                max_epochs=recipe.epochs,
                callbacks=callbacks,
                logger=[journal, *(other_logger(kind, run) for kind in recipe.loggers)],
                enable_progress_bar=False,
                enable_model_summary=False,
                num_sanity_val_steps=0,
                benchmark=benchmark and not recipe.deterministic,
                deterministic=recipe.deterministic,
                plugins=[Writer(run.checkpoints, recipe.checkpoint_keep, sessions)],
            )
        except (MisconfigurationException, RuntimeError) as error:
            if processes.total == 1:
                raise
            raise UserError(f"devices={processes.devices}: cannot be used here ({first_line(error)}).") from error
    take_over_signals(trainer)
    return trainer


class Threads(L.Callback):
    """On a CPU, takes as many threads as make a step fastest: on a busy machine, more of them wait for each other.

    Sums of floats depend on the number. So checkpoints have it, and a resumed run on the same number of cores takes it
    from there without a new look at the clock: it stays the run that was interrupted, bit by bit. Only if the pace
    drops, which no run can foresee, steps are timed again. `deterministic` and OMP_NUM_THREADS turn all of it off.
    """

    def __init__(self, detail: Callable[[str], None]) -> None:
        self.detail = detail
        self.most = torch.get_num_threads()
        self.chosen = 0
        self.usual, self.began = 0.0, 0.0
        self.latest: deque[float] = deque(maxlen=STEPS_OF_PACE)

    def state_dict(self) -> dict[str, int]:
        """The number, and out of how many."""
        return {"chosen": self.chosen, "most": self.most}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Take the number of the interrupted run, if this machine has as many cores."""
        self.chosen = state_dict["chosen"] if state_dict["most"] == self.most else 0

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Go on with the number of the checkpoint."""
        if self._may_choose(trainer, pl_module) and self.chosen:
            torch.set_num_threads(self.chosen)

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Time a few steps before the first one, and when steps take much longer than they used to."""
        assert isinstance(pl_module, Pretraining)
        if self._may_choose(trainer, pl_module):
            slow = self.usual and median(self.latest) > SLOW * self.usual
            if not self.chosen or (slow and not pl_module.compiled):
                with without_trace((pl_module.framework, pl_module.strategy), pl_module.device):
                    seconds = seconds_by_threads(lambda: pl_module.trial(batch).backward(), self.most)
                self.chosen, self.usual = min(seconds, key=seconds.__getitem__), 0.0
                self.latest.clear()
                torch.set_num_threads(self.chosen)
                timed = ", ".join(f"{n}: {each:.2f} s" for n, each in seconds.items())
                self.detail(f"Threads: {self.chosen} (seconds of forward and backward with {timed}).")
        self.began = time.perf_counter()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Note how long the step took; the first few tell what is usual."""
        self.latest.append(time.perf_counter() - self.began)
        if not self.usual and len(self.latest) == STEPS_OF_PACE:
            self.usual = median(self.latest)

    def _may_choose(self, trainer: L.Trainer, module: L.LightningModule) -> bool:
        assert isinstance(module, Pretraining)
        one_process_on_cpu = module.device.type == "cpu" and trainer.world_size == 1 and self.most > 1
        return one_process_on_cpu and not module.recipe.deterministic and "OMP_NUM_THREADS" not in os.environ


class Acceleration(L.Callback):
    """Compiles networks and crops before the first step, and records the step on CUDA, if the recipe allows it."""

    def __init__(self, detail: Callable[[str], None]) -> None:
        self.detail, self.tried = detail, False

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Compile, once; without a compiler the step stays as it is."""
        assert isinstance(pl_module, Pretraining)
        wanted = pl_module.recipe.compile
        if self.tried or wanted == "off" or (wanted == "auto" and not has_compiler(pl_module.device)):
            return
        self.tried = True
        self.detail("Compiling takes a minute or two; without it (compile=off) training begins at once and is slower.")
        with interruptible(trainer):  # for the compiler's processes, which a signal may end
            trial, parts = partial(pl_module.trial, batch, compiled=True), (pl_module.framework, pl_module.strategy)
            failure = compile_in_all_processes(*parts, trial, pl_module.device)
        pl_module.compiled = failure is None
        if failure:
            pl_module.say(f"Compiling is off, and training slower: {failure}")
        elif pl_module.device.type == "cuda" and trainer.world_size == 1:
            pl_module.learn = Replay(pl_module.algorithm_1, pl_module.say, parts)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep advice to developers of Lightning and the compiler off the screen."""
    before = {name: logging.getLogger(name).level for name in QUIET}
    for name, level in QUIET.items():
        logging.getLogger(name).setLevel(level)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"(lightning|torch)\..*")
        try:
            yield
        finally:
            for name, level in before.items():
                logging.getLogger(name).setLevel(level)


@contextmanager
def explain_end(trainer: L.Trainer, cure: str) -> Iterator[None]:
    """Turn an interruption, a disk that refuses, or the end of another process into one sentence with what to do."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):  # the second is how Lightning ends after Ctrl-C
        raise Interrupted(f"Interrupted; {cure}.") from None
    except Stopped as stop:
        raise stop.interrupted(cure) from None
    except OSError as error:
        if error.errno not in DISK:
            raise
        raise UserError(f"{error}; {cure}.") from error
    except torch.OutOfMemoryError:  # which is a RuntimeError
        raise
    except RuntimeError as error:
        lost = isinstance(error, dist.DistError) or any(words in str(error) for words in LOST)
        if trainer.world_size == 1 or not lost:
            raise
        launcher = trainer.strategy.launcher
        assert isinstance(launcher, Launcher)
        raise UserError(f"{launcher.what_ended()}; {cure}.") from error


class DDP(DDPStrategy):
    """Lightning's DDP with our launcher; batch norm takes care of its own buffers."""

    def __init__(self, cure: str) -> None:
        super().__init__(broadcast_buffers=False)
        self.cure = cure

    def setup_distributed(self) -> None:
        """Meet the other processes, after a restart by torchrun in a place of its own.

        It keeps the addresses of the processes that ended, and new ones would call these (pytorch issue 135712).
        """
        env = os.environ
        if is_restarted() and env.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and self.num_nodes == 1:
            store = dist.TCPStore(env["MASTER_ADDR"], int(env["MASTER_PORT"]), is_master=False)
            dist.init_process_group(
                self._get_process_group_backend(),
                store=dist.PrefixStore(f"restart {env['TORCHELASTIC_RESTART_COUNT']}", store),
                rank=int(env["RANK"]),
                world_size=int(env["WORLD_SIZE"]),
                timeout=self._timeout,
            )
        super().setup_distributed()

    def _configure_launcher(self) -> None:
        assert self.cluster_environment is not None
        self._launcher = Launcher(self.cluster_environment, self.num_processes, self.num_nodes, self.cure)


class Launcher(_SubprocessScriptLauncher):
    """Starts this command once more for each further device, as Lightning does, and ends all when one has ended."""

    def __init__(self, cluster_environment: Any, num_processes: int, num_nodes: int, cure: str) -> None:
        super().__init__(cluster_environment, num_processes, num_nodes)
        self.cure, self.over = cure, threading.Event()

    def launch(self, function: Callable[..., Any], *args: Any, trainer: Any = None, **kwargs: Any) -> Any:
        """Start the others, then train."""
        self.cluster_environment.validate_settings(num_devices=self.num_processes, num_nodes=self.num_nodes)
        if not self.cluster_environment.creates_processes_externally:
            self._call_children_scripts()
            threading.Thread(target=self._watch_children, name="watch", daemon=True).start()
        _set_num_threads_if_needed(num_processes=self.num_processes)
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            self.over.set()
            if isinstance(error, Stopped):  # the signal may not have reached all of them
                self.kill(error.number)
            patience = time.monotonic() + GRACE_S  # in which the others may say what happened to them
            while any(process.poll() is None for process in self.procs) and time.monotonic() < patience:
                time.sleep(0.1)
            self.kill(signal.SIGKILL)
            raise
        finally:
            self.over.set()

    def what_ended(self) -> str:
        """Which process ended before its time, and how, as far as is known."""
        for number, process in enumerate(self.procs, start=1):
            if code := process.poll():
                how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
                return f"Process {number} of {self.num_processes} {how}"
        return "Another process of this run has ended"

    def _watch_children(self) -> None:
        while not self.over.wait(1.0):
            if any(process.poll() for process in self.procs):
                self._end_with(self.what_ended())

    def _end_with(self, what: str) -> None:
        """End this process and its children, unless it ends by itself: it may hang in a message to the lost one."""
        if not self.over.wait(GRACE_S):
            complain(f"{what}; {self.cure}.")
            sys.stderr.flush()
            self.kill(signal.SIGKILL)
            os._exit(2)


def take_over_signals(trainer: Any) -> None:
    """Make signals ours: Lightning's handlers would send messages between processes in the middle of others.

    It also lets processes ask each other after every step whether one was received, and makes devices wait for that.
    """
    trainer._signal_connector.register_signal_handlers = lambda: None
    trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None
