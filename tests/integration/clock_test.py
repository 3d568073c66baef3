#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Wall clocks that jump by an hour, or are hours apart: nobody is lost, no wait has another length.

The machine's clock stays as it is: a library that is preloaded into the processes of a test, built
here from shifted_clock.c, adds what a file says to their wall clock.
"""
import datetime
import os
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest

from harness import MUSTER, main, until
from two_nodes import TwoNodes

HOUR = 3600
RANKS = 8
ROUNDS = int(os.environ.get("FIRST_CAUSE_ROUNDS", "100"))

# contracts.md, section 5: causes on different nodes that are closer cannot be put in order by time.
# A bit of it is the way to the server.
DOUBT_S = 0.04

# Generation g: rank g % 8 crashes when all are there; the others look until it is dead and abort,
# as ranks in a collective do. The last generation ends well.
CRASH = """
ulimit -c 0
cd {folder}
g=$MUSTER_GENERATION
[ $g = {rounds} ] && exit 0
: > here.$g.$RANK
if [ $RANK = $((g % 8)) ]; then
  for rank in 0 1 2 3 4 5 6 7; do until [ -e here.$g.$rank ]; do sleep 0.005; done; done
  until [ -e run.$g ]; do sleep 0.005; done
  echo $$ > new; mv new pid.$g; kill -SEGV $$
fi
until [ -s pid.$g ]; do sleep 0.005; done
read -r culprit < pid.$g
while read -r _ _ state _ < /proc/$culprit/stat && [ "$state" != Z ]; do :; done 2> /dev/null
kill -ABRT $$
"""


def unix_time(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


class ShiftedClocks(TwoNodes):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.built = tempfile.mkdtemp(prefix="muster-clock-")
        cls.addClassCleanup(shutil.rmtree, cls.built)
        cls.library = os.path.join(cls.built, "shifted_clock.so")
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "shifted_clock.c")
        compiler = shutil.which("cc")
        if compiler is None:
            raise unittest.SkipTest("no C compiler (cc) for the clock")
        subprocess.run([compiler, "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-o",
                        cls.library, source, "-ldl"], check=True)
        tried = subprocess.run([MUSTER, "version"], capture_output=True, check=False,
                               env={**os.environ, "LD_PRELOAD": cls.library})
        if tried.returncode != 0 or tried.stderr:
            raise unittest.SkipTest("a preloaded library does not go with this build: "
                                    + tried.stderr.decode(errors="replace")[:200])

    def clock(self, name, seconds=0):
        """The variables that give a process the clock `name`."""
        self.set_clock(name, seconds)
        return {"LD_PRELOAD": self.library, "TEST_CLOCK": self.path(name)}

    def set_clock(self, name, seconds):
        mode = "r+b" if os.path.exists(self.path(name)) else "wb"
        with open(self.path(name), mode) as file:
            file.write(struct.pack("=q", seconds))

    @staticmethod
    def ahead(event):
        """How far the clock that stamped an event is ahead of ours, about, in hours."""
        return round((unix_time(event["ts"]) - time.time()) / HOUR)

    def undisturbed(self, node):
        self.assertEqual(self.events(node, "node_left"), [])
        finished = self.events(node, "job_finished")[0]
        self.assertEqual(finished["outcome"], "succeeded")
        # All of it by clocks that nobody set: an hour is in none of them.
        self.assertTrue(0 <= finished["goodput"] <= 1, finished)
        for event in self.events(node, "recovered"):
            for key in ("detect_s", "stop_s", "form_s", "spawn_s", "total_s"):
                self.assertTrue(0 <= event[key] < HOUR / 2, event)


class Jumps(ShiftedClocks):
    """All processes of a job see the clock jump, as those of a machine do."""

    TIMES = ("--heartbeat", "200ms", "--node-timeout", "2s", "--server-grace", "20s",
             "--max-restarts", "9", "--restart-backoff", "0s")

    def killed_and_recovered(self, nodes, generation):
        os.kill(self.pids(nodes[1], generation)[0], signal.SIGKILL)
        for node in nodes:
            self.until_event(node, "generation_running", generation=generation + 1)

    def jump(self, seconds):
        clock = self.clock("clock")
        server = self.server(environment=clock)
        # The first waits for the second with a clock that jumps.
        nodes = [self.node(0, *self.TIMES, environment=clock)]
        joined = self.until_event(nodes[0], "node_joined")[0]
        self.assertEqual(self.ahead(joined), 0)
        self.set_clock("clock", seconds)
        nodes.append(self.node(1, *self.TIMES, environment=clock))
        for node in nodes:
            running = self.until_event(node, "generation_running", generation=0)[0]
            self.assertEqual(self.ahead(running), seconds // HOUR)
        self.killed_and_recovered(nodes, 0)
        # Back again, under a job that runs; and a server that starts anew in that time.
        self.set_clock("clock", 0)
        self.killed_and_recovered(nodes, 1)
        server.signal(signal.SIGKILL)
        server.code()
        self.set_clock("clock", -seconds)
        server = self.server(environment=clock)
        for node in nodes:
            self.until_event(node, "server_recovered")
        self.killed_and_recovered(nodes, 2)
        self.let_go(3)
        self.assertEqual([node.code() for node in nodes], [0, 0], nodes[0].err + nodes[1].err)
        for node in nodes:
            self.undisturbed(node)
            self.assertEqual(self.events(node, "job_finished")[0]["restarts_used"], 3)
        server.signal(signal.SIGTERM)
        self.assertEqual(server.code(), 0, server.err)

    def server(self, environment=None):
        server = self.muster("rendezvous", "--listen", f"127.0.0.2:{self.port}", "--state-dir",
                             self.path("server"), environment=environment)
        until(lambda: str(self.port) in server.out + server.err, "the server's line")
        return server

    def test_an_hour_forwards(self):
        self.jump(HOUR)

    def test_an_hour_back(self):
        self.jump(-HOUR)

    def test_the_grace_of_a_stop_is_neither_cut_nor_stretched(self):
        deaf = self.script("trap '' TERM\n: > up\nwhile :; do sleep 0.05; done\n", "deaf.sh")
        for seconds in (HOUR, -HOUR):
            with self.subTest(seconds=seconds):
                job = self.run_job("--standalone", *self.PATIENT, "--stop-grace", "1s", deaf,
                                   environment=self.clock("clock"))
                until(lambda: os.path.exists(self.path("up")), "the trap")
                start = time.monotonic()
                job.signal(signal.SIGTERM)
                self.until_event(job, "node_left")
                self.set_clock("clock", seconds)
                self.assertEqual(job.code(), 143, job.err)
                self.assertTrue(0.9 < time.monotonic() - start, job.err)
                self.assertEqual(self.ahead(self.events(job, "job_finished")[0]), seconds // HOUR)
                os.remove(self.path("up"))


class FirstCause(ShiftedClocks):
    """One rank's crash and its peers' aborts, on two nodes whose clocks are hours apart."""

    def seen_late_by(self, nodes, ahead, generation):
        """How long after the first abort on the other node an agent has seen the crash, in seconds:
        where the cores are so busy that this is longer than the doubt between nodes, nobody can
        tell what was first."""
        times = {"SIGSEGV": [], "SIGABRT": []}
        for node, seconds in zip(nodes, ahead):
            for event in self.until_event(node, "worker_exited", count=4, generation=generation):
                if event.get("signal") in times:
                    times[event["signal"]].append(unix_time(event["ts"]) - seconds)
        return min(times["SIGSEGV"]) - min(times["SIGABRT"])

    def test_the_crash_is_named_and_not_the_aborts(self):
        script = self.script(CRASH.format(folder=self.folder, rounds=ROUNDS), "crash.sh")
        names = ("behind", "before")
        nodes = [self.node(rank, "--nproc-per-node", "4", "--max-restarts", str(ROUNDS),
                           "--restart-backoff", "0s", program=script,
                           environment=self.clock(names[rank], (2 * rank - 1) * HOUR))
                 for rank in (0, 1)]
        held_up = []
        for generation in range(ROUNDS):
            with self.subTest(generation=generation):
                self.until_event(nodes[0], "generation_running", generation=generation)
                # Which one is ahead of the other changes, and by how much.
                ahead = [(generation + rank) % 5 * HOUR - 2 * HOUR for rank in (0, 1)]
                for name, seconds in zip(names, ahead):
                    self.set_clock(name, seconds)
                open(self.path(f"run.{generation}"), "w", encoding="utf-8").close()
                causes = [self.until_event(node, "generation_failed",
                                           generation=generation)[0]["first_cause"]
                          for node in nodes]
                self.assertEqual(causes[0], causes[1])
                named = (causes[0]["rank"], causes[0]["kind"], causes[0].get("signal"))
                wanted = (generation % RANKS, "signal", "SIGSEGV")
                late = self.seen_late_by(nodes, ahead, generation) if named != wanted else 0
                if late >= DOUBT_S:
                    held_up.append(late)
                    continue
                self.assertEqual(named, wanted, f"seen {late:.3f} s after the first abort")
        self.assertLessEqual(len(held_up), ROUNDS / 10, held_up)
        self.assertEqual([node.code() for node in nodes], [0, 0], nodes[0].err + nodes[1].err)
        for node in nodes:
            self.undisturbed(node)
            finished = self.events(node, "job_finished")[0]
            self.assertEqual(finished["restarts_used"], ROUNDS)
            self.assertTrue(0 < finished["duration_s"] < HOUR / 2, finished)


if __name__ == "__main__":
    main()
