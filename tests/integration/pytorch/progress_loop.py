# SPDX-License-Identifier: Apache-2.0
"""A training loop that tells Muster how far it is; in the first life of the job rank 1 stands still.

    progress_loop.py WORKER_RUNTIME     the folder with progress.py
"""
import os
import signal
import sys

import torch
import torch.distributed as dist

sys.path.insert(0, sys.argv[1])
from progress import report  # noqa: E402

torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(1, 9):
    if step == 4 and dist.get_rank() == 1 and os.environ["MUSTER_GENERATION"] == "0":
        os.kill(os.getpid(), signal.SIGSTOP)
    loss = model(torch.ones(2, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    report(step, loss=loss.item(), samples=2 * step)
dist.barrier()
