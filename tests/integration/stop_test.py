#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Being stopped, in every phase and way: codes, grace, stop file, and nothing left behind."""
import os
import signal
import time

from harness import MusterCase, alive, free_port, main, until

WAIT = "trap '' TERM\nwhile :; do sleep 0.05; done\n"


class Signals(MusterCase):
    def running(self, script, *arguments, workers=2):
        job = self.run_job("--standalone", "--nproc-per-node", str(workers), *arguments, script)
        self.until_event(job, "generation_running")
        return job

    def pids(self, job):
        return [event["pid"] for event in self.events(job, "worker_started")]

    def test_each_stop_signal_is_passed_on_as_it_came(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            with self.subTest(signal=number.name):
                name = number.name[3:]
                job = self.running(self.script(
                    f"trap 'echo got > got.{name}.$RANK; exit 0' {name}\n"
                    "touch up.$RANK\nwhile :; do sleep 0.01; done\n"))
                until(lambda: os.path.exists(self.path("up.0")) and
                      os.path.exists(self.path("up.1")), "both traps")
                job.signal(number)
                self.assertEqual(job.code(), 128 + number, job.err)
                for rank in range(2):
                    self.assertTrue(os.path.exists(self.path(f"got.{name}.{rank}")))
                    os.remove(self.path(f"up.{rank}"))
                finished = self.events(job, "job_finished")
                self.assertEqual([event["outcome"] for event in finished], ["stopped"])

    def test_a_worker_that_got_the_signal_first_is_stopped_too(self):
        job = self.running(self.script("exec sleep 1000\n"), "--max-restarts", "1")
        os.kill(self.pids(job)[1], signal.SIGTERM)
        self.until_event(job, "worker_exited", rank=1)
        job.signal(signal.SIGTERM)
        self.assertEqual(job.code(), 143, job.err)
        self.assertEqual(self.events(job, "generation_failed"), [])
        self.assertEqual([event["outcome"] for event in self.events(job, "job_finished")],
                         ["stopped"])

    def test_the_stop_file_is_there_before_the_signal(self):
        job = self.running(self.script(
            "trap '[ -e \"$MUSTER_STOP_FILE\" ] && touch planned.$RANK; exit 0' TERM\n"
            "touch up.$RANK\nwhile :; do sleep 0.01; done\n"))
        until(lambda: all(os.path.exists(self.path(f"up.{r}")) for r in range(2)), "both traps")
        job.signal(signal.SIGTERM)
        self.assertEqual(job.code(), 143)
        for rank in range(2):
            self.assertTrue(os.path.exists(self.path(f"planned.{rank}")))

    def test_a_failure_writes_no_stop_file(self):
        job = self.run_job("--standalone", "--nproc-per-node", "2", self.script(
            "[ $RANK = 1 ] && { while [ ! -e up ]; do sleep 0.01; done; exit 3; }\n"
            "trap '[ -e \"$MUSTER_STOP_FILE\" ] && touch planned; exit 0' TERM\n"
            "touch up\nwhile :; do sleep 0.01; done\n"))
        self.assertEqual(job.code(), 3)
        self.assertFalse(os.path.exists(self.path("planned")))

    def test_grace_then_kill(self):
        job = self.running(self.script(WAIT), "--stop-grace", "300ms")
        pids = self.pids(job)
        start = time.monotonic()
        job.signal(signal.SIGTERM)
        self.assertEqual(job.code(), 143)
        self.assertGreater(time.monotonic() - start, 0.25)
        self.assertEqual([pid for pid in pids if alive(pid)], [])

    def test_a_stop_during_the_tear_down_after_a_failure(self):
        job = self.running(self.script(
            "[ $RANK = 1 ] && { while [ ! -e up ]; do sleep 0.01; done; kill -9 $$; }\n"
            "trap 'touch torn' TERM\ntouch up\nwhile [ ! -e go ]; do sleep 0.01; done\n"),
            "--max-restarts", "1")
        until(lambda: os.path.exists(self.path("torn")), "the tear-down")
        job.signal(signal.SIGTERM)
        self.until_event(job, "node_left")
        self.script("", "go")
        self.assertEqual(job.code(), 143, job.err)
        finished = self.events(job, "job_finished")
        self.assertEqual([(event["outcome"], event["exit_code"], event["restarts_used"])
                          for event in finished], [("stopped", 143, 0)])

    def test_second_and_third_signal(self):
        job = self.running(self.script(WAIT), "--stop-grace", "60s", "--stop-budget", "100s")
        job.signal(signal.SIGINT)
        time.sleep(0.15)  # a second one counts when it comes later than 100 ms
        job.signal(signal.SIGINT)
        time.sleep(0.15)
        job.signal(signal.SIGINT)
        self.assertEqual(job.code(10), 130)

    def test_a_grandchild_of_a_wrapper_goes_too(self):
        job = self.running(self.script("sleep 1000 & echo $! > child.$RANK; wait\n"), workers=1)
        child = until(lambda: os.path.exists(self.path("child.0")) and
                      self.read("child.0").strip(), "the child")
        job.signal(signal.SIGTERM)
        self.assertEqual(job.code(), 143)
        self.assertFalse(alive(int(child)))

    def test_forwarded_signals_do_not_stop(self):
        job = self.running(self.script(
            "trap 'touch usr1' USR1\ntouch up\nwhile [ ! -e usr1 ]; do sleep 0.01; done\n"), workers=1)
        until(lambda: os.path.exists(self.path("up")), "the trap")
        job.signal(signal.SIGUSR1)
        self.assertEqual(job.code(), 0, job.err)

    def test_while_waiting_for_other_nodes(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            port = free_port()
            job = self.run_job("--nnodes", "2", "--rdzv-endpoint", f"127.0.0.1:{port}",
                               "--rdzv-id", "lonely", "/bin/true")
            self.until_event(job, "node_joined")
            start = time.monotonic()
            job.signal(number)
            self.assertEqual(job.code(), 128 + number, job.err)
            self.assertLess(time.monotonic() - start, 20)

    def test_before_a_server_answers(self):
        port = free_port()
        job = self.run_job("--nnodes", "2", "--rdzv-endpoint", f"127.0.0.1:{port}",
                           "--rdzv-conf", "is_host=0", "--rdzv-id", "nobody", "/bin/true")
        # The agent handles signals before it looks for the server.
        until(lambda: os.path.exists(f"/proc/{job.agent()}"), "the agent")
        self.until_handles(job.agent(), signal.SIGINT)
        job.signal(signal.SIGINT)
        self.assertEqual(job.code(), 130, job.err)

    @staticmethod
    def until_handles(pid, number):
        """Waits until a process no longer has the default action for a signal."""
        def ready():
            with open(f"/proc/{pid}/status", encoding="ascii") as file:
                fields = dict(line.split(":\t") for line in file if line.startswith(("SigBlk", "SigCgt")))
            return any(int(value, 16) >> (number - 1) & 1 for value in fields.values())
        until(ready, f"process {pid} to handle signal {number}")

    def test_ignored_hup_stays_ignored(self):
        script = self.script("touch up\nwhile [ ! -e go ]; do sleep 0.01; done\n")
        wrapper = self.script(f"trap '' HUP\nexec {self.muster_path()} run --standalone {script}\n",
                              "nohup.sh")
        from harness import Process
        job = Process(self, [wrapper])
        until(lambda: os.path.exists(self.path("up")), "the worker")
        job.signal(signal.SIGHUP)
        open(self.path("go"), "w", encoding="utf-8").close()
        self.assertEqual(job.code(), 0, job.err)

    @staticmethod
    def muster_path():
        from harness import MUSTER
        return MUSTER


if __name__ == "__main__":
    main()
