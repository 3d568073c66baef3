#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rendezvous server is killed and started again: what its journal holds goes on."""
import json
import os
import shutil
import signal
import time

from harness import PATIENCE, SOURCE, TRAIN, alive, main, until
from two_nodes import TwoNodes


class ServerRestartTest(TwoNodes):

    def running(self, *arguments, **options):
        nodes = [self.node(rank, *arguments, **options) for rank in (0, 1)]
        for node in nodes:
            self.until_event(node, "generation_running", generation=0)
        return nodes

    def kill(self, server):
        server.signal(signal.SIGKILL)
        self.assertEqual(server.code(), 137)

    def test_the_same_generation_goes_on_with_the_same_workers(self):
        server = self.server()
        nodes = self.running("--max-restarts", "1")
        workers = [pid for node in nodes for pid in self.pids(node, 0)]
        self.assertEqual(len(workers), 4)
        for times in range(2):
            for node in nodes:
                before = len(self.events(node, "server_recovered"))
                self.assertEqual(before, times)
            self.kill(server)
            server = self.server()
            self.assertIn("1 job (job) goes on", server.err)
            for node in nodes:
                self.until_event(node, "server_recovered", count=times + 1)
        self.assertEqual([pid for pid in workers if not alive(pid)], [])
        self.let_go(0)
        self.assertEqual([node.code() for node in nodes], [0, 0], nodes[0].err + nodes[1].err)
        for node in nodes:
            self.assertEqual(self.events(node, "job_finished")[0]["restarts_used"], 0)
            self.assertEqual(len(self.events(node, "generation_formed")), 1)
        self.kill(server)

    def stored(self, key):
        """Whether the server's journal has the key: no other process may open it meanwhile."""
        for name in os.listdir(self.path("server")):
            if name.startswith("journal.db"):
                with open(self.path("server/" + name), "rb") as file:
                    if key in file.read():
                        return True
        return False

    def test_a_key_set_before_is_read_after(self):
        server = self.server()
        # The trainer's ranks leave their addresses in the store; rank 1 comes when it is let.
        worker = self.script(
            "trap 'exit 1' TERM\n[ $RANK = 0 ] || while [ ! -e second ]; do sleep 0.01; done\n"
            f"exec {TRAIN} --config {SOURCE}/configs/gpt-nano.json --set steps=2 "
            f"--set data.path={SOURCE}/LICENSE\n", "train.sh")
        nodes = [self.node(rank, "--nproc-per-node", "1", program=worker) for rank in (0, 1)]
        until(lambda: self.stored(b"mesh/0/"), "rank 0's key")
        workers = [pid for node in nodes for pid in self.pids(node, 0)]
        self.kill(server)
        server = self.server()
        self.assertTrue(self.stored(b"mesh/0/"))
        for node in nodes:
            self.until_event(node, "server_recovered")
        self.assertEqual([pid for pid in workers if not alive(pid)], [])
        open(self.path("second"), "w", encoding="utf-8").close()
        self.assertEqual([node.code() for node in nodes], [0, 0], nodes[0].err + nodes[1].err)
        self.assertEqual(json.loads(nodes[0].out.strip().splitlines()[-1])["step"], 2, nodes[0].out)
        for node in nodes:
            self.assertEqual(len(self.events(node, "generation_formed")), 1)
            self.assertEqual(self.events(node, "job_finished")[0]["restarts_used"], 0)
        self.kill(server)

    def test_a_failure_while_no_server_is_there_costs_one_restart(self):
        server = self.server()
        nodes = self.running("--max-restarts", "1")
        self.kill(server)
        os.kill(self.pids(nodes[1], 0)[0], signal.SIGKILL)
        server = self.server()
        for node in nodes:
            self.until_event(node, "generation_running", generation=1)
        failed = self.events(nodes[0], "generation_failed")[0]["first_cause"]
        self.assertEqual((failed["node"], failed["signal"]), ("n1", "SIGKILL"))
        self.kill(server)
        server = self.server()
        self.let_go(1)
        self.assertEqual([node.code() for node in nodes], [0, 0], nodes[0].err + nodes[1].err)
        self.assertEqual(self.events(nodes[0], "job_finished")[0]["restarts_used"], 1)
        self.kill(server)

    def told_to_stop_without_a_server(self, *arguments):
        """The nodes, the second of which has been told to stop and has no worker left."""
        server = self.server()
        nodes = self.running("--max-restarts", "0", *arguments, nnodes="1:2")
        workers = self.pids(nodes[1], 0)
        self.kill(server)
        nodes[1].signal(signal.SIGTERM)
        until(lambda: not any(alive(pid) for pid in workers), "the workers of n1 to be gone")
        return nodes

    def test_a_node_told_to_stop_while_no_server_is_there_says_so_later(self):
        nodes = self.told_to_stop_without_a_server()
        until(lambda: "to tell it that this node leaves" in nodes[1].err, "the line about it")
        server = self.server()
        self.assertEqual(nodes[1].code(), 143, nodes[1].err)
        formed = self.formed(nodes[0], 1)
        self.assertEqual((formed["reason"], formed["world_size"]), ("node_left", 2))
        self.let_go(1)
        self.assertEqual(nodes[0].code(), 0, nodes[0].err)
        self.assertEqual(self.events(nodes[0], "generation_failed"), [])
        self.kill(server)

    def test_a_node_told_to_stop_twice_does_not_wait_for_a_server(self):
        nodes = self.told_to_stop_without_a_server()
        until(lambda: "to tell it that this node leaves" in nodes[1].err, "the line about it")
        nodes[1].signal(signal.SIGTERM)
        self.assertEqual(nodes[1].code(), 143, nodes[1].err)
        nodes[0].signal(signal.SIGTERM)
        nodes[0].signal(signal.SIGTERM)
        self.assertEqual(nodes[0].code(), 143, nodes[0].err)

    def test_a_server_that_stays_away_is_76(self):
        server = self.server()
        nodes = self.running("--server-grace", "2s")
        workers = [pid for node in nodes for pid in self.pids(node, 0)]
        self.kill(server)
        self.assertEqual([node.code() for node in nodes], [76, 76], nodes[0].err + nodes[1].err)
        self.assertEqual([pid for pid in workers if alive(pid)], [])

    def test_an_outcome_is_kept(self):
        server = self.server()
        self.let_go(0)
        nodes = [self.node(rank) for rank in (0, 1)]
        self.assertEqual([node.code() for node in nodes], [0, 0], nodes[0].err + nodes[1].err)
        self.kill(server)
        server = self.server()
        status = self.muster("status", "--rendezvous", f"127.0.0.2:{self.port}", "--json")
        self.assertEqual(status.code(), 0, status.err)
        self.assertIn('"succeeded"', status.out)
        # Another run of the same job begins anew beside it.
        again = [self.node(rank) for rank in (0, 1)]
        self.assertEqual([node.code() for node in again], [0, 0], again[0].err + again[1].err)
        self.assertNotEqual(self.events(again[0], "job_finished")[0]["run"],
                            self.events(nodes[0], "job_finished")[0]["run"])
        self.kill(server)

    def status(self):
        status = self.muster("status", "--rendezvous", f"127.0.0.2:{self.port}", "--json")
        self.assertEqual(status.code(), 0, status.err)
        return json.loads(status.out)["jobs"]

    def test_an_outcome_is_forgotten_after_its_time(self):
        server = self.server("--outcome-kept", "8s")
        self.assertIn("--outcome-kept 8s is less than the --server-grace of 1m", server.err)
        self.let_go(0)
        nodes = [self.node(rank) for rank in (0, 1)]
        self.assertEqual([node.code() for node in nodes], [0, 0], nodes[0].err + nodes[1].err)
        ended = time.monotonic()
        while jobs := self.status():
            self.assertEqual(jobs[0]["outcome"]["outcome"], "succeeded", jobs)
            self.assertLess(time.monotonic() - ended, 8 + PATIENCE)
        self.assertGreater(time.monotonic() - ended, 6)
        # The journal does not bring it back.
        self.kill(server)
        server = self.server()
        self.assertEqual(self.status(), [])
        self.kill(server)

    def test_an_embedded_server_is_started_again_with_its_node(self):
        nodes = self.running("--server-grace", "30s", "--max-restarts", "3", nnodes="1:2")
        run = self.events(nodes[1], "generation_running")[0]["run"]
        os.kill(nodes[0].agent(), signal.SIGKILL)
        self.assertEqual(nodes[0].code(), 70)
        again = self.node(0, "--server-grace", "30s", "--max-restarts", "3", nnodes="1:2")
        formed = self.formed(nodes[1], 1)
        self.assertEqual((formed["reason"], formed["run"]), ("node_lost", run))
        self.until_event(again, "generation_running", generation=1)
        self.let_go(1)
        self.assertEqual([again.code(), nodes[1].code()], [0, 0], again.err + nodes[1].err)
        self.assertEqual(self.events(again, "job_finished")[0]["restarts_used"], 0)

    def refused(self):
        damaged = self.muster("rendezvous", "--listen", f"127.0.0.2:{self.port}",
                              "--state-dir", self.path("server"))
        self.assertEqual(damaged.code(), 2, damaged.err)
        self.assertEqual(len(damaged.err.splitlines()), 1, damaged.err)
        return damaged.err

    def test_a_damaged_journal_is_refused_and_kept(self):
        server = self.server()
        nodes = self.running("--server-grace", "2s")
        self.kill(server)
        journal = self.path("server/journal.db")
        for name in os.listdir(self.path("server")):
            if name.startswith("journal.db-"):
                os.remove(self.path("server/" + name))
        with open(journal, "r+b") as file:
            file.truncate(4096)
        said = self.refused()
        self.assertIn("--state-dir", said)
        self.assertIn(f"move {journal}* away", said)
        self.assertEqual(os.path.getsize(journal), 4096)
        self.assertEqual([node.code() for node in nodes], [76, 76])

    def test_a_journal_whose_log_is_damaged_is_refused_and_kept(self):
        server = self.server()
        nodes = self.running("--server-grace", "30s")
        self.kill(server)
        journal = self.path("server/journal.db")
        with open(journal + "-wal", "rb") as file:
            log = file.read()
        flipped = bytearray(log)
        flipped[32 + 24 + 100] ^= 1  # in the first frame's page: all behind it goes with it
        for damaged, lost in ((flipped, "all of its "), (log[:-5000], "the last "),
                              (b"", "all of its "), (None, "all of its ")):
            if damaged is None:
                os.remove(journal + "-wal")
            else:
                with open(journal + "-wal", "wb") as file:
                    file.write(damaged)
            said = self.refused()
            self.assertIn(f"--state-dir: {journal} is damaged ({lost}", said)
            self.assertIn("missing: journal.db-wal is cut, altered or gone); to begin anew", said)
            self.assertIn(f"move {journal}* away", said)
            if damaged:
                with open(journal + "-wal", "rb") as file:
                    self.assertEqual(file.read(), damaged)
        # Whole again, it goes on as if nothing had been.
        with open(journal + "-wal", "wb") as file:
            file.write(log)
        server = self.server()
        self.assertIn("1 job (job) goes on", server.err)
        self.assertNotIn("journal.db", server.err)
        for node in nodes:
            self.until_event(node, "server_recovered")
        self.let_go(0)
        self.assertEqual([node.code() for node in nodes], [0, 0], nodes[0].err + nodes[1].err)
        # Moved away, the next one begins anew.
        self.kill(server)
        for name in os.listdir(self.path("server")):
            if name.startswith("journal.db"):
                os.rename(self.path("server/" + name), self.path("aside-" + name))
        server = self.server()
        self.assertIn("no job is live", server.err)
        self.assertNotIn("journal.db", server.err)
        self.kill(server)

    def test_a_journal_without_its_mark_is_taken_with_a_word(self):
        server = self.server()
        nodes = self.running()
        self.kill(server)
        os.remove(self.path("server/journal.db-mark"))
        server = self.server()
        self.assertIn("journal.db-mark is missing: nobody can tell", server.err)
        self.assertIn("1 job (job) goes on", server.err)
        self.let_go(0)
        self.assertEqual([node.code() for node in nodes], [0, 0], nodes[0].err + nodes[1].err)
        server.signal(signal.SIGTERM)
        self.assertEqual(server.code(), 0)
        # Closed in order: no log is left, and the mark says so.
        self.assertEqual(sorted(os.listdir(self.path("server"))),
                         ["journal.db", "journal.db-mark", "lock"])
        with open(self.path("server/journal.db-mark"), encoding="utf-8") as file:
            self.assertIn(" closed ", file.read())

    def test_an_embedded_server_says_what_it_cannot_write(self):
        shutil.rmtree(self.path("state"), ignore_errors=True)
        with open(self.path("state"), "w", encoding="utf-8") as file:
            file.write("in the way")
        nodes = self.running()
        until(lambda: "keeps its state in memory" in nodes[0].err, "the line")
        self.let_go(0)
        self.assertEqual([node.code() for node in nodes], [0, 0], nodes[0].err + nodes[1].err)


if __name__ == "__main__":
    main()
