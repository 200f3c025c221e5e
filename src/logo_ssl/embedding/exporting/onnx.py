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


@torch.no_grad()
def to_onnx(encoder: FrozenEncoder, out: Path) -> str:
    """A graph from `images` [B C S S], normalised, to `features` [B F]; refused if onnxruntime computes others."""
    _need("onnxscript")
    runtime = _need("onnxruntime")
    network = with_plain_batch_norm(deepcopy(encoder.backbone).cpu()).eval()
    shape = (encoder.channels, encoder.size, encoder.size)
    content = _graph(encoder, network, torch.zeros(TRACED, *shape))
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    for n_images in TRIED:
        images = torch.randn(n_images, *shape, generator=torch.Generator().manual_seed(SEED))
        expected, (found,) = network(images).numpy(), session.run(None, {"images": images.numpy()})
        apart = float(np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-12))
        if apart > TOLERANCE:
            raise UserError(
                f"onnxruntime computes features that differ from PyTorch's by {apart:.1e} of the largest, more than "
                f"{TOLERANCE:g}; nothing was written. Try another version of onnxruntime."
            )
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


def _graph(encoder: FrozenEncoder, network: nn.Module, images: Tensor) -> bytes:
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*LeafSpec", FutureWarning)  # torch 2.11 on itself
            program: Any = torch.onnx.export(
                network,
                (images,),
                input_names=["images"],
                output_names=["features"],
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                dynamo=True,
                verbose=False,
            )
    except Exception as error:  # of the exporter, which meets new layers in many ways
        reason = str(error.__cause__ or error).partition("\n")[0]  # its own words are of its steps
        raise UserError(f"{encoder.name} cannot be written as ONNX ({reason}); `--to safetensors` takes it.") from error
    graph = program.model_proto
    for key, value in metadata_of(encoder).items():
        graph.metadata_props.add(key=key, value=value)
    return graph.SerializeToString()
