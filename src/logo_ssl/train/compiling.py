"""How do networks become fast? `torch.compile`, tried on one batch, with a way back when it fails."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch._functorch import config as functorch_config
from torch.utils._triton import has_triton

from ..models import Encoder
from ..randomness import global_streams, set_global_streams
from ..ranks import meet, of_every_process, rehearsed, world_size


def compile_everywhere(framework: nn.Module, trial: Callable[[], Tensor], device: torch.device) -> str | None:
    """Compile a framework's networks in all processes, or in none; what went wrong in the first one that failed.

    Compiled code may send its messages in another order; and all wait for the slowest anyhow.
    """
    failure = compile_if_it_works(framework, trial, device)
    meet()  # others may still be compiling
    for number, reason in enumerate(of_every_process(failure)):
        if reason is not None:
            uncompile_networks(framework)
            return reason if world_size() == 1 else f"{reason} (process {number} of {world_size()})"
    return None


def compile_if_it_works(framework: nn.Module, trial: Callable[[], Tensor], device: torch.device) -> str | None:
    """Compile networks for a trial that leaves no trace, here or in other processes; what failed, if anything did."""
    kept = {name: buffer.clone() for name, buffer in framework.named_buffers()}
    streams = global_streams(device)
    try:
        compile_networks(framework)
        with rehearsed():
            trial().backward()
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # compilers fail in many ways, and none of them must stop a run
        uncompile_networks(framework)
        return first_line(error)
    finally:
        framework.zero_grad()
        for name, buffer in framework.named_buffers():
            buffer.copy_(kept[name])
        set_global_streams(streams, device)
    return None


def compile_networks(framework: nn.Module) -> None:
    """Mark every network of a framework for compilation at its first call; its weights keep their names."""
    # The ratio of gradients (Eq. 9's lambda) asks for gradients twice: buffers must outlive the first time.
    functorch_config.donated_buffer = False
    # Grouped batch norm fails to compile with this optimisation of torch 2.11 ("512 v.s. 2048").
    options: dict[str, str | int | bool] = {"triton.mix_order_reduction": False}
    for network in _networks(framework):
        network.compile(dynamic=False, options=_known(options))


def uncompile_networks(framework: nn.Module) -> None:
    """Take the mark off."""
    for network in _networks(framework):
        network._compiled_call_impl = None


def _networks(framework: nn.Module) -> Iterator[nn.Module]:
    for child in framework.children():
        if isinstance(child, Encoder):
            yield from child.net.children() if child.keeps_features else (child.net,)
        elif any(True for _ in child.parameters()):
            yield child


def _known(options: dict[str, str | int | bool]) -> dict[str, str | int | bool]:
    """The options that this torch has."""
    from torch._inductor import config

    known = config.get_config_copy()
    return {name: value for name, value in options.items() if name in known}


def first_line(error: BaseException) -> str:
    """What went wrong, in a line; torch's "backend='inductor' raised:" says it in the next."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = lines[: 2 if lines and lines[0].endswith(":") else 1]
    return " ".join(told) or type(error).__name__


def has_compiler(device: torch.device) -> bool:
    """Whether compiling is worth trying by default: on CUDA with Triton."""
    return device.type == "cuda" and has_triton()
