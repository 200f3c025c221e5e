"""What does TF32 cost in accuracy? Errors of losses and their gradients against float64, as one JSON line, on a CPU.

TF32 is emulated: the factors of products have 10 bits of mantissa, sums 32 bits. `bf16_latents` rounds only what the
encoder hands over, in float64: the error that training in bf16 has in any case.
"""

import json
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from logo_ssl.equations import local_to_local, omega_logistic, other_image_pairs, same_image_pairs
from logo_ssl.regressor import Regressor, frozen
from logo_ssl.similarity_losses import info_nce
from logo_ssl.system.hardware import best_device, hardware, provenance

B, D, K = 256, 128, 4096  # images, width of latents, keys: tuned MoCo-LoGo
NAMES = ("info_nce", "its_gradient", "omega", "its_gradient_at_theta_d", "l_ll", "its_gradient_at_z_l")


def short(x):
    """float32 with 10 bits of mantissa, rounded to nearest."""
    bits = x.detach().contiguous().view(torch.int32)
    return ((bits + 0x0FFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


class Product(torch.autograd.Function):
    """A product of matrices as tensor cores make it, forward and backward."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return short(a) @ short(b)

    @staticmethod
    def backward(ctx, gradient):
        a, b = ctx.saved_tensors
        return short(gradient) @ short(b).T, short(a).T @ short(gradient)


class TF32(TorchFunctionMode):
    """All products within are such ones."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__):
            return Product.apply(*args)
        if function is F.linear:
            x, weight, bias = (*args, None)[:3]
            out = Product.apply(x, weight.T)
            return out if bias is None else out + bias
        return function(*args, **(kwargs or {}))


def found(z, keys, regressor, context):
    """Losses and gradients, in the order of the names."""
    z, keys, f_d = z.clone().requires_grad_(), keys.to(z.dtype), Regressor(D).to(z.dtype)
    f_d.load_state_dict(regressor.state_dict())
    partner = torch.arange(B).roll(3)
    with context:
        q = F.normalize(z, dim=-1)
        l_s = info_nce(q[0], q[1].detach(), keys, 0.2).mean()
        gap = omega_logistic(f_d.score, same_image_pairs(z.detach()), other_image_pairs(z.detach(), partner))
        at_theta_d = torch.cat([x.flatten() for x in torch.autograd.grad(gap, list(f_d.parameters()))])
        l_ll = local_to_local(frozen(f_d), z, partner)
        return l_s, torch.autograd.grad(l_s, z)[0], gap, at_theta_d, l_ll, torch.autograd.grad(l_ll, z)[0]


def main():
    torch.manual_seed(0)
    z, keys, regressor = torch.randn(2, B, D), F.normalize(torch.randn(K, D), dim=-1), Regressor(D)
    exact = found(z.double(), keys, regressor, nullcontext())
    cases = {
        "float32": found(z, keys, regressor, nullcontext()),
        "tf32": found(z, keys, regressor, TF32()),
        "bf16_latents": found(z.bfloat16().double(), keys, regressor, nullcontext()),
    }
    errors = {
        case: {
            name: float(f"{((one.double() - other).norm() / other.norm()).item():.1e}")
            for name, one, other in zip(NAMES, got, exact, strict=True)
        }
        for case, got in cases.items()
    }
    print(json.dumps({"benchmark": "tf32", "relative_error": errors} | provenance(hardware(best_device("cpu")))))


if __name__ == "__main__":
    main()
