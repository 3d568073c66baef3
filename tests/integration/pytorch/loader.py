# SPDX-License-Identifier: Apache-2.0
"""A rank that reads its data with two worker processes; with an argument it waits in the middle."""
import os
import sys
import tempfile
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        return torch.tensor([float(index)])


tempfile.tempdir = os.getcwd()  # what a killed interpreter leaves is the test's, not Muster's
total = 0.0
for count, batch in enumerate(DataLoader(Numbers(), batch_size=4, num_workers=2,
                                         persistent_workers=True)):
    total += batch.sum().item()
    if len(sys.argv) > 1 and count == 3:
        with open("half.new", "w", encoding="ascii") as file:
            file.write(str(os.getpid()))
        os.replace("half.new", "half")
        time.sleep(1000)
with open(f"total.{os.environ['RANK']}", "w", encoding="ascii") as file:
    file.write(str(total))
