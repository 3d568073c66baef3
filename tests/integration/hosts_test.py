#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs on hosts of their own (tests/nodes/hosts.py): any order of start, hosts that die, are cut
off, freeze, and come back."""
import itertools
import json
import os
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

from harness import MUSTER, MusterCase, Process, main, until
from tests.nodes import hosts as test_hosts

WHY_NOT = test_hosts.missing()

# A worker runs until it is let go, by the file of its generation.
WORKER = ("trap 'exit 1' TERM\necho \"$RANK $WORLD_SIZE $MASTER_ADDR $MUSTER_NODE\" "
          ">> {folder}/seen.$MUSTER_GENERATION\n"
          "while [ ! -e {folder}/go.$MUSTER_GENERATION ]; do sleep 0.02; done\n")

# Short enough to wait for, long enough for two busy cores.
TIMES = ("--heartbeat", "200ms", "--node-timeout", "2s", "--server-grace", "4s", "--last-call", "1s",
         "--stop-grace", "1s", "--restart-backoff", "0s")


@unittest.skipIf(WHY_NOT, WHY_NOT)
class OnHosts(MusterCase):
    COUNT = 3

    def setUp(self):
        super().setUp()
        self.hosts = test_hosts.Hosts(self.COUNT, self.path("hosts"))
        self.worker = self.script(WORKER.format(folder=self.folder))

    def tearDown(self):
        self.hosts.close()
        super().tearDown()

    def on(self, host, *words, **options):
        environment = {**host.environment(), **options.pop("environment", {})}
        return Process(self, host.words(MUSTER, *words, init=options.pop("init", False)),
                       environment=environment, **options)

    def node(self, host, *arguments, nnodes="3", endpoint="h0:29400", program=None, **options):
        """The same line on every host."""
        path = self.path(f"events.{len(self.processes)}.jsonl")
        node = self.on(host, "run", "--events", path, "--nnodes", nnodes, "--nproc-per-node", "2",
                       "--rdzv-id", "job", "--rdzv-endpoint", endpoint, *TIMES, *arguments,
                       program or self.worker, **options)
        node.events_path = path
        return node

    def server(self, host, port=29400, **options):
        server = self.on(host, "rendezvous", "--listen", f":{port}", "--state-dir",
                         self.path("server"), **options)
        until(lambda: str(port) in server.err, "the server's line")
        return server

    def running(self, node, generation):
        self.until_event(node, "generation_running", generation=generation)

    def let_go(self, generation):
        open(self.path(f"go.{generation}"), "w", encoding="ascii").close()

    def seen(self, generation):
        """(rank, world size, master address, node) of the workers of a generation."""
        with open(self.path(f"seen.{generation}"), encoding="ascii") as file:
            return sorted(tuple(line.split()) for line in file)

    def formed(self, node, generation):
        return self.until_event(node, "generation_formed", generation=generation)[0]


class Starting(OnHosts):
    def test_every_order_of_start_gives_the_same_job(self):
        for number, order in enumerate(itertools.permutations(range(self.COUNT))):
            with self.subTest(order=order):
                job = ("--rdzv-id", f"job{number}")
                nodes = [self.node(self.hosts[index], *job) for index in order]
                for node in nodes:
                    self.running(node, 0)
                self.let_go(0)
                self.assertEqual([node.code() for node in nodes], [0, 0, 0])
                seen = self.seen(0)
                self.assertEqual([line[:2] for line in seen],
                                 [(str(rank), "6") for rank in range(6)])
                # Whichever node has rank 0, everybody was given its address.
                master = {line[2] for line in seen}
                first = next(host for host in self.hosts if host.name == seen[0][3])
                self.assertEqual(master, {first.address})
                os.remove(self.path("go.0"))
                os.remove(self.path("seen.0"))

    def test_as_process_1_of_a_container(self):
        nodes = [self.node(host, init=True) for host in self.hosts]
        for node in nodes:
            self.running(node, 0)
        self.let_go(0)
        self.assertEqual([node.code() for node in nodes], [0, 0, 0],
                         "".join(node.err for node in nodes))
        for host in self.hosts:
            self.assertEqual(host.pids(), [])

    def test_a_container_is_told_to_stop(self):
        # As by a kubelet: SIGTERM to process 1, which takes its workers along.
        nodes = [self.node(host, nnodes="2:3", init=True) for host in self.hosts]
        for node in nodes:
            self.running(node, 0)
        (leader,) = [pid for pid in self.hosts[2].pids() if self.is_first(pid)]
        os.kill(leader, signal.SIGTERM)
        self.assertEqual(nodes[2].code(), 143, nodes[2].err)
        self.assertEqual(self.hosts[2].pids(), [])
        for node in nodes[:2]:
            self.running(node, 1)
        self.let_go(1)
        self.assertEqual([node.code() for node in nodes[:2]], [0, 0])

    @staticmethod
    def is_first(pid):
        """Whether it is process 1 of a PID namespace of its own."""
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            (line,) = [line for line in file if line.startswith("NSpid:")]
        numbers = line.split()[1:]
        return len(numbers) > 1 and numbers[-1] == "1"

    def test_the_server_of_host_0_dies_with_it_and_comes_back_from_its_journal(self):
        nodes = [self.node(self.hosts[0], "--server-grace", "60s", "--max-restarts", "1")]
        until(lambda: self.events(nodes[0], "node_joined"), "the host of the server")
        nodes += [self.node(host, "--server-grace", "60s", "--max-restarts", "1") for host in self.hosts.all[1:]]
        for node in nodes:
            self.running(node, 0)
        self.hosts[0].kill()
        nodes[0].code()
        self.hosts[0].heal()
        nodes[0] = self.node(self.hosts[0], "--server-grace", "60s", "--max-restarts", "1")
        for node in nodes:
            self.running(node, 1)
        formed = self.formed(nodes[1], 1)
        self.assertEqual((formed["world_size"], formed["reason"]), (6, "node_lost"))
        self.let_go(1)
        self.assertEqual([node.code() for node in nodes], [0, 0, 0],
                         "".join(node.err for node in nodes))


class Finding(OnHosts):
    """Where the server is, by name."""

    COUNT = 3

    def test_a_server_that_comes_back_on_another_host_at_the_same_name(self):
        names = {host.name: host.address for host in self.hosts}
        self.hosts.name({**names, "server": self.hosts[2].address})
        first = self.server(self.hosts[2])
        nodes = [self.node(host, "--max-restarts", "0", nnodes="2", endpoint="server:29400")
                 for host in self.hosts.all[:2]]
        for node in nodes:
            self.running(node, 0)
        before = [self.pids_of(node) for node in nodes]
        self.hosts[2].kill()
        first.code()
        self.hosts.name({**names, "server": self.hosts[0].address})
        self.server(self.hosts[0])
        for node in nodes:
            self.until_event(node, "server_recovered")
        self.let_go(0)
        self.assertEqual([node.code() for node in nodes], [0, 0])
        # Nothing was interrupted.
        self.assertEqual([self.pids_of(node) for node in nodes], before)
        self.assertEqual(self.events(nodes[0], "generation_failed"), [])

    def pids_of(self, node):
        return [event["pid"] for event in self.events(node, "worker_started")]

    @unittest.skipIf(test_hosts.Dns.missing(), test_hosts.Dns.missing())
    def test_a_name_that_is_not_there_yet_and_then_means_another_host(self):
        dns = test_hosts.Dns(self.hosts)
        server = self.server(self.hosts[2])
        endpoint = f"server.{dns.DOMAIN}:29400"
        nodes = [self.node(host, nnodes="2", endpoint=endpoint) for host in self.hosts.all[:2]]
        for node in nodes:
            until(lambda node=node: "looking for the server" in node.err, "a look in vain", 30)
        dns.set("server", self.hosts[2].address)
        for node in nodes:
            self.running(node, 0)
        server.signal(signal.SIGTERM)
        self.assertEqual(server.code(), 0)
        dns.set("server", self.hosts[1].address)
        self.server(self.hosts[1])
        for node in nodes:
            self.until_event(node, "server_recovered")
        self.let_go(0)
        self.assertEqual([node.code() for node in nodes], [0, 0])

    def test_a_link_that_loses_a_packet_in_five(self):
        self.hosts[1].lose(20)
        nodes = [self.node(host, "--node-timeout", "8s") for host in self.hosts]
        for node in nodes:
            self.running(node, 0)
        self.let_go(0)
        self.assertEqual([node.code() for node in nodes], [0, 0, 0])


class Losing(OnHosts):
    """One of three hosts of a job of 2:3, with a server on a host of its own."""

    COUNT = 4

    def setUp(self):
        super().setUp()
        self.own = self.server(self.hosts[3])
        self.nodes = [self.node(host, nnodes="2:3", endpoint="h3:29400")
                      for host in self.hosts.all[:3]]
        for node in self.nodes:
            self.running(node, 0)

    def heartbeat_age(self, name):
        asked = self.on(self.hosts[3], "status", "--rendezvous", "h3:29400", "--json")
        self.assertEqual(asked.code(), 0, asked.err)
        (job,) = json.loads(asked.out)["jobs"]
        (member,) = [member for member in job["members"] if member["node"] == name]
        return member["heartbeat_age_s"]

    def goes_on_without(self, lost, generation=1):
        """The others have formed anew, free of charge."""
        others = [node for node in self.nodes if node is not lost]
        for node in others:
            self.running(node, generation)
        (left,) = self.events(others[0], "node_left")
        self.assertEqual((left["node"], left["reason"]), (f"h{self.nodes.index(lost)}", "lost"))
        formed = self.formed(others[0], generation)
        self.assertEqual((formed["world_size"], formed["reason"]), (4, "node_lost"))
        return others

    def test_a_host_that_dies(self):
        self.hosts[1].kill()
        self.nodes[1].code()
        others = self.goes_on_without(self.nodes[1])
        self.let_go(1)
        self.assertEqual([node.code() for node in others], [0, 0])

    def test_a_host_that_dies_and_is_back_under_its_name_and_address(self):
        self.hosts[1].kill()
        self.nodes[1].code()
        others = self.goes_on_without(self.nodes[1])
        self.hosts[1].heal()
        back = self.node(self.hosts[1], nnodes="2:3", endpoint="h3:29400")
        for node in others + [back]:
            self.running(node, 2)
        self.assertEqual(self.formed(back, 2)["world_size"], 6)
        self.let_go(2)
        self.assertEqual([node.code() for node in others + [back]], [0, 0, 0])

    def cut_off(self, direction, code, words):
        self.hosts[2].cut(direction)
        others = self.goes_on_without(self.nodes[2])
        self.assertEqual(self.nodes[2].code(), code, self.nodes[2].err)
        self.assertIn(words, self.nodes[2].err)
        self.assertEqual(self.hosts[2].pids(), [])
        self.let_go(1)
        self.assertEqual([node.code() for node in others], [0, 0])

    def test_a_host_that_is_cut_off(self):
        # It cannot know: its workers end when the server has been away for too long.
        self.cut_off("both", 76, "muster: ")

    def test_a_host_that_hears_nothing(self):
        self.cut_off("in", 76, "muster: ")

    def test_a_host_that_is_not_heard(self):
        self.cut_off("out", 77, "this node was taken out of the job: no sign of it for 2")

    def test_a_cut_shorter_than_the_time_out_costs_nothing(self):
        self.hosts[2].cut()
        until(lambda: self.heartbeat_age("h2") > 0.7, "three heartbeats that are missed")
        self.hosts[2].heal()
        until(lambda: self.heartbeat_age("h2") < 0.4, "a heartbeat")
        self.let_go(0)
        self.assertEqual([node.code() for node in self.nodes], [0, 0, 0])
        self.assertEqual(self.events(self.nodes[0], "node_left"), [])

    def test_a_host_that_freezes_and_thaws_is_put_out(self):
        self.hosts[0].freeze()
        others = self.goes_on_without(self.nodes[0])
        self.hosts[0].thaw()
        # Its workers belong to a generation that is over.
        self.assertEqual(self.nodes[0].code(), 77, self.nodes[0].err)
        self.assertIn("this node was taken out of the job: no sign of it for", self.nodes[0].err)
        self.assertEqual(self.hosts[0].pids(), [])
        self.let_go(1)
        self.assertEqual([node.code() for node in others], [0, 0])


if __name__ == "__main__":
    main()
