#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Workers that hang: found by progress or by silence, their stacks captured, killed, restarted."""
import os
import signal
import sys

from harness import SOURCE, MusterCase, free_port, main, until

# Ranks work in step by files: each waits for the other's before its next step. In generation 0,
# from step 5 on, rank 1 does what the first argument says.
LOCKSTEP = """
import os, signal, sys, time
sys.path.insert(0, os.path.join(sys.argv[2], "worker_runtime"))
from progress import report
manner, rank, world = sys.argv[1], int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
generation = int(os.environ["MUSTER_GENERATION"])
for step in range(1, 11):
    if step == 5 and generation == 0 and rank == 1:
        if manner == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        if manner == "spin":
            while True:
                pass
        if manner == "block":
            time.sleep(10000)
    open(f"step.{generation}.{step}.{rank}", "w").close()
    while not all(os.path.exists(f"step.{generation}.{step}.{other}") for other in range(world)):
        time.sleep(0.002)
    report(step)
"""


class Hangs(MusterCase):
    def lockstep(self, manner, *arguments, workers="2"):
        path = self.path("lockstep.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(LOCKSTEP)
        return self.run_job("--standalone", "--nproc-per-node", workers, "--max-restarts", "1",
                            "--log-dir", self.path("logs"), *arguments, "--python",
                            sys.executable, path, manner, SOURCE)

    def cause_of(self, job):
        causes = [event["first_cause"] for event in self.events(job, "generation_failed")]
        self.assertEqual(len(causes), 1, job.err)
        return causes[0]

    def stacks_of(self, job):
        """Texts of the stacks that the exits of generation 0 name, by rank."""
        texts = {}
        for event in self.events(job, "worker_exited", generation=0):
            with open(event["stacks"], encoding="utf-8", errors="replace") as file:
                texts[event["rank"]] = file.read()
        return texts

    def test_a_stopped_rank(self):
        job = self.lockstep("stop", "--hang-timeout", "1s,30s")
        self.assertEqual(job.code(), 0, job.err)
        cause = self.cause_of(job)
        self.assertEqual((cause["kind"], cause["rank"], cause["ambiguous"]), ("hang", 1, False))
        self.assertRegex(cause["detail"], r"no progress for .*, at step 4, its process is stopped")
        self.assertIn(" hangs: no progress for ", job.err)
        self.assertEqual(cause["stacks"], self.path("logs") + cause["stacks"][
            len(self.path("logs")):])
        texts = self.stacks_of(job)
        self.assertEqual(sorted(texts), [0, 1])
        pid = cause["pid"]
        self.assertIn(str(pid), texts[1])

    def test_a_spinning_rank(self):
        job = self.lockstep("spin", "--hang-timeout", "1s,30s")
        self.assertEqual(job.code(), 0, job.err)
        cause = self.cause_of(job)
        # Both stand at step 4, and neither is stopped.
        self.assertEqual((cause["kind"], cause["ambiguous"]), ("hang", True), job.err)
        self.assertEqual(sorted(self.stacks_of(job)), [0, 1])

    def test_a_rank_that_waits_for_a_dead_peer(self):
        job = self.lockstep("block", "--silence-timeout", "1s")
        self.assertEqual(job.code(), 0, job.err)
        cause = self.cause_of(job)
        self.assertEqual(cause["kind"], "hang")
        self.assertRegex(cause["detail"], "no output for ")

    def test_without_a_restart_left(self):
        job = self.lockstep("stop", "--hang-timeout", "1s,30s", "--max-restarts", "0")
        self.assertEqual(job.code(), 124, job.err)
        self.assertRegex(job.err, r"first cause: rank 1 \(.*\): made no progress: no progress for")
        self.assertRegex(job.err, r"\n  stacks: /.*/gen-0/rank-1/stacks.txt\n")

    def test_one_that_never_reports(self):
        job = self.run_job("--standalone", "--hang-timeout", "300ms,1s", "--log-dir",
                           self.path("logs"), "sleep", "1000")
        self.assertEqual(job.code(), 124, job.err)
        self.assertIn("no progress reported in", job.err)

    def test_reports_and_output_keep_it_going(self):
        script = self.script("for i in 1 2 3 4 5 6 7 8 9 10; do echo $i; sleep 0.2; done\n")
        job = self.run_job("--standalone", "--silence-timeout", "1500ms", script)
        self.assertEqual(job.code(), 0, job.err)
        job = self.lockstep("none", "--hang-timeout", "5s")
        self.assertEqual(job.code(), 0, job.err)
        self.assertEqual(self.events(job, "generation_failed"), [])

    def test_one_that_is_suspended_by_its_user(self):
        job = self.run_job("--standalone", "--hang-timeout", "300ms,5s", self.script(
            "echo $$ > pid.new; mv pid.new pid\nwhile [ ! -e go ]; do sleep 0.01; done\n"))
        until(lambda: os.path.exists(self.path("pid")), "the worker")
        # Longer than its time: nothing is looked at meanwhile.
        job.signal(signal.SIGTSTP)
        pid = int(self.read("pid"))

        def state():
            with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                return file.read().rsplit(")", 1)[1].split()[0]
        until(lambda: state() == "T", "the worker to be stopped")
        clock = self.run_job("--standalone", "--hang-timeout", "300ms,6s", "sleep", "1000")
        self.assertEqual(clock.code(), 124, clock.err)  # six seconds have passed
        open(self.path("go"), "w", encoding="utf-8").close()
        job.signal(signal.SIGCONT)
        self.assertEqual(job.code(), 0, job.err)

    def test_a_stopped_rank_on_another_node(self):
        path = self.path("lockstep.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(LOCKSTEP)
        port = free_port()
        nodes = [self.run_job("--nnodes", "2", "--rdzv-endpoint", f"127.0.0.1:{port}",
                              "--node-name", name, "--node-rank", str(rank),
                              "--hang-timeout", "1s,60s", "--max-restarts", "1", "--log-dir",
                              self.path("logs-" + name), "--python", sys.executable, path, "stop",
                              SOURCE)
                 for rank, name in enumerate("ab")]
        for node in nodes:
            self.assertEqual(node.code(), 0, node.err)
        cause = self.cause_of(nodes[0])
        self.assertEqual((cause["kind"], cause["node"], cause["rank"]), ("hang", "b", 1),
                         nodes[0].err)


if __name__ == "__main__":
    main()
