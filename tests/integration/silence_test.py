#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A network that swallows everything, or one direction, or breaks connections: whom it costs what."""
import os
import time

from harness import Process, alive, main, until
from relay import DOWN, UP, Relay
from two_nodes import OwnServer

HEARTBEAT_S = 0.5


class Silence(OwnServer):
    """Node 1 reaches the server through a relay; node 0 goes on without it."""

    def setUp(self):
        super().setUp()
        self.relay = Relay(("127.0.0.9", self.port), ("127.0.0.2", self.port))

    def tearDown(self):
        self.relay.close()
        super().tearDown()

    def running(self, *arguments):
        nodes = [self.node(rank, "--heartbeat", f"{HEARTBEAT_S}s", "--log-level", "info",
                           *arguments, nnodes="1:2", host=host)
                 for rank, host in ((0, "127.0.0.2"), (1, "127.0.0.9"))]
        for node in nodes:
            self.until_event(node, "generation_running", generation=0)
        self.assertEqual(self.formed(nodes[0], 0)["world_size"], 4)
        return nodes

    def node_1_is_lost(self, nodes, since, least, most):
        """`most` is for an idle machine: it grows by ten whole jobs of here and now."""
        left = self.until_event(nodes[0], "node_left", node="n1")[0]
        took = time.monotonic() - since
        self.assertEqual(left["reason"], "lost")
        self.assertGreater(took, least)
        self.assertLess(took, most + 10 * self.whole_job_s())
        formed = self.formed(nodes[0], 1)
        self.assertEqual((formed["reason"], formed["world_size"]), ("node_lost", 2))
        self.let_go(1)
        self.assertEqual(nodes[0].code(), 0, nodes[0].err)
        self.assertEqual(self.events(nodes[0], "job_finished")[0]["restarts_used"], 0)
        # Cut off, or told so: its agent does not leave before its workers.
        workers = self.pids(nodes[1], 0)
        self.assertEqual(len(workers), 2)
        self.assertIn(nodes[1].code(), (76, 77), nodes[1].err)
        self.assertEqual([pid for pid in workers if alive(pid)], [])

    def silent(self, *directions, most):
        nodes = self.running("--node-timeout", "3s", "--server-grace", "6s")
        since = time.monotonic()
        self.relay.hold(*directions)
        # The last heartbeat may have been heard one interval earlier.
        self.node_1_is_lost(nodes, since, 3 - HEARTBEAT_S - 0.1, most)

    def test_silence_of_both_directions(self):
        self.silent(UP, DOWN, most=5)

    def test_silence_towards_the_server(self):
        self.silent(UP, most=5)

    def test_silence_towards_the_node(self):
        # The server hears heartbeats until the agent, which hears nothing, gives the stream up.
        self.silent(DOWN, most=6)

    def test_a_reset_for_good(self):
        nodes = self.running("--node-timeout", "20s", "--server-grace", "25s",
                             "--reconnect-grace", "2s")
        since = time.monotonic()
        self.relay.reset(refuse=True)
        try:
            left = self.until_event(nodes[0], "node_left", node="n1")[0]
            took = time.monotonic() - since
        finally:
            # It may come back, and is told that it is too late.
            self.relay.refusing = False
        self.assertEqual(left["reason"], "lost")
        self.assertGreater(took, 1.9)
        self.assertLess(took, 4 + 10 * self.whole_job_s())
        self.assertEqual(nodes[1].code(), 77, nodes[1].err)
        self.assertEqual([pid for pid in self.pids(nodes[1], 0) if alive(pid)], [])
        self.formed(nodes[0], 1)
        self.let_go(1)
        self.assertEqual(nodes[0].code(), 0, nodes[0].err)

    def nobody_is_lost(self, nodes):
        self.let_go(0)
        for node in nodes:
            self.assertEqual(node.code(), 0, node.err)
            self.assertEqual(self.events(node, "node_left"), [])
            self.assertEqual(len(self.events(node, "generation_formed")), 1)
            self.assertEqual(self.events(node, "job_finished")[0]["restarts_used"], 0)

    def test_a_reset_now_and_then(self):
        nodes = self.running("--reconnect-grace", "5s")
        for times in (1, 2, 3):
            self.relay.reset()
            until(lambda: nodes[1].err.count("attached to the server again") >= times,
                  "the agent's return")
        self.nobody_is_lost(nodes)

    def test_a_silence_that_ends_in_time(self):
        nodes = self.running("--node-timeout", "12s", "--reconnect-grace", "5s")
        for directions in ((UP,), (DOWN,), (UP, DOWN)):
            self.relay.hold(*directions)
            end = time.monotonic() + 3 * HEARTBEAT_S
            until(lambda: time.monotonic() >= end, "a few heartbeats to be missed")
            self.relay.release()
        self.nobody_is_lost(nodes)


class SilenceOnBusyCores(Silence):
    def running(self, *arguments):
        nodes = super().running(*arguments)
        for _ in range(2 * (os.cpu_count() or 1)):
            Process(self, ["/bin/sh", "-c", "while :; do :; done"])
        return nodes


if __name__ == "__main__":
    main()
