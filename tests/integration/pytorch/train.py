# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training of a small network with a checkpoint after every step.

    train.py FOLDER MANNER     MANNER: calm, exit, raise, or kill: what the last rank does at step 6
                               of the first life of the job

It knows nothing of what launched it but torchrun's variables. The last parameters' hash lies in
FOLDER/hash.
"""
import hashlib
import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel

STEPS = 10


def save(path, model, optimizer, step):
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step},
               path + ".new")
    os.replace(path + ".new", path)


def misbehave(manner):
    if manner == "exit":
        os._exit(7)
    if manner == "raise":
        raise ValueError("the batch is rotten")
    if manner == "kill":
        os.kill(os.getpid(), signal.SIGKILL)


@record
def main():
    folder, manner = sys.argv[1:3]
    torch.manual_seed(1)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    path = os.path.join(folder, "checkpoint")
    first = 1
    if os.path.exists(path):
        state = torch.load(path)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"] + 1
    for step in range(first, STEPS + 1):
        first_life = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
        if step == 6 and first_life and rank == dist.get_world_size() - 1:
            misbehave(manner)
        # The data of a step depends on nothing but step and rank.
        generator = torch.Generator().manual_seed(1000 * step + rank)
        inputs = torch.randn(4, 8, generator=generator)
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            save(path, model, optimizer, step)
        dist.barrier()
    if rank == 0:
        digest = hashlib.sha256()
        for parameter in model.parameters():
            digest.update(parameter.detach().numpy().tobytes())
        with open(os.path.join(folder, "hash"), "w", encoding="ascii") as file:
            file.write(digest.hexdigest())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
