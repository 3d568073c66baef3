#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A signal in every phase of `muster run`: its exit code, in time, and nothing left behind."""
import os
import signal
import socket
import time

from harness import MUSTER, PATIENCE, MusterCase, Process, alive, free_port, main, until

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class EveryPhase(MusterCase):
    """Each ends `muster run` within a second and the workers' own grace, whatever it is at."""

    def for_each_stop(self, test):
        for number in STOPS:
            with self.subTest(signal=number.name):
                test(number)

    def networked(self, *arguments, nnodes="2", port=None):
        return self.run_job("--nnodes", nnodes, "--rdzv-endpoint",
                            f"127.0.0.1:{port or free_port()}", "--rdzv-id", "phases",
                            *self.PATIENT, *arguments)

    @staticmethod
    def until_handles(pid, number):
        """Waits until a process no longer has the default action for a signal."""
        def ready():
            with open(f"/proc/{pid}/status", encoding="ascii") as file:
                fields = dict(line.split(":\t") for line in file
                              if line.startswith(("SigBlk", "SigCgt")))
            return any(int(value, 16) >> (number - 1) & 1 for value in fields.values())
        until(ready, f"process {pid} to handle signal {number}")

    def test_at_any_instant_of_the_start(self):
        instants = 40
        whole = self.whole_job_s()

        def stop(number):
            for instant in range(instants):
                job = self.muster("run", "--standalone", *self.PATIENT, "/bin/sleep", "600")
                time.sleep(whole * instant / instants)
                job.signal(number)
                self.assertEqual(job.code(), 128 + number, job.err)
                self.assertEqual((os.listdir(self.scratch), self.entries()), ([], []), instant)
        self.for_each_stop(stop)

    def test_before_a_server_answers(self):
        def stop(number):
            job = self.networked("--rdzv-conf", "is_host=0", "/bin/true")
            # The agent handles signals before it looks for the server.
            self.until_handles(job.agent(), number)
            self.ends_soon(job, number, 128 + number)
        self.for_each_stop(stop)

    def test_while_the_server_does_not_answer(self):
        def stop(number):
            with socket.socket() as mute:
                mute.bind(("127.0.0.1", 0))
                mute.listen()
                job = self.networked("--rdzv-conf", "is_host=0", "/bin/true",
                                     port=mute.getsockname()[1])
                mute.settimeout(PATIENCE)
                with mute.accept()[0]:
                    self.ends_soon(job, number, 128 + number)
        self.for_each_stop(stop)

    def test_waiting_for_other_nodes(self):
        def stop(number):
            job = self.networked("/bin/true")
            self.until_event(job, "node_joined")
            self.ends_soon(job, number, 128 + number)
        self.for_each_stop(stop)

    def test_in_the_last_call(self):
        job = self.networked("/bin/true", nnodes="1:2")
        self.until_event(job, "node_joined")
        self.ends_soon(job, signal.SIGINT, 130)

    def test_while_workers_are_being_started(self):
        script = self.script("touch $MUSTER_JOB_ID.$RANK\nexec sleep 600\n")

        def begun(job):
            # The job's id is one of a kind, and told with the first event.
            name = next((event["job"] for event in self.events(job)), None)
            return name and [entry for entry in os.listdir(self.folder)
                             if entry.startswith(f"{name}.")]

        def stop(number):
            for count in (1, 20, 48):
                job = self.run_job("--standalone", "--nproc-per-node", "48", *self.PATIENT, script)
                until(lambda job=job, count=count: len(begun(job) or ()) >= count,
                      f"{count} of 48 workers")
                self.ends_soon(job, number, 128 + number, own=1)
                self.assertEqual([event["pid"] for event in self.events(job, "worker_started")
                                  if alive(event["pid"])], [])
        self.for_each_stop(stop)

    def test_running(self):
        def stop(number):
            job = self.networked("/bin/sleep", "600", nnodes="1")
            self.until_event(job, "generation_running")
            self.ends_soon(job, number, 128 + number)
        self.for_each_stop(stop)

    def test_in_the_pause_before_a_restart(self):
        def stop(number):
            job = self.networked("--max-restarts", "9", "--restart-backoff", "300s", "/bin/false",
                                 nnodes="1")
            # The pauses double; whoever is slow finds the next one.
            until(lambda: any(event["delay_s"] >= 1.5
                              for event in self.events(job, "restart_scheduled")), "a pause")
            self.ends_soon(job, number, 128 + number)
        self.for_each_stop(stop)

    def test_while_workers_are_torn_down_after_a_failure(self):
        script = self.script(
            "[ $RANK = 1 ] && { while [ ! -e up ]; do sleep 0.01; done; exit 1; }\n"
            "trap 'touch torn' TERM INT HUP\ntouch up\nwhile :; do sleep 0.01; done\n")

        def stop(number):
            job = self.run_job("--standalone", "--nproc-per-node", "2", "--max-restarts", "9",
                               "--stop-grace", "1s", script)
            until(lambda: os.path.exists(self.path("torn")), "the tear-down")
            # The grace that runs goes on: the worker is not given a second one.
            self.ends_soon(job, number, 128 + number, own=1)
            for name in ("torn", "up"):
                os.remove(self.path(name))
        self.for_each_stop(stop)

    def test_while_workers_are_being_stopped(self):
        # The code is that of the first; the second leaves two seconds, whichever it is.
        script = self.script("trap '' TERM INT HUP\ntouch up\nwhile :; do sleep 0.05; done\n")
        for first, second in ((signal.SIGTERM, signal.SIGINT), (signal.SIGINT, signal.SIGHUP),
                              (signal.SIGHUP, signal.SIGTERM)):
            with self.subTest(first=first.name, second=second.name):
                job = self.run_job("--standalone", *self.PATIENT, script)
                until(lambda: os.path.exists(self.path("up")), "the trap")
                job.signal(first)
                self.until_event(job, "node_left")
                time.sleep(0.15)  # the next one counts when it comes later than 100 ms
                self.ends_soon(job, second, 128 + first, own=2)
                os.remove(self.path("up"))

    def test_after_the_server_was_lost(self):
        def stop(number):
            port = free_port()
            server = self.muster("rendezvous", "--listen", f"127.0.0.1:{port}",
                                 "--state-dir", self.path(f"server.{number.name}"))
            until(lambda: str(port) in server.out + server.err, "the server's line")
            job = self.networked("--log-level", "info", "/bin/sleep", "600", nnodes="1", port=port)
            self.until_event(job, "generation_running")
            server.signal(signal.SIGKILL)
            server.code()
            until(lambda: "lost the stream" in job.err, "the agent to notice")
            if number == signal.SIGTERM:
                # A scheduler's: there is time to tell the server. Again: there is none.
                job.signal(number)
                until(lambda: "to tell it that this node leaves" in job.err, "the line about it")
            self.ends_soon(job, number, 128 + number)
        self.for_each_stop(stop)

    def test_after_the_outcome_while_the_console_is_blocked(self):
        # The job has ended: its code stands, the signal ends the wait for the reader.
        flood = self.script("seq 200000\nexit ${1:-0}\n")

        def stop(number):
            for code in (0, 3):
                read_end, write_end = os.pipe()
                events = self.path(f"blocked.{number.name}.{code}")
                command = f"exec {MUSTER} run --standalone --events {events} {flood} {code}"
                job = Process(self, ["/bin/sh", "-c", f"{command} >&{write_end}"],
                              pass_fds=[write_end])
                job.events_path = events
                os.close(write_end)
                try:
                    self.until_event(job, "job_finished")
                    self.assertIsNone(job.popen.poll(), job.err)
                    self.ends_soon(job, number, code, own=0.5)
                finally:
                    os.close(read_end)
                self.assertRegex(job.err, r"nobody reads the console: \d+ bytes of stdout")
                self.assertEqual([event["exit_code"] for event in self.events(job, "job_finished")],
                                 [code])
        self.for_each_stop(stop)


if __name__ == "__main__":
    main()
