#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of a small training job with PyTorch's DistributedDataParallel.

    ddp.py RANK RANKS FILE STEPS

The ranks meet through FILE. The environment decides about NCCL's network; DEVICE is the GPU. All numbers are
deterministic, so the losses of two runs are equal if no gradient was damaged.

Lines: "step N LOSS" with the loss in hexadecimal, and "torch VERSION nccl VERSION longest_step_ms median_step_ms".
"""

import os
import sys
import time
from datetime import timedelta

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torch.distributed as dist


def model():
    layers = [torch.nn.Linear(1024, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 2048), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(2048, 1024))


def main():
    rank, ranks, file, steps = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    torch.use_deterministic_algorithms(True)
    device = torch.device("cuda", int(os.environ.get("DEVICE", rank)))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", init_method="file://" + file, rank=rank, world_size=ranks,
                            timeout=timedelta(seconds=60), device_id=device)
    torch.manual_seed(1)
    net = torch.nn.parallel.DistributedDataParallel(model().to(device), device_ids=[device.index])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    torch.manual_seed(100 + rank)
    times = []
    for step in range(steps):
        begin = time.monotonic()
        data = torch.randn(64, 1024, device=device)
        loss = torch.nn.functional.mse_loss(net(data), data.roll(1, 1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = loss.item()
        times.append(time.monotonic() - begin)
        print("step", step, float(value).hex(), flush=True)
    times = sorted(times[1:])
    print("torch %s nccl %s longest_step_ms %.1f median_step_ms %.1f" % (
        torch.__version__, ".".join(map(str, torch.cuda.nccl.version())), times[-1] * 1e3,
        times[len(times) // 2] * 1e3), flush=True)
    dist.destroy_process_group()


main()
