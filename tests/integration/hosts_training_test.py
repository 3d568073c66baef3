#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training on hosts of their own (tests/nodes/hosts.py), one of which is lost and comes back: the
parameters at the end are those of a run that nothing disturbed, to the bit."""
import json
import os
import unittest

from harness import MUSTER, SOURCE, TRAIN, MusterCase, Process, main, until
from hosts_test import TIMES, WHY_NOT, test_hosts

CONFIG = os.path.join(SOURCE, "configs", "gpt-nano.json")


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Training(MusterCase):
    STEPS = 60

    def setUp(self):
        super().setUp()
        self.corpus = self.make_corpus()
        self.hosts = test_hosts.Hosts(3, self.path("hosts"))

    def tearDown(self):
        self.hosts.close()
        super().tearDown()

    def on(self, host, *words):
        return Process(self, host.words(MUSTER, *words), environment=host.environment())

    def node(self, host, folder):
        """Host 2 has the server; of the other two the job needs both."""
        path = self.path(f"events.{len(self.processes)}.jsonl")
        node = self.on(host, "run", "--events", path, "--nnodes", "2", "--nproc-per-node", "1",
                       "--rdzv-id", folder, "--rdzv-endpoint", "h2:29400", *TIMES,
                       "--max-restarts", "3", "--join-timeout", "120s", "--", TRAIN, "--config",
                       CONFIG, "--set", f"data.path={self.corpus}", "--set",
                       f"checkpoint.dir={self.path(folder)}", "--set", "checkpoint.every_steps=5",
                       "--set", f"steps={self.STEPS}")
        node.events_path = path
        return node

    def result(self, nodes):
        self.assertEqual([node.code(180) for node in nodes], [0, 0],
                         "".join(node.err for node in nodes))
        # Rank 0 prints it, wherever it is by then.
        lines = [line for node in nodes for line in node.out.splitlines() if '"done"' in line]
        last = json.loads(lines[-1])
        self.assertEqual(last["step"], self.STEPS)
        return last["param_hash"]

    def saved(self, folder):
        if not os.path.isdir(self.path(folder)):
            return []
        return [name for name in os.listdir(self.path(folder))
                if name.startswith("step-") and ".tmp" not in name]

    def test_a_host_that_dies_and_comes_back(self):
        server = self.on(self.hosts[2], "rendezvous", "--listen", ":29400", "--state-dir",
                         self.path("server"))
        until(lambda: "29400" in server.err, "the server's line")
        undisturbed = self.result([self.node(host, "calm") for host in self.hosts.all[:2]])
        first, second = (self.node(host, "disturbed") for host in self.hosts.all[:2])
        until(lambda: self.saved("disturbed"), "a checkpoint")
        self.hosts[1].kill()
        second.code()
        self.until_event(first, "node_left", node="h1", reason="lost")
        self.hosts[1].heal()
        back = self.node(self.hosts[1], "disturbed")
        self.assertEqual(self.result([first, back]), undisturbed)
        self.assertEqual(len(self.events(first, "generation_formed")), 2)


if __name__ == "__main__":
    main()
