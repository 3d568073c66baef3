#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same program under torchrun and under `muster run`: every variable that differs is in the
table below, with the reason, and prints; and what is in the table does differ."""
import json
import os
import re

import pytorch_test
from harness import Process, free_port, main
from pytorch_test import PYTHON, TorchCase, program

setUpModule = pytorch_test.setUpModule
ABSENT = "(absent)"

# By name or pattern.
DIFFERENCES = {
    r"MUSTER_.*": "ours",
    "PYTHONUNBUFFERED": "set where torchrun passes -u alone: a wrapper's Python is unbuffered too",
    "MASTER_PORT": "chosen anew for each generation",
    "TORCHELASTIC_ERROR_FILE": "below our own folders",
    "TORCHELASTIC_RUN_ID": "unique, with --standalone",
    "MASTER_ADDR": "rank 0's address as the server saw it, no name that others may not know",
    "NCCL_ASYNC_ERROR_HANDLING": "its name before PyTorch 2.2; torchrun 1.13 sets it",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "its name today",
}


class Comparison(TorchCase):
    def variables(self, folder, count):
        found = []
        for rank in range(count):
            with open(self.path(f"{folder}/env.{rank}.json"), encoding="utf-8") as file:
                found.append(json.load(file))
        return found

    def torchrun(self, *arguments):
        # Its own defaults of the last two fail on Python 3.11: a value for the tenth rank does not.
        return Process(self, [PYTHON, "-m", "torch.distributed.run", "--monitor_interval", "0.1",
                              "--log_dir", self.path("theirs"), "--redirects", "9:1", "--tee",
                              "9:1", *arguments])

    def compare(self, count, unlike):
        """`unlike`: rows of the table that this kind of job does not show."""
        seen = set()
        for rank, (theirs, ours) in enumerate(zip(self.variables("torchrun", count),
                                                  self.variables("muster", count))):
            for name in sorted(theirs.keys() | ours.keys()):
                values = theirs.get(name, ABSENT), ours.get(name, ABSENT)
                if values[0] == values[1]:
                    continue
                row = next((row for row in DIFFERENCES if re.fullmatch(row, name)), None)
                print(f"rank {rank} {name}: torchrun {values[0]!r}, muster {values[1]!r}: "
                      f"{DIFFERENCES.get(row, 'UNEXPECTED')}")
                self.assertIsNotNone(row, name)
                seen.add(row)
        self.assertEqual(DIFFERENCES.keys() - seen, unlike)

    def test_one_node(self):
        for folder in ("torchrun", "muster", "theirs"):
            os.mkdir(self.path(folder))
        peer = self.torchrun("--standalone", "--nproc_per_node", "2", program("variables.py"),
                             self.path("torchrun"))
        self.assertEqual(peer.code(), 0, peer.err)
        self.end_well(self.launch(1, program("variables.py"), self.path("muster")))
        self.compare(2, set())

    def test_two_nodes(self):
        for folder in ("torchrun", "muster", "theirs"):
            os.mkdir(self.path(folder))
        port = free_port()
        peers = [self.torchrun("--nnodes", "2", "--nproc_per_node", "1", "--rdzv_backend", "c10d",
                               "--rdzv_endpoint", f"localhost:{port}", "--rdzv_id", "pair",
                               program("variables.py"), self.path("torchrun")) for _ in range(2)]
        self.end_well(peers)
        self.end_well(self.launch(2, "--rdzv-id", "pair", program("variables.py"),
                                  self.path("muster")))
        self.compare(2, {"TORCHELASTIC_RUN_ID"})  # it was given


if __name__ == "__main__":
    main()
