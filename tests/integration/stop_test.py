#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Being stopped, in every phase and way: codes, grace, stop file, and nothing left behind."""
import os
import signal
import socket
import time

from harness import PATIENCE, MusterCase, alive, free_port, main, until

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
        for signals in (2, 3):  # the second leaves two seconds, the third nothing
            with self.subTest(signals=signals):
                job = self.running(self.script(WAIT), *self.PATIENT)
                for _ in range(signals - 1):
                    job.signal(signal.SIGTERM)
                    time.sleep(0.15)  # the next one counts when it comes later than 100 ms
                start = time.monotonic()
                self.ends_soon(job, signal.SIGINT, 143, own=2 if signals == 2 else 0)
                if signals == 2:
                    self.assertGreater(time.monotonic() - start, 1.9)
                finished = self.events(job, "job_finished")
                self.assertEqual([event["outcome"] for event in finished], ["stopped"])

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


class EveryPhase(MusterCase):
    """Ctrl-C ends `muster run` within a second and the workers' own grace, whatever it is at."""

    def networked(self, *arguments, nnodes="2", port=None):
        return self.run_job("--nnodes", nnodes, "--rdzv-endpoint",
                            f"127.0.0.1:{port or free_port()}", "--rdzv-id", "phases",
                            *self.PATIENT, *arguments)

    @staticmethod
    def until_handles(pid, number):
        """Waits until a process no longer has the default action for a signal."""
        def ready():
            with open(f"/proc/{pid}/status", encoding="ascii") as file:
                fields = dict(line.split(":\t") for line in file if line.startswith(("SigBlk", "SigCgt")))
            return any(int(value, 16) >> (number - 1) & 1 for value in fields.values())
        until(ready, f"process {pid} to handle signal {number}")

    def test_before_a_server_answers(self):
        job = self.networked("--rdzv-conf", "is_host=0", "/bin/true")
        # The agent handles signals before it looks for the server.
        self.until_handles(job.agent(), signal.SIGINT)
        self.ends_soon(job, signal.SIGINT, 130)

    def test_while_the_server_does_not_answer(self):
        with socket.socket() as mute:
            mute.bind(("127.0.0.1", 0))
            mute.listen()
            job = self.networked("--rdzv-conf", "is_host=0", "/bin/true",
                                 port=mute.getsockname()[1])
            mute.settimeout(PATIENCE)
            with mute.accept()[0]:
                self.ends_soon(job, signal.SIGINT, 130)

    def test_waiting_for_other_nodes(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            job = self.networked("/bin/true")
            self.until_event(job, "node_joined")
            self.ends_soon(job, number, 128 + number)

    def test_in_the_last_call(self):
        job = self.networked("/bin/true", nnodes="1:2")
        self.until_event(job, "node_joined")
        self.ends_soon(job, signal.SIGINT, 130)

    def test_running(self):
        job = self.networked("/bin/sleep", "600", nnodes="1")
        self.until_event(job, "generation_running")
        self.ends_soon(job, signal.SIGINT, 130)

    def test_in_the_pause_before_a_restart(self):
        job = self.networked("--max-restarts", "9", "--restart-backoff", "300s", "/bin/false",
                             nnodes="1")
        # The pauses double; whoever is slow finds the next one.
        until(lambda: any(event["delay_s"] >= 1.5 for event in self.events(job, "restart_scheduled")),
              "a pause")
        self.ends_soon(job, signal.SIGINT, 130)

    def test_while_workers_are_torn_down_after_a_failure(self):
        job = self.run_job("--standalone", "--nproc-per-node", "2", "--max-restarts", "9",
                           "--stop-grace", "1s", self.script(
            "[ $RANK = 1 ] && { while [ ! -e up ]; do sleep 0.01; done; exit 1; }\n"
            "trap 'touch torn' TERM INT\ntouch up\nwhile :; do sleep 0.01; done\n"))
        until(lambda: os.path.exists(self.path("torn")), "the tear-down")
        # The grace that runs goes on: the worker is not given a second one.
        self.ends_soon(job, signal.SIGINT, 130, own=1)

    def test_after_the_server_was_lost(self):
        port = free_port()
        server = self.muster("rendezvous", "--listen", f"127.0.0.1:{port}",
                             "--state-dir", self.path("server"))
        until(lambda: str(port) in server.out + server.err, "the server's line")
        job = self.networked("--log-level", "info", "/bin/sleep", "600", nnodes="1", port=port)
        self.until_event(job, "generation_running")
        server.signal(signal.SIGKILL)
        server.code()
        until(lambda: "lost the stream" in job.err, "the agent to notice")
        self.ends_soon(job, signal.SIGINT, 130)


if __name__ == "__main__":
    main()
