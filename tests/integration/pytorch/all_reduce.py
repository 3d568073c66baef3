# SPDX-License-Identifier: Apache-2.0
"""Every rank adds its number with gloo; what comes out lies in sum.<rank>."""
import torch
import torch.distributed as dist

dist.init_process_group("gloo", init_method="env://")
value = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(value)
with open(f"sum.{dist.get_rank()}", "w", encoding="ascii") as file:
    file.write(f"{value.item()} {dist.get_world_size()}")
dist.barrier()
dist.destroy_process_group()
