#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Workers that even SIGKILL does not end: the node says which and why, and ends with 77 in time.

A process in a frozen control group of version 1 is in state D, and SIGKILL waits until it is
thawed: as with one that waits for a disk or a driver. Only root can make one.
"""
import json
import os
import signal
import sys
import time

from harness import MusterCase, alive, main, until

# A second thread that outlives the first, and says its number.
THREAD = """
import os, threading, time
def wait():
    with open("tid.new", "w") as file:
        file.write(str(threading.get_native_id()))
    os.rename("tid.new", "tid")
    while True:
        time.sleep(1000)
threading.Thread(target=wait).start()
while True:
    time.sleep(1000)
"""


class Unkillable(MusterCase):
    def setUp(self):
        super().setUp()
        self.group = None
        root = self.freezer_root()
        if root is None:
            self.skipTest("no freezer hierarchy of control groups version 1 is mounted")
        group = os.path.join(root, f"muster-test-{os.getpid()}")
        try:
            os.mkdir(group)
        except OSError as error:
            self.skipTest(f"no control group to be had: {error}")
        self.group = group

    def tearDown(self):
        self.thaw()
        super().tearDown()

    @staticmethod
    def freezer_root():
        with open("/proc/self/mounts", encoding="utf-8") as file:
            for line in file:
                _, path, kind, options = line.split()[:4]
                if kind == "cgroup" and "freezer" in options.split(","):
                    return path
        return None

    def write(self, name, value):
        with open(os.path.join(self.group, name), "w", encoding="ascii") as file:
            file.write(str(value))

    def freeze(self, number, name="cgroup.procs"):
        """Returns when the process, or with name="tasks" the thread, is in state D."""
        self.write(name, number)
        self.write("freezer.state", "FROZEN")

        def frozen():
            with open(os.path.join(self.group, "freezer.state"), encoding="ascii") as file:
                return file.read() == "FROZEN\n"
        until(frozen, f"{number} to freeze")

    def thaw(self):
        if self.group is None:
            return
        self.write("freezer.state", "THAWED")

        def removed():
            try:
                os.rmdir(self.group)
                return True
            except OSError:
                return False
        until(removed, "the frozen to leave their group")
        self.group = None

    def unfit(self, job, pid, budget, start):
        """The job ends with 77 for `pid` in state D, within `budget` seconds of `start`."""
        self.assertEqual(job.code(), 77, job.err)
        took = time.monotonic() - start
        self.assertRegex(job.err, rf"process {pid} of rank 0 cannot be killed "
                                  r"\(state D\); this node is unfit\n")
        self.assertTrue(alive(pid))
        # As with ends_soon: the flags promise their time on a machine that is not overloaded.
        self.assertLess(took, budget + 10 * self.whole_job_s(), job.err)
        self.next_start(pid)

    def next_start(self, pid):
        """Where workers have groups of their own, one with a process in it cannot be removed, and
        the job's folder stays with it; when the process is gone the next start removes both."""
        self.thaw()
        until(lambda: not alive(pid), "its end")
        later = self.muster("run", "--standalone", "/bin/true")
        self.assertEqual(later.code(), 0, later.err)
        self.assertEqual(os.listdir(self.scratch), [])

    def test_the_budget_holds(self):
        # SIGKILL after 5 s, which leaves 3: to see that it is of no use, to say so, and to end.
        job = self.run_job("--standalone", "--nproc-per-node", "2", "--stop-grace", "60s",
                           "--stop-budget", "8s", self.script("exec sleep 1000\n"))
        self.until_event(job, "generation_running")
        pid = self.events(job, "worker_started", rank=0)[0]["pid"]
        self.freeze(pid)
        start = time.monotonic()
        job.signal(signal.SIGTERM)
        self.unfit(job, pid, 8, start)
        others = [event["pid"] for event in self.events(job, "worker_started", rank=1)]
        self.assertEqual([other for other in others if alive(other)], [])

    def test_after_a_failure(self):
        # No budget: five seconds for SIGKILL, which are waited for once.
        job = self.run_job("--standalone", "--nproc-per-node", "2", "--stop-grace", "1s",
                           "--termination-log", self.path("termination"),
                           self.script("[ $RANK = 0 ] && exec sleep 1000\n"
                                       "while [ ! -e go ]; do sleep 0.01; done\n"
                                       "echo because >&2; exit 3\n"))
        self.until_event(job, "generation_running")
        pid = self.events(job, "worker_started", rank=0)[0]["pid"]
        self.freeze(pid)
        start = time.monotonic()
        open(self.path("go"), "w", encoding="utf-8").close()
        self.unfit(job, pid, 1 + 5 + 3, start)
        # The failure that brought it up is explained all the same.
        self.assertRegex(job.err, r"muster: job \S+ failed on node \S+\n  process \d+ of rank 0 cannot "
                                  r"be killed \(state D\); this node is unfit\n"
                                  r"  first cause: rank 1 \(.*\): exit code 3\n"
                                  r"  last lines of its stderr:\n    \| because\n"
                                  r"  exit code: 77\n")
        self.assertEqual(job.err.count("this node is unfit"), 1, job.err)
        with open(self.path("termination"), encoding="utf-8") as file:
            written = json.load(file)
        self.assertEqual(written["exit_code"], 77)
        self.assertEqual(written["first_cause"]["rank"], 1)

    def test_an_agent_in_that_state_leaves_no_worker(self):
        # A loop that sits in a dead file system: three signals, and the guardian acts for it.
        job = self.run_job("--standalone", "--nproc-per-node", "2",
                           self.script("trap '' TERM; while :; do sleep 0.1; done\n"))
        self.until_event(job, "generation_running")
        pids = [event["pid"] for event in self.events(job, "worker_started")]
        agent = job.agent()
        self.freeze(agent)
        self.three_times(job, signal.SIGTERM)
        self.assertEqual(job.code(), 128 + signal.SIGTERM, job.err)
        self.assertIn(f"the agent (pid {agent}) did not act on SIGTERM nor on SIGKILL", job.err)
        self.assertEqual([pid for pid in pids if alive(pid)], [])
        self.next_start(agent)

    def test_signals_that_were_chosen_to_stop_count_as_well(self):
        job = self.run_job("--standalone", "--signals-to-handle", "SIGUSR1", "sleep", "1000")
        pid = self.until_event(job, "worker_started")[0]["pid"]
        agent = job.agent()
        os.kill(agent, signal.SIGSTOP)  # it takes none of them
        self.three_times(job, signal.SIGUSR1)
        self.assertEqual(job.code(), 128 + signal.SIGUSR1, job.err)
        self.assertIn(f"the agent (pid {agent}) did not act on SIGUSR1", job.err)
        self.assertFalse(alive(pid))

    @staticmethod
    def three_times(job, number):
        for _ in range(3):
            job.signal(number)
            time.sleep(0.15)  # closer together they count as one

    def test_a_thread_that_hangs_when_the_first_is_dead(self):
        with open(self.path("thread.py"), "w", encoding="utf-8") as file:
            file.write(THREAD)
        job = self.run_job("--standalone", "--stop-grace", "300ms", "--stop-budget", "4s",
                           "--python", sys.executable, self.path("thread.py"))
        until(lambda: os.path.exists(self.path("tid")), "the second thread")
        pid = self.until_event(job, "worker_started")[0]["pid"]
        self.freeze(int(self.read("tid")), "tasks")
        start = time.monotonic()
        job.signal(signal.SIGTERM)
        self.unfit(job, pid, 4, start)

    def test_a_child_of_a_worker(self):
        job = self.run_job("--standalone", "--stop-budget", "4s", self.script(
            "setsid sleep 1000 & echo $! > child.new; mv child.new child; wait\n"))
        until(lambda: os.path.exists(self.path("child")), "the child")
        pid = int(self.read("child"))
        self.freeze(pid)
        start = time.monotonic()
        job.signal(signal.SIGTERM)
        self.unfit(job, pid, 4, start)


if __name__ == "__main__":
    main()
