"""Which processes train together, and what happens when one of them ends?"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import torch
import torch.distributed as dist
from lightning.fabric.utilities.distributed import _set_num_threads_if_needed
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.strategies.launchers.subprocess_script import _SubprocessScriptLauncher

from ..errors import UserError
from ..hardware import usable_cores
from ..launch import is_restarted, started
from ..signals import Stopped
from ..terminal import complain
from ..text import counted
from .faults import Diverged

GRACE_S = 10.0  # in which a process usually hears by itself that another is gone: the connection breaks
LOST = ("closed by peer", "reset by peer", "Broken pipe", "Connection refused", "Timed out waiting", "NCCL error")
"""What gloo and NCCL say then."""


CHILDREN: list[subprocess.Popen[bytes]] = []
"""What this process has started."""


@runtime_checkable
class Wish(Protocol):
    """Where somebody wishes to train; a recipe says so, among other things."""

    @property
    def device(self) -> str:
        """The kind of device."""
        ...

    @property
    def devices(self) -> int | Literal["auto"]:
        """Processes on each machine."""
        ...

    @property
    def nodes(self) -> int:
        """Machines."""
        ...


class Processes(NamedTuple):
    """How many processes train: on each machine, and machines."""

    devices: int = 1
    nodes: int = 1

    @property
    def total(self) -> int:
        """All of them."""
        return self.devices * self.nodes


def processes_for(wish: Wish) -> Processes:
    """As many as torchrun or Slurm started or, where neither did, as were wished for."""
    if (others := started()) is not None:
        return Processes(others.devices, others.nodes)
    if wish.devices == "auto":
        usable = torch.cuda.device_count() if wish.device in ("auto", "cuda") else 1
        return Processes(max(1, usable), wish.nodes)
    return Processes(wish.devices, wish.nodes)


def refuse_another_number(wish: Wish) -> None:
    """Raise a UserError where others are wished for than were started."""
    others, asked = started(), (wish.devices, wish.nodes)
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK") if name not in os.environ]
    if others is None and wish.nodes > 1 and missing:
        raise UserError(
            f"nodes={wish.nodes}: {', '.join(missing)} is not set, so the machines cannot find each other; "
            "set it on each, or start with torchrun or Slurm (docs/scaling.md)."
        )
    if others is None or wish.devices == "auto" or asked in ((1, 1), (others.devices, others.nodes)):
        return
    raise UserError(
        f"{others.by} started {others.nodes} x {others.devices} processes, but nodes={wish.nodes} and "
        f"devices={wish.devices}; leave both out, or ask {others.by} for as many."
    )


def refuse_uneven(batch_size: int, processes: Processes) -> None:
    """Raise a UserError where a batch cannot be dealt to the processes."""
    total = processes.total
    if batch_size % total or batch_size < 2 * total:
        less, more = batch_size // total * total, -(-batch_size // total) * total
        better = f"{less} or {more}" if less >= 2 * total else f"{max(more, 2 * total)}"
        raise UserError(
            f"batch_size={batch_size}: must split evenly over {total} processes, 2 images or more each; use {better}."
        )


def about_few_cores(device: torch.device, processes: Processes) -> list[str]:
    """What to do where more processes train on a CPU than it has cores: they take turns, and wait for each other."""
    cores = usable_cores()
    if device.type != "cpu" or processes.devices <= cores:
        return []
    return [
        f"{processes.devices} processes share {counted(cores, 'core')} here, and are slower than fewer would be; use "
        f"{cores} or fewer (--devices)."
    ]


def lost_another(error: Exception) -> bool:
    """Whether an error means that another process is gone."""
    return isinstance(error, dist.DistError) or any(words in str(error) for words in LOST)


class DDP(DDPStrategy):
    """Lightning's DDP for our step: batch norm takes care of its own buffers, and the end of a process is said."""

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
    """Starts this command once more for each further device, as Lightning does, and ends all when one has ended.

    Lightning would kill all without a word. Processes that torchrun or Slurm started only watch who started them.
    """

    def __init__(self, cluster_environment: Any, num_processes: int, num_nodes: int, cure: str) -> None:
        super().__init__(cluster_environment, num_processes, num_nodes)
        self.cure, self.over = cure, threading.Event()
        self.procs = CHILDREN  # a run that goes back after it diverged has a new launcher, and the same children

    def launch(self, function: Callable[..., Any], *args: Any, trainer: Any = None, **kwargs: Any) -> Any:
        """Start the others, then train."""
        self.cluster_environment.validate_settings(num_devices=self.num_processes, num_nodes=self.num_nodes)
        if not self.cluster_environment.creates_processes_externally:
            self._call_children_scripts()
            CHILDREN[:] = self.procs
        watch = self._watch_children if self.procs else self._watch_parent
        threading.Thread(target=watch, name="watch", daemon=True).start()
        _set_num_threads_if_needed(num_processes=self.num_processes)
        try:
            return function(*args, **kwargs)
        except Diverged:  # all processes go back together
            raise
        except Stopped as stop:  # not all of them may have been told
            self.over.set()
            self.kill(stop.number)
            self._end_children()
            raise
        except BaseException:
            self.over.set()  # the end is known; nobody need watch for one
            self._end_children()
            raise
        finally:
            self.over.set()

    def what_ended(self) -> str:
        """Which process ended before its time, and how, as far as is known."""
        for place, process in enumerate(self.procs, start=1):
            if code := process.poll():
                how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
                return f"Process {place} of {self.num_processes} {how}"
        return "Another process of this run has ended"

    def _watch_children(self) -> None:
        while not self.over.wait(1.0):
            if any(process.poll() for process in self.procs):
                self._end_with(self.what_ended())

    def _watch_parent(self) -> None:
        parent = os.getppid()
        while not self.over.wait(1.0):
            if os.getppid() != parent:
                self._end_with("The process that started this one has ended")

    def _end_with(self, what: str) -> None:
        """End this process and its children, if it does not end by itself: it may hang in a message to the lost one."""
        if not self.over.wait(GRACE_S):
            complain(f"{what}; {self.cure}.")
            sys.stderr.flush()
            self.kill(signal.SIGKILL)
            os._exit(2)

    def _end_children(self) -> None:
        """Let the others tell what happened to them, then end them."""
        patience = time.monotonic() + GRACE_S
        while any(process.poll() is None for process in self.procs) and time.monotonic() < patience:
            time.sleep(0.1)
        self.kill(signal.SIGKILL)


def take_over_signals(trainer: Any) -> None:
    """Make signals ours: Lightning's handlers would send messages between processes in the middle of others.

    It also lets processes ask each other after every step whether one was heard, and makes devices wait for that.
    """
    trainer._signal_connector.register_signal_handlers = lambda: None
    trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None


def whose_end(strategy: Any) -> str:
    """Words for an end that another process brought about."""
    launcher = getattr(strategy, "launcher", None)
    return launcher.what_ended() if isinstance(launcher, Launcher) else "Another process of this run has ended"
