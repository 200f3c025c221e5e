"""An ONNX graph for batches of any size, checked against PyTorch."""

import warnings
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...errors import UserError
from ...eval.encoder import FrozenEncoder
from ...files import write
from ...models.batch_norm import with_plain_batch_norm
from .weights import metadata_of, snippet

TOLERANCE = 1e-4  # of the largest feature
TRACED, TRIED = 2, (1, 3)  # sizes of batches
SEED = 0


def to_onnx(encoder: FrozenEncoder, out: Path) -> str:
    """A graph from `images` [B C S S], normalised, to `features` [B F]; refused if onnxruntime computes others."""
    _need("onnxscript")
    runtime = _need("onnxruntime")
    network = with_plain_batch_norm(deepcopy(encoder.backbone).cpu()).eval()
    content = _graph(encoder, network)
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    for n_images in TRIED:
        _compare(session, network, _noise(encoder, n_images))
    write(out, content)
    lines = [
        f"session = onnxruntime.InferenceSession({str(out)!r})",
        'encoder = lambda images: torch.from_numpy(session.run(None, {"images": images.numpy()})[0])',
    ]
    return snippet(encoder, ["import onnxruntime"], lines)


def _need(name: str) -> Any:
    try:
        return __import__(name)
    except ImportError as error:
        raise UserError(f"ONNX needs {name}: pip install 'logo-ssl[onnx]'.") from error


def _noise(encoder: FrozenEncoder, n_images: int) -> Tensor:
    shape = (n_images, encoder.channels, encoder.size, encoder.size)
    return torch.randn(*shape, generator=torch.Generator().manual_seed(SEED))


def _graph(encoder: FrozenEncoder, network: nn.Module) -> bytes:
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*LeafSpec", FutureWarning)  # torch 2.11 on itself
            program: Any = torch.onnx.export(
                network,
                (_noise(encoder, TRACED),),
                input_names=["images"],
                output_names=["features"],
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                dynamo=True,
                verbose=False,
            )
    except Exception as error:  # of the exporter, which meets new layers in many ways
        cause = error.__cause__ or error  # the exporter's own words are of its steps
        reason = str(cause).partition("\n")[0]
        raise UserError(f"{encoder.name} cannot be written as ONNX ({reason}); `--to safetensors` takes it.") from error
    graph = program.model_proto
    for key, value in metadata_of(encoder).items():
        entry = graph.metadata_props.add()
        entry.key, entry.value = key, value
    return graph.SerializeToString()


@torch.no_grad()
def _compare(session: Any, network: nn.Module, images: Tensor) -> None:
    expected = network(images).numpy()
    (found,) = session.run(None, {"images": images.numpy()})
    apart = float(np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-12))
    if apart > TOLERANCE:
        raise UserError(
            f"onnxruntime computes features that differ from PyTorch's by {apart:.1e} of the largest, more than "
            f"{TOLERANCE:g}; nothing was written. Try another version of onnxruntime."
        )
