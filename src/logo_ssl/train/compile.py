"""`torch.compile` for networks and losses, tried on one batch, and the step as a CUDA graph without Python."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._functorch import config as functorch_config
from torch.utils._pytree import tree_flatten, tree_map_only
from torch.utils._triton import has_triton

from ..frameworks import Framework
from ..models import Encoder
from ..system.distributed import barrier, gather_objects, simulated_peers, world_size
from ..system.randomness import global_streams, set_global_streams

CACHE = "~/.cache/logo-ssl/compiled"
"""Compiled code, unless TORCHINDUCTOR_CACHE_DIR names a folder. torch's own is a temporary one."""
WARM_UP = 3  # calls before recording: libraries choose their algorithms, optimisers make their buffers


def compile_in_all_processes(
    framework: Framework, strategy: nn.Module, trial: Callable[[], Tensor], device: torch.device
) -> str | None:
    """Compile a step's parts in all processes, or in none; what went wrong in the first one that failed.

    Compiled code may send its messages in another order; and all wait for the slowest anyhow.
    """
    failure = try_to_compile(framework, strategy, trial, device)
    barrier()  # others may still be compiling
    for number, reason in enumerate(gather_objects(failure)):
        if reason is not None:
            undo_compiling(framework, strategy)
            return reason if world_size() == 1 else f"{reason} (process {number} of {world_size()})"
    return None


def try_to_compile(
    framework: Framework, strategy: nn.Module, trial: Callable[[], Tensor], device: torch.device
) -> str | None:
    """Compile parts for a trial that leaves no trace, here or in other processes; what failed, if anything did."""
    try:
        compile_step(framework, strategy)
        with without_trace((framework, strategy), device), simulated_peers():
            trial().backward()
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # compilers fail in many ways, and none of them must stop a run
        undo_compiling(framework, strategy)
        return first_line(error)
    return None


@contextmanager
def without_trace(parts: Sequence[nn.Module], device: torch.device) -> Iterator[None]:
    """Try steps, after which the buffers, gradients and random streams are what they were."""
    kept = [(buffer, buffer.clone()) for part in parts for buffer in part.buffers()]
    streams = global_streams(device)
    try:
        yield
    finally:
        for part in parts:
            part.zero_grad()
        for buffer, before in kept:
            buffer.copy_(before)
        set_global_streams(streams, device)


def compile_step(framework: Framework, strategy: nn.Module) -> None:
    """Mark networks, the similarity loss and the regressor for compilation at their first call; names stay.

    Losses in several processes stay as they are: compiled code may send its messages in another order.
    """
    with suppress(OSError):
        Path(CACHE).expanduser().mkdir(parents=True, exist_ok=True)
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path(CACHE).expanduser()))
    # The ratio of gradients (Eq. 9's lambda) asks for gradients twice: buffers must outlive the first time.
    functorch_config.donated_buffer = False
    # Grouped batch norm fails to compile with this optimisation of torch 2.11 ("512 v.s. 2048").
    options: dict[str, Any] = {"triton.mix_order_reduction": False}
    for network in _networks(framework):
        network.compile(dynamic=False, options=options)
    if world_size() == 1:
        for network in strategy.children():
            network.compile(dynamic=False, options=options)
        setattr(framework, "similarity", torch.compile(framework.similarity, dynamic=False, options=options))  # noqa: B010


def undo_compiling(framework: Framework, strategy: nn.Module) -> None:
    """Take the marks off."""
    for network in (*_networks(framework), *strategy.children()):
        network._compiled_call_impl = None
    vars(framework).pop("similarity", None)


def _networks(framework: Framework) -> Iterator[nn.Module]:
    for child in framework.children():
        if isinstance(child, Encoder):
            yield from child.net.children() if child.keeps_features else (child.net,)
        elif any(True for _ in child.parameters()):
            yield child


def python_state(parts: Sequence[nn.Module]) -> dict[str, Any]:
    """Numbers, texts and switches that modules hold outside tensors."""
    return {
        f"{type(module).__name__}.{name}": value
        for part in parts
        for module in part.modules()
        for name, value in vars(module).items()
        if isinstance(value, int | float | str)
    }


def changed_names(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The names of what has another value."""
    return [name for name, value in after.items() if before.get(name, value) != value]


def first_line(error: BaseException) -> str:
    """What went wrong, in a line; torch's "backend='inductor' raised:" says it in the next."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = lines[: 2 if lines and lines[0].endswith(":") else 1]
    return " ".join(told) or type(error).__name__


def has_compiler(device: torch.device) -> bool:
    """Whether compiling is worth trying by default: on CUDA with Triton."""
    return device.type == "cuda" and has_triton()


class Replay:
    """A function of tensors that launches all its kernels at once, from its fourth call with the same shapes on.

    Whatever the function does on the device happens again at each call; what it does in Python does not. Its outputs
    are overwritten by the next call.
    """

    def __init__(
        self, function: Callable[..., Any], say: Callable[[str], None], parts: Sequence[nn.Module] = ()
    ) -> None:
        self.function, self.say, self.parts = function, say, parts
        self.calls, self.shapes, self.given_up = 0, (), False
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: list[Tensor] = []
        self.outputs: Any = None

    def __call__(self, *arguments: Any) -> Any:
        """What the function gives for the arguments (tuples of tensors, nested)."""
        tensors = [leaf for leaf in tree_flatten(arguments)[0] if isinstance(leaf, Tensor)]
        shapes = tuple((tensor.shape, tensor.dtype) for tensor in tensors)
        if shapes != self.shapes:
            self.calls, self.shapes, self.graph = 0, shapes, None
        self.calls += 1
        if self.given_up:
            return self.function(*arguments)
        if self.calls <= WARM_UP:
            before = python_state(self.parts)
            outputs = self._aside(arguments)
            if self.calls == WARM_UP and (changed := changed_names(before, python_state(self.parts))):
                self.say(
                    f"{', '.join(changed)} changed in Python during a step, which CUDA replays without Python: follow "
                    "p.progress, use a buffer, or change it in after_step."
                )
            return outputs
        if self.graph is None:
            try:
                self._record(arguments)
            except RuntimeError as error:
                self.given_up, self.graph = True, None
                self.say(f"CUDA graphs are off: recording the step failed ({str(error).splitlines()[0]}).")
                return self.function(*arguments)
        torch._foreach_copy_(self.inputs, tensors)
        assert self.graph is not None
        self.graph.replay()
        return self.outputs

    def _aside(self, arguments: Any) -> Any:
        """Call the function on a stream of its own, as recording will."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            outputs = self.function(*arguments)
        torch.cuda.current_stream().wait_stream(stream)
        return outputs

    def _record(self, arguments: Any) -> None:
        fixed = tree_map_only(Tensor, Tensor.clone, arguments)
        self.inputs = [leaf for leaf in tree_flatten(fixed)[0] if isinstance(leaf, Tensor)]
        graph = torch.cuda.CUDAGraph()
        # Other threads (a loader's) may allocate meanwhile.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self.outputs = self.function(*fixed)
        self.graph = graph
