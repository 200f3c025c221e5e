"""What does it cost to train in two processes? Steps with and without the other one, in turns, as one JSON line.

Both processes always work at once, on half a batch each: alone, they share nothing; together, they are one run. So the
ratio is what sharing costs, not what two cores gain; that of CPU seconds leaves out waiting, which other programs
lengthen. Messages are counted on the way: their number and bytes per step.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from logo_ssl.augment import make_crops
from logo_ssl.data import ImageSet, Split
from logo_ssl.models.batch_norm import average_statistics
from logo_ssl.recipes import find_recipe
from logo_ssl.system.distributed import all_mean, rank, world_size
from logo_ssl.system.hardware import hardware, provenance
from logo_ssl.system.randomness import stream
from logo_ssl.train import build

WARM_UP = 2
COUNTED = ("all_reduce", "all_gather", "all_to_all_single")


class Step(nn.Module):
    """Algorithm 1 up to the loss of theta_e, as DDP wants it: a forward pass."""

    def __init__(self, module):
        super().__init__()
        self.framework, self.strategy = module.framework, module.strategy
        self._ddp_params_and_buffers_to_ignore = [f"strategy.{n}" for n, _ in self.strategy.named_parameters()]
        self.optimiser, *self.regressor_optimiser = module.configure_optimizers()

    def forward(self, crops, chance):
        p = self.framework.project(crops, self.strategy.roles)
        inner, theta_d = self.strategy.inner(p, chance), list(self.strategy.parameters())
        if inner is not None:
            gradients = all_mean(torch.autograd.grad(inner.loss, theta_d))
            for parameter, gradient in zip(theta_d, gradients, strict=True):
                parameter.grad = gradient
            self.regressor_optimiser[0].step()
        theta_e = [q for q in self.framework.encoder.parameters() if q.requires_grad]
        return self.strategy.outer(self.framework.similarity, p, chance, theta_e).loss, p


def work(number, folder, options, out):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=number, world_size=2)
    n = options.batch // 2
    recipe = find_recipe(options.recipe).changed(batch_size=options.batch)
    images = torch.randint(0, 256, (4 * n, 3, options.side, options.side), dtype=torch.uint8)
    module = build(recipe, ImageSet("noise", Split(images)))
    step = Step(module)
    shared = DistributedDataParallel(step, broadcast_buffers=False)
    sent = {name: [0, 0] for name in COUNTED}

    def one(net, i):
        draws = stream(0, "step", i, 0)
        part = (rank(), world_size())
        crops = make_crops(images[:n], recipe.crops, draws, module.mean, module.std, part=part)
        step.optimiser.zero_grad()
        loss, p = net(crops, module.strategy.draw(n * world_size(), draws))
        loss.backward()
        step.optimiser.step()
        module.framework.after_step(p, 0.0)
        average_statistics(module.framework)

    seconds, cpu_seconds = ({"alone": [], "together": []} for _ in range(2))
    for i in range(WARM_UP + options.steps):
        for kind, net in (("alone", step), ("together", shared)):  # in turns, so that noise hits both alike
            dist.barrier()
            with counted(sent) if kind == "together" else apart():
                began, began_cpu = time.perf_counter(), time.process_time()
                one(net, i)
                took, took_cpu = time.perf_counter() - began, time.process_time() - began_cpu
            if i >= WARM_UP:
                seconds[kind].append(took)
                cpu_seconds[kind].append(took_cpu)
    if number == 0:
        weights = sum(q.numel() for q in module.framework.parameters() if q.requires_grad)
        steps = WARM_UP + options.steps
        medians = {kind: statistics.median(times) for kind, times in seconds.items()}
        cpu_medians = {kind: statistics.median(times) for kind, times in cpu_seconds.items()}
        result = {
            "recipe": options.recipe,
            "batch": options.batch,
            "processes": 2,
            "threads_each": 1,
            "steps": options.steps,
            "seconds": {kind: round(value, 4) for kind, value in medians.items()},
            "ratio": round(medians["together"] / medians["alone"], 3),
            "ratio_of_cpu_seconds": round(cpu_medians["together"] / cpu_medians["alone"], 3),
            "spread": {kind: round(statistics.stdev(times), 4) for kind, times in seconds.items()},
            "ddp_gradient_bytes": 4 * weights,
            "messages_per_step": {name: count // steps for name, (count, _) in sent.items()},
            "bytes_per_step": {name: size // steps for name, (_, size) in sent.items()},
        }
        out.put(result | provenance(hardware(torch.device("cpu"))))
    dist.barrier()
    dist.destroy_process_group()


@contextmanager
def apart():
    """As if there were no other process."""
    known, dist.is_initialized = dist.is_initialized, lambda: False
    try:
        yield
    finally:
        dist.is_initialized = known


@contextmanager
def counted(sent):
    """Counts the messages that our code sends; DDP sends its own out of sight."""
    known = {name: getattr(dist, name) for name in COUNTED}

    def counting(name):
        def call(first, *rest, **options):
            tensor = first if name == "all_reduce" else rest[0]
            sent[name][0] += 1
            sent[name][1] += tensor.nbytes
            return known[name](first, *rest, **options)

        return call

    for name in COUNTED:
        setattr(dist, name, counting(name))
    try:
        yield
    finally:
        for name, function in known.items():
            setattr(dist, name, function)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", default="tiny")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--steps", type=int, default=15)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    context = mp.get_context("spawn")
    out = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(work, (folder, parser.parse_args(), out), nprocs=2, start_method="spawn")
    print(json.dumps(out.get()))


if __name__ == "__main__":
    main()
