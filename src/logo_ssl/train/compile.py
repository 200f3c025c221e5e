"""`torch.compile` for networks, tried on one batch, and the step as a CUDA graph, replayed without Python."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._functorch import config as functorch_config
from torch.utils._pytree import tree_flatten, tree_map_only
from torch.utils._triton import has_triton

from ..models import Encoder
from ..system.distributed import barrier, gather_objects, simulated_peers, world_size
from ..system.randomness import global_streams, set_global_streams

WARM_UP = 3  # calls before recording: libraries choose their algorithms, optimisers make their buffers


def compile_in_all_processes(framework: nn.Module, trial: Callable[[], Tensor], device: torch.device) -> str | None:
    """Compile a framework's networks in all processes, or in none; what went wrong in the first one that failed.

    Compiled code may send its messages in another order; and all wait for the slowest anyhow.
    """
    failure = try_to_compile(framework, trial, device)
    barrier()  # others may still be compiling
    for number, reason in enumerate(gather_objects(failure)):
        if reason is not None:
            uncompile_networks(framework)
            return reason if world_size() == 1 else f"{reason} (process {number} of {world_size()})"
    return None


def try_to_compile(framework: nn.Module, trial: Callable[[], Tensor], device: torch.device) -> str | None:
    """Compile networks for a trial that leaves no trace, here or in other processes; what failed, if anything did."""
    try:
        compile_networks(framework)
        with without_trace(framework, device), simulated_peers():
            trial().backward()
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # compilers fail in many ways, and none of them must stop a run
        uncompile_networks(framework)
        return first_line(error)
    return None


@contextmanager
def without_trace(framework: nn.Module, device: torch.device) -> Iterator[None]:
    """Try steps, after which the buffers, gradients and random streams are what they were."""
    kept = {name: buffer.clone() for name, buffer in framework.named_buffers()}
    streams = global_streams(device)
    try:
        yield
    finally:
        framework.zero_grad()
        for name, buffer in framework.named_buffers():
            buffer.copy_(kept[name])
        set_global_streams(streams, device)


def compile_networks(framework: nn.Module) -> None:
    """Mark every network of a framework for compilation at its first call; its weights keep their names."""
    # The ratio of gradients (Eq. 9's lambda) asks for gradients twice: buffers must outlive the first time.
    functorch_config.donated_buffer = False
    # Grouped batch norm fails to compile with this optimisation of torch 2.11 ("512 v.s. 2048").
    for network in _networks(framework):
        network.compile(dynamic=False, options={"triton.mix_order_reduction": False})


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
