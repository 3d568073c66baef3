#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SIGTSTP and SIGCONT: the workers and the process that the shell sees stop and go on, the server
knows, and nobody is lost."""
import json
import os
import pty
import signal

from harness import MUSTER, MusterCase, Process, alive, main, until
from two_nodes import TwoNodes

# Counts, and has a child that does the same. Not a shell: one that waits in vfork for a child that
# was stopped before its exec is in state D, and stops when that goes on.
COUNT = """
import os, sys, time
rank = os.environ["RANK"]
child = os.fork()
name = ("leader." if child else "child.") + rank
if not child:
    with open("pid." + rank, "w") as file:
        file.write(str(os.getpid()))
number = 0
while not os.path.exists("go"):
    number += 1
    with open(name + ".new", "w") as file:
        file.write(str(number))
    os.rename(name + ".new", name)
    time.sleep(0.01)
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def state(pid):
    """T: stopped."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        return file.read().rsplit(")", 1)[1].split()[0]


def counter(case):
    """The program above, as a file of the case."""
    path = case.path("count.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(COUNT)
    return path


class Counting(MusterCase):
    def running(self, *arguments, workers=1):
        job = self.run_job("--standalone", "--nproc-per-node", str(workers), *arguments,
                           counter(self))
        self.until_event(job, "generation_running")
        for rank in range(workers):
            until(lambda r=rank: self.number(f"child.{r}") and self.number(f"pid.{r}"), "counting")
        return job

    def number(self, name):
        try:
            return int(self.read(name))
        except (FileNotFoundError, ValueError):
            return 0

    def family(self, job, workers=1):
        return ([event["pid"] for event in self.events(job, "worker_started")] +
                [self.number(f"pid.{rank}") for rank in range(workers)])

    def until_stopped(self, job, pids):
        until(lambda: all(state(pid) == "T" for pid in pids + [job.pid]), "all to be stopped")

    def goes_on(self, *names):
        for name in names:
            before = self.number(name)
            until(lambda n=name, b=before: self.number(n) > b, f"{name} to go on")

    def let_go(self):
        open(self.path("go"), "w", encoding="utf-8").close()


class Suspended(Counting):
    def test_workers_their_children_and_the_process_a_shell_sees(self):
        job = self.running(workers=2)
        pids = self.family(job, 2)
        job.signal(signal.SIGTSTP)
        self.until_stopped(job, pids)
        job.signal(signal.SIGCONT)
        self.goes_on("leader.0", "child.0", "leader.1", "child.1")
        self.assertNotEqual(state(job.pid), "T")
        self.let_go()
        self.assertEqual(job.code(), 0, job.err)

    def test_a_second_time(self):
        job = self.running()
        pids = self.family(job)
        for _ in range(2):
            job.signal(signal.SIGTSTP)
            self.until_stopped(job, pids)
            job.signal(signal.SIGCONT)
            self.goes_on("leader.0", "child.0")
        self.let_go()
        self.assertEqual(job.code(), 0, job.err)

    def test_what_stops_a_suspended_job_wakes_it_first(self):
        job = self.running()
        pids = self.family(job)
        job.signal(signal.SIGTSTP)
        self.until_stopped(job, pids)
        os.kill(job.agent(), signal.SIGTERM)  # the guardian could not hear it
        self.assertEqual(job.code(), 143, job.err)
        self.assertEqual([pid for pid in pids if alive(pid)], [])

    def test_a_shell_that_ends_a_suspended_job(self):
        job = self.running()
        job.signal(signal.SIGTSTP)
        self.until_stopped(job, self.family(job))
        job.signal(signal.SIGTERM)  # what bash sends for `kill %1`: the signal, then this
        job.signal(signal.SIGCONT)
        self.assertEqual(job.code(), 143, job.err)

    def test_a_suspended_job_that_loses_a_worker_ends(self):
        job = self.running(workers=2)
        pids = self.family(job, 2)
        job.signal(signal.SIGTSTP)
        self.until_stopped(job, pids)
        os.kill(pids[0], signal.SIGKILL)
        self.assertEqual(job.code(), 137, job.err)
        self.assertEqual([pid for pid in pids if alive(pid)], [])

    def test_workers_that_start_while_it_is_suspended_are_too(self):
        job = self.running("--max-restarts", "1")
        pids = self.family(job)
        job.signal(signal.SIGTSTP)
        self.until_stopped(job, pids)
        os.kill(pids[0], signal.SIGKILL)
        self.until_event(job, "worker_started", generation=1)
        again = self.events(job, "worker_started", generation=1)[0]["pid"]
        until(lambda: state(again) == "T", "the new worker to be stopped")
        job.signal(signal.SIGCONT)
        self.goes_on("leader.0")
        self.let_go()
        self.assertEqual(job.code(), 0, job.err)

    def test_ignored_at_the_start_it_stays_ignored(self):
        shell = self.script(f"trap '' TSTP\nexec {MUSTER} \"$@\"\n", "ignoring.sh")
        worker = counter(self)
        events = self.path("events.jsonl")
        job = Process(self, [shell, "run", "--standalone", "--events", events, worker])
        job.events_path = events
        self.until_event(job, "generation_running")
        until(lambda: self.number("child.0"), "counting")
        job.signal(signal.SIGTSTP)
        self.goes_on("leader.0", "child.0", "leader.0", "child.0")
        self.let_go()
        self.assertEqual(job.code(), 0, job.err)


class OnATerminal(Counting):
    """^Z, typed at a terminal of its own."""

    def start(self, led_by_a_shell):
        """Returns (pid to wait for, terminal). A shell here: who puts the job into a process group
        in the foreground, and stays in the session."""
        worker = counter(self)
        arguments = [MUSTER, "run", "--standalone", worker]
        pid, terminal = pty.fork()
        if pid:
            self.addCleanup(os.close, terminal)
            return pid, terminal
        os.chdir(self.folder)
        if not led_by_a_shell:
            os.execve(MUSTER, arguments, self.environment)
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        job = os.fork()
        if job == 0:
            os.setpgid(0, 0)
            os.tcsetpgrp(0, os.getpid())
            signal.signal(signal.SIGTTOU, signal.SIG_DFL)
            os.execve(MUSTER, arguments, self.environment)
        while True:
            _, status = os.waitpid(job, os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                os._exit(os.waitstatus_to_exitcode(status))
            with open("stopped", "w", encoding="utf-8") as file:
                file.write(str(job))
            while not os.path.exists("fg"):
                signal.sigtimedwait([], 0.01)
            os.remove("fg")
            os.killpg(job, signal.SIGCONT)

    def test_control_z_stops_the_job_and_fg_continues_it(self):
        shell, terminal = self.start(True)
        until(lambda: self.number("child.0"), "counting")
        for _ in range(2):
            os.write(terminal, b"\x1a")
            until(lambda: os.path.exists(self.path("stopped")), "the shell to see it stopped")
            until(lambda: state(self.number("pid.0")) == "T", "the worker's child to be stopped")
            os.remove(self.path("stopped"))
            open(self.path("fg"), "w", encoding="utf-8").close()
            self.goes_on("leader.0", "child.0")
        self.let_go()
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(shell, 0)[1]), 0)

    def test_where_nobody_could_continue_it_control_z_does_nothing(self):
        guardian, terminal = self.start(False)
        until(lambda: self.number("child.0"), "counting")
        os.write(terminal, b"\x1a")
        # The terminal has taken it in when it shows what was typed.
        shown = b""
        while b"^Z" not in shown:
            shown += os.read(terminal, 1000)
        self.goes_on("leader.0", "child.0", "leader.0", "child.0")
        self.assertNotEqual(state(guardian), "T")
        self.let_go()
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(guardian, 0)[1]), 0)


class TwoNodesOneSuspended(TwoNodes):
    def test_the_server_knows_and_nobody_is_lost(self):
        times = ("--node-timeout", "1s", "--heartbeat", "200ms")
        jobs = [self.node(rank, *times, program=counter(self)) for rank in range(2)]
        for job in jobs:
            self.until_event(job, "generation_running")
        for suspended in (0, 1):  # node 0 hosts the server
            jobs[suspended].signal(signal.SIGTSTP)

            def nodes():
                asked = self.muster("status", "--json", "--rendezvous",
                                    f"127.0.0.2:{self.port}")
                if asked.code() != 0:
                    return None
                (job,) = json.loads(asked.out)["jobs"]
                return {member["node"]: member["suspended"] for member in job["members"]}

            wanted = {f"n{rank}": rank == suspended for rank in range(2)}
            until(lambda: nodes() == wanted, "the server to know")
            # Longer than the node time-out, in heartbeats that the other one's workers see.
            for pid in self.pids(jobs[suspended], 0):
                until(lambda p=pid: state(p) == "T", "the worker to be stopped")
            before = len(self.events(jobs[1 - suspended]))
            self.stays_for_a_node_timeout(jobs[suspended])
            self.assertEqual(len(self.events(jobs[1 - suspended])), before)
            jobs[suspended].signal(signal.SIGCONT)
            until(lambda: nodes() == {"n0": False, "n1": False}, "the server to know")
        open(self.path("go"), "w", encoding="utf-8").close()
        for job in jobs:
            self.assertEqual(job.code(), 0, job.err)
            self.assertEqual(len(self.events(job, "generation_formed")), 1)

    def stays_for_a_node_timeout(self, job):
        """Nothing can be waited for but time: another job with that time-out's worth of work."""
        for _ in range(3):
            self.assertEqual(self.muster("run", "--standalone", "sleep", "0.5").code(), 0)
        self.assertEqual(state(job.pid), "T")


if __name__ == "__main__":
    main()
