#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two nodes on loopback addresses, each its own `muster run`; losses, leaves, and the server's."""
import os
import shutil
import signal
import time

from harness import alive, free_port, main, until
from two_nodes import TwoNodes


class TwoNodesTest(TwoNodes):
    def test_success_and_the_same_world_on_both(self):
        for order in ((0, 1), (1, 0)):
            with self.subTest(order=order):
                nodes = {}
                for rank in order:
                    nodes[rank] = self.node(rank)
                self.until_event(nodes[0], "generation_running", generation=0)
                self.let_go(0)
                self.assertEqual([nodes[rank].code() for rank in (0, 1)], [0, 0],
                                 nodes[0].err + nodes[1].err)
                for node in (0, 1):
                    for local_rank in (0, 1):
                        line = self.seen(node, local_rank)[-1]
                        self.assertEqual(line[:6], [str(2 * node + local_rank), "4", str(node), "0",
                                                    "start", "0"])
                        self.assertEqual(line[6], "127.0.0.2")
                outcomes = [self.events(nodes[rank], "job_finished")[0]["outcome"] for rank in (0, 1)]
                self.assertEqual(outcomes, ["succeeded", "succeeded"])
                os.remove(self.path("go.0"))
                self.port = free_port()

    def test_nodes_of_one_host_that_start_together_have_one_server_and_its_journal(self):
        for round_number in range(10):
            nodes = [self.run_job("--nnodes", "2", "--rdzv-id", f"job{round_number}",
                                  "--rdzv-endpoint", f"127.0.0.1:{self.port}", "--node-rank",
                                  str(rank), "--node-name", f"n{rank}", self.script("exit 0\n"))
                     for rank in (0, 1)]
            with self.subTest(round_number=round_number):
                self.assertEqual([node.code() for node in nodes], [0, 0])
                for node in nodes:
                    self.assertNotIn("in memory", node.err)

    def test_a_program_missing_on_one_node_ends_the_job(self):
        here, there = self.path("here"), self.path("there")
        for folder in (here, there):
            os.mkdir(folder)
        for mode, code in ((None, 127), (0o644, 126)):
            with self.subTest(code=code):
                self.port = free_port()
                for folder in (here, there):
                    path = os.path.join(folder, "prog")
                    with open(path, "wb") as file:
                        file.write(b"#!/bin/sh\nexec sleep 1000\n" if folder == here else b"\x7fELF")
                    os.chmod(path, 0o755 if folder == here else mode or 0o755)
                    if folder == there and mode is None:
                        os.remove(path)
                nodes = [self.node(rank, program="./prog", cwd=folder)
                         for rank, folder in ((0, here), (1, there))]
                self.assertEqual([node.code() for node in nodes], [code, code],
                                 nodes[0].err + nodes[1].err)
                self.assertIn("./prog", nodes[1].err.splitlines()[0])
                self.assertIn("joins nevertheless", nodes[1].err)
                self.assertIn("node n1", nodes[0].err)

    def test_ctrl_c_on_both_nodes_is_an_outcome(self):
        # With one signal and with two, whoever has the server: the last member tells how it ended.
        worker = self.script("trap : INT TERM\necho $$ >> up\nwhile :; do sleep 0.01; done\n",
                             "deaf.sh")
        for signals, grace in ((1, "1s"), (2, "20s")):
            for rank in (0, 1):  # who goes last; node 0 has the server
                with self.subTest(signals=signals, last=rank):
                    self.port = free_port()
                    server = self.server() if rank == 1 else None
                    nodes = [self.node(rank, "--stop-grace", grace, program=worker) for rank in (0, 1)]
                    until(lambda: os.path.exists(self.path("up")) and
                          len(self.read("up").split()) == 4, "all traps")
                    os.remove(self.path("up"))
                    last, first = nodes[rank], nodes[1 - rank]
                    first.signal(signal.SIGINT)
                    self.until_event(last, "node_left")
                    last.signal(signal.SIGINT)
                    if signals == 2:
                        time.sleep(0.15)  # an echo of the first does not count
                        first.signal(signal.SIGINT)
                        until(lambda: first.popen.poll() is not None, "the first node's end")
                        last.signal(signal.SIGINT)
                    self.assertEqual([node.code() for node in nodes], [130, 130],
                                     nodes[0].err + nodes[1].err)
                    finished = self.events(last, "job_finished")
                    self.assertEqual([(e["outcome"], e["exit_code"]) for e in finished],
                                     [("stopped", 130)], last.err)
                    if server:
                        server.signal(signal.SIGTERM)
                        server.code()

    def test_kill_9_of_a_worker_restarts_both_for_one_restart(self):
        nodes = [self.node(rank, "--max-restarts", "1") for rank in (0, 1)]
        self.until_event(nodes[1], "generation_running", generation=0)
        old = self.pids(nodes[0], 0) + self.pids(nodes[1], 0)
        os.kill(self.pids(nodes[1], 0)[0], signal.SIGKILL)
        self.until_event(nodes[0], "generation_running", generation=1)
        self.assertEqual([pid for pid in old if alive(pid)], [])
        self.let_go(1)
        self.assertEqual([node.code() for node in nodes], [0, 0], nodes[0].err + nodes[1].err)
        for node in (0, 1):
            self.assertEqual(self.seen(node)[-1][3:6], ["1", "worker_failure", "1"])
        cause = self.events(nodes[0], "generation_failed")[0]["first_cause"]
        self.assertEqual((cause["node"], cause["rank"]), ("n1", 2))

    def test_a_failure_gives_every_agent_the_same_outcome(self):
        nodes = [self.node(rank, program=self.script("[ $RANK = 3 ] && exit 9\nsleep 600\n"))
                 for rank in (0, 1)]
        self.assertEqual([node.code() for node in nodes], [9, 9], nodes[0].err + nodes[1].err)

    def survivor_goes_on(self, lost, kill):
        server = self.server()
        nodes = [self.node(rank, nnodes="1:2") for rank in (0, 1)]
        for node in nodes:
            self.until_event(node, "generation_running", generation=0)
        kill(nodes[lost])
        left = nodes[1 - lost]
        formed = self.formed(left, 1)
        self.assertEqual(formed["world_size"], 2)
        self.let_go(1)
        self.assertEqual(left.code(), 0, left.err)
        self.assertEqual(self.seen(1 - lost)[-1][1:2], ["2"])
        self.assertEqual(self.seen(1 - lost)[-1][5], "0")  # free
        server.signal(signal.SIGTERM)
        self.assertIn(server.code(), (0, 143))
        return formed

    def test_kill_9_of_either_agent_with_a_separate_server(self):
        for lost in (0, 1):
            with self.subTest(lost=lost):
                formed = self.survivor_goes_on(lost, lambda job: os.kill(job.agent(), signal.SIGKILL))
                self.assertEqual(formed["reason"], "node_lost")
                for name in ("go.1", f"seen.n{1 - lost}.0"):
                    os.remove(self.path(name))
                self.port = free_port()

    def test_sigterm_to_one_agent_is_a_leave(self):
        codes = []

        def stop(job):
            job.signal(signal.SIGTERM)
            codes.append(job.code())
        formed = self.survivor_goes_on(1, stop)
        self.assertEqual(codes, [143])
        self.assertIn(formed["reason"], ("node_left", "preempted"))

    def test_embedded_server_node_1_killed_node_0_goes_on(self):
        nodes = [self.node(rank, nnodes="1:2") for rank in (0, 1)]
        for node in nodes:
            self.until_event(node, "generation_running", generation=0)
        os.kill(nodes[1].agent(), signal.SIGKILL)
        self.formed(nodes[0], 1)
        self.let_go(1)
        self.assertEqual(nodes[0].code(), 0, nodes[0].err)

    def both_running(self, *arguments):
        nodes = [self.node(rank, "--server-grace", "2s", "--max-restarts", "3", *arguments,
                           nnodes="1:2") for rank in (0, 1)]
        for node in nodes:
            self.until_event(node, "generation_running", generation=0)
        return nodes

    def test_embedded_server_lost_is_76_after_the_grace(self):
        nodes = self.both_running()
        workers = self.pids(nodes[1], 0)
        start = time.monotonic()
        os.kill(nodes[0].agent(), signal.SIGKILL)
        self.assertEqual(nodes[1].code(), 76, nodes[1].err)
        # The grace counts from the last heartbeat that was answered, a second old at most.
        self.assertGreater(time.monotonic() - start, 0.5)
        self.assertEqual([pid for pid in workers if alive(pid)], [])

    def test_a_pause_of_the_hosting_agent_loses_nobody(self):
        # A short grace: one that breaks for the pause is waited for in spite of it.
        nodes = [self.node(rank, "--heartbeat", "500ms", "--node-timeout", "2s",
                           "--reconnect-grace", "1ms", "--log-level", "info") for rank in (0, 1)]
        for node in nodes:
            self.until_event(node, "generation_running", generation=0)
        agent = nodes[0].agent()
        os.kill(agent, signal.SIGSTOP)
        try:
            until(lambda: "lost the stream" in nodes[1].err, "the other agent to give up")
        finally:
            os.kill(agent, signal.SIGCONT)
        until(lambda: "attached to the server again" in nodes[1].err, "the other agent's return")
        self.let_go(0)
        self.assertEqual([node.code() for node in nodes], [0, 0], nodes[0].err + nodes[1].err)
        for node in nodes:
            self.assertEqual(self.events(node, "node_left"), [])
            self.assertEqual(self.events(node, "job_finished")[0]["restarts_used"], 0)

    def test_embedded_server_started_again_without_its_journal_adopts_the_job(self):
        nodes = self.both_running("--server-grace", "30s")
        # One charged restart first: the number must survive the server.
        os.kill(self.pids(nodes[1], 0)[0], signal.SIGKILL)
        self.until_event(nodes[1], "generation_running", generation=1)
        run = self.events(nodes[1], "generation_running", generation=1)[0]["run"]
        os.kill(nodes[0].agent(), signal.SIGKILL)
        self.assertEqual(nodes[0].code(), 70)
        shutil.rmtree(self.path("state/muster/job/server"))
        again = self.node(0, "--server-grace", "30s", "--max-restarts", "3", nnodes="1:2")
        formed = self.formed(nodes[1], 2)
        self.assertEqual(formed["reason"], "state_lost")
        self.assertEqual(formed["run"], run)
        self.until_event(again, "generation_running", generation=2)
        self.let_go(2)
        self.assertEqual([again.code(), nodes[1].code()], [0, 0], again.err + nodes[1].err)
        self.assertEqual(self.seen(1)[-1][3:6], ["2", "state_lost", "1"])
        self.assertEqual(self.events(again, "job_finished")[0]["restarts_used"], 1)

    def test_a_separate_server_told_to_stop_leaves_its_jobs_to_the_next(self):
        server = self.server()
        nodes = [self.node(rank, "--server-grace", "50s") for rank in (0, 1)]
        for node in nodes:
            self.until_event(node, "generation_running", generation=0)
        server.signal(signal.SIGTERM)
        self.assertEqual(server.code(), 0, server.err)
        self.assertIn("1 live job (job) goes on without a server for the --server-grace of 50s",
                      server.err)
        again = self.server()
        self.assertIn("1 job (job) goes on", again.err)
        for node in nodes:
            self.until_event(node, "server_recovered")
        self.let_go(0)
        self.assertEqual([node.code() for node in nodes], [0, 0], nodes[0].err + nodes[1].err)
        self.assertEqual(self.events(nodes[0], "generation_formed", generation=1), [])
        again.signal(signal.SIGTERM)
        self.assertEqual(again.code(), 0, again.err)
        self.assertIn("no job is live", again.err)

    def test_sigterm_to_the_hosting_agent_stops_the_others_with_76(self):
        nodes = self.both_running()
        nodes[0].signal(signal.SIGTERM)
        self.assertEqual(nodes[0].code(), 143, nodes[0].err)
        self.assertEqual(nodes[1].code(), 76, nodes[1].err)

    def test_a_host_that_saves_takes_nobody_in_any_more(self):
        saver = self.script("trap 'while [ ! -e saved ]; do sleep 0.01; done; exit 0' TERM\n"
                            "touch ready.$LOCAL_RANK\nwhile :; do sleep 0.01; done\n", "saver.sh")
        host = self.node(0, "--last-call", "0s", nnodes="1:2", program=saver)
        until(lambda: all(os.path.exists(self.path(f"ready.{rank}")) for rank in range(2)),
              "both workers' traps")
        host.signal(signal.SIGTERM)
        self.until_event(host, "node_left", node="n0")
        late = self.node(1, nnodes="1:2", program=saver)
        self.assertEqual(late.code(), 76, late.err)
        self.assertIn("which hosts the server, was told to stop (SIGTERM)", late.err)
        self.assertEqual(self.events(late, "worker_started"), [])
        self.assertIsNone(host.popen.poll(), "it saves")
        open(self.path("saved"), "w", encoding="utf-8").close()
        self.assertEqual(host.code(), 143, host.err)

    def test_a_host_that_lingers_ends_with_its_guardian(self):
        worker = self.script("exec sleep 600\n")
        host = self.node(0, "--linger", "--last-call", "0s", nnodes="1:2", program=worker)
        self.until_event(host, "generation_running", generation=0)
        other = self.node(1, "--last-call", "0s", "--grow", "now", "--grow-interval", "0s",
                          nnodes="1:2", program=worker)
        self.until_event(other, "generation_running")
        host.signal(signal.SIGTERM)
        until(lambda: "the server stays until the job ends" in host.err, "the lingering server")
        agent = host.agent()
        os.kill(host.pid, signal.SIGKILL)
        until(lambda: not alive(agent), "the agent's end")
        self.assertEqual(other.code(), 76, other.err)

    def test_ctrl_c_on_both(self):
        nodes = [self.node(rank, *self.PATIENT, program=self.script("exec sleep 600\n"))
                 for rank in (0, 1)]
        for node in nodes:
            self.until_event(node, "generation_running", generation=0)
        # The hosting one last: its leaving would be told the other, whose own signal may come later.
        nodes[1].signal(signal.SIGINT)
        self.until_event(nodes[0], "node_left")
        self.ends_soon(nodes[0], signal.SIGINT, 130)
        self.assertEqual(nodes[1].code(), 130, nodes[1].err)

    def test_ctrl_c_in_the_middle_of_stopping(self):
        nodes = [self.node(rank, *self.PATIENT, program=self.script(
            "trap '' TERM INT\ntouch up.$RANK\nwhile :; do sleep 0.05; done\n"))
                 for rank in (0, 1)]
        for node in nodes:
            self.until_event(node, "generation_running", generation=0)
        until(lambda: all(os.path.exists(self.path(f"up.{rank}")) for rank in range(4)), "all traps")
        # The exit code is the first signal's; the second one leaves the workers two seconds.
        nodes[1].signal(signal.SIGTERM)
        time.sleep(0.15)  # a second signal counts when it comes later than 100 ms
        self.ends_soon(nodes[1], signal.SIGINT, 143, own=2)
        # Node 0 tears its workers down for the new world, with 300 s for them.
        nodes[0].signal(signal.SIGINT)
        time.sleep(0.15)
        self.ends_soon(nodes[0], signal.SIGTERM, 130, own=2)

    def test_refusals_are_named_and_2(self):
        server = self.server()
        first = self.node(0)
        self.until_event(first, "node_joined")
        other = self.node(1, program=self.script("exit 0\n", "other.sh"))
        self.assertEqual(other.code(), 2, other.err)
        self.assertIn("other.sh", other.err)
        three = self.node(1, nnodes="3")
        self.assertEqual(three.code(), 2, three.err)
        self.assertIn("nnodes", three.err)
        twin = self.run_job("--nnodes", "2", "--nproc-per-node", "2", "--rdzv-id", "job",
                            "--rdzv-endpoint", f"127.0.0.2:{self.port}", "--node-name", "n0",
                            "--advertise-addr", "127.0.0.3", self.worker)
        self.assertEqual(twin.code(), 2, twin.err)
        self.assertIn("n0", twin.err)
        first.signal(signal.SIGTERM)
        self.assertEqual(first.code(), 143, first.err)
        server.signal(signal.SIGTERM)
        server.code()

    def test_join_timeout_says_who_is_missing(self):
        job = self.node(0, "--join-timeout", "1s")
        self.assertEqual(job.code(), 75, job.err)
        self.assertIn("(n0); 1 missing: node rank 1 of 2 never joined", job.err)

    def test_remote_stop_without_a_token_is_refused_and_status_is_not(self):
        server = self.server()
        job = self.run_job("--nnodes", "1", "--rdzv-id", "job", "--rdzv-endpoint",
                           f"127.0.0.2:{self.port}", self.worker)
        self.until_event(job, "generation_running")
        status = self.muster("status", "--rendezvous", f"127.0.0.2:{self.port}", "--json")
        self.assertEqual(status.code(), 0, status.err)
        self.assertIn('"job"', status.out)
        self.let_go(0)
        self.assertEqual(job.code(), 0, job.err)
        server.signal(signal.SIGTERM)
        server.code()

    def test_a_second_run_under_the_same_id(self):
        server = self.server()
        self.let_go(0)
        runs = set()
        for _ in range(2):
            job = self.run_job("--nnodes", "1", "--rdzv-id", "job", "--rdzv-endpoint",
                               f"127.0.0.2:{self.port}", self.worker)
            self.assertEqual(job.code(), 0, job.err)
            runs.add(self.events(job, "job_finished")[0]["run"])
        self.assertEqual(len(runs), 2)
        server.signal(signal.SIGTERM)
        server.code()


if __name__ == "__main__":
    main()
