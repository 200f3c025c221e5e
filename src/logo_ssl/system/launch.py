"""The number of this process and of all, from the environment of torchrun, Slurm and Lightning; torch-free."""

import os
from typing import NamedTuple

INTERACTIVE = ("bash", "interactive")  # names of Slurm jobs that a person types into: nothing was started yet


class Processes(NamedTuple):
    """How many processes train together."""

    devices: int = 1
    """Processes on each machine."""
    nodes: int = 1
    """Machines."""
    by: str = "logo-ssl"
    """Who starts them."""

    @property
    def total(self) -> int:
        """All of them."""
        return self.devices * self.nodes


def started() -> Processes | None:
    """What torchrun or Slurm started; None where it is left to us."""
    env = os.environ
    if "TORCHELASTIC_RUN_ID" in env:
        devices = int(env["LOCAL_WORLD_SIZE"])
        return Processes(devices, int(env["WORLD_SIZE"]) // devices, "torchrun")
    if "SLURM_NTASKS" in env and env.get("SLURM_JOB_NAME") not in INTERACTIVE:
        nodes = int(env.get("SLURM_NNODES") or 1)
        return Processes(int(env["SLURM_NTASKS"]) // nodes, nodes, "Slurm")
    return None


def is_first() -> bool:
    """Whether this process writes files and speaks."""
    return all(number == 0 for number in _numbers().values())


def name() -> str:
    """What to call this process: process 3, or process 1 of machine 2."""
    return " of ".join(f"{kind} {number}" for kind, number in _numbers().items())


def _numbers() -> dict[str, int]:
    env = os.environ
    for variable in ("RANK", "SLURM_PROCID"):
        if variable in env and started() is not None:
            return {"process": int(env[variable])}
    machine = {"machine": int(env["NODE_RANK"])} if int(env.get("NODE_RANK") or 0) else {}
    return {"process": int(env.get("LOCAL_RANK") or 0)} | machine


def is_restarted() -> bool:
    """Whether torchrun or Slurm has started the same command before, and it did not end well."""
    return any(int(os.environ.get(name) or 0) > 0 for name in ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"))
