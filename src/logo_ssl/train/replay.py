"""How does a GPU get its work without waiting for Python? A step is recorded once and replayed: a CUDA graph."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map_only

WARM_UP = 3  # calls before recording: libraries choose their algorithms, optimisers make their buffers


class Replay:
    """A function of tensors that launches all its kernels at once, from its fourth call with the same shapes on.

    Whatever the function does on the device happens again at each call; what it does in Python does not. Its outputs
    are overwritten by the next call.
    """

    def __init__(self, function: Callable[..., Any], say: Callable[[str], None]) -> None:
        self.function, self.say = function, say
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
            return self._aside(arguments)
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
