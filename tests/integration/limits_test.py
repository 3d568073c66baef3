#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Limits of the machine: named where they stop a job, worked around where they need not."""
import os
import resource
import signal
import sys

from harness import MUSTER, MusterCase, Process, alive, main, until


class OpenFiles(MusterCase):
    def under(self, limit, *arguments):
        """`muster run` started by a shell that has set limits for itself."""
        words = " ".join(arguments)
        wrapper = self.script(f"{limit}\nexec {MUSTER} run --standalone {words}\n", "limited.sh")
        return Process(self, [wrapper])

    def test_too_few_are_named_before_anything_starts(self):
        for limit in (10, 20, 40):
            job = self.under(f"ulimit -n {limit}", "--nproc-per-node", "4", "/bin/true")
            self.assertEqual(job.code(), 2, job.err)
            self.assertRegex(job.err, r"\Amuster: --nproc-per-node: 4 workers need \d+ open files, "
                                      rf"the limit here is {limit} \(ulimit -Hn\)\n\Z")

    def test_a_soft_limit_is_raised_for_us_and_not_for_the_workers(self):
        script = self.script("ulimit -Sn > soft.$RANK; ulimit -Hn > hard.$RANK; echo $RANK\n")
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        job = self.under("ulimit -Sn 12", "--nproc-per-node", "8", "-t", "3", "--log-dir",
                         self.path("logs"), script)
        self.assertEqual(job.code(), 0, job.err)
        self.assertEqual(sorted(job.out.split()), [str(rank) for rank in range(8)])
        for rank in range(8):
            self.assertEqual(self.read(f"soft.{rank}").strip(), "12")
            self.assertEqual(self.read(f"hard.{rank}").strip(), str(hard))

    def test_inherited_ones_up_to_the_soft_limit_are_made_room_for(self):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if hard != resource.RLIM_INFINITY and hard < 512:
            self.skipTest(f"the hard limit of open files here is {hard}")
        program = ("import os, sys; [os.dup2(0, n) for n in range(3, 250)]; "
                   "os.execv(sys.argv[1], sys.argv[1:])")
        wrapper = self.script(f"ulimit -Sn 256\nexec {sys.executable} -c '{program}' {MUSTER} "
                              "run --standalone --nproc-per-node 4 -t 3 --log-dir "
                              f"{self.path('logs')} /bin/true\n", "many.sh")
        job = Process(self, [wrapper])
        self.assertEqual(job.code(), 0, job.err)

    def test_what_is_asked_for_is_enough(self):
        needed = 32 + 7 * 8
        job = self.under(f"ulimit -n {needed}", "--nproc-per-node", "8", "-t", "3", "--log-dir",
                         self.path("logs"), "--events", self.path("events"), "/bin/true")
        self.assertEqual(job.code(), 0, job.err)


class OpenFilesOfALiveAgent(MusterCase):
    """Somebody lowers the limit of a job that runs: nothing more can be opened."""

    def test_what_workers_left_is_still_found_and_stopped(self):
        # Each rank is a shell with a child that has left its session: only /proc knows of it.
        child = self.script("trap ': > told.$RANK; exit' TERM\n: > up.$RANK\n"
                            "while :; do sleep 0.05; done\n", "child.sh")
        script = self.script(f"setsid {child} &\necho $! > child.$RANK\nwait\n")
        job = self.run_job("--standalone", "--nproc-per-node", "3",
                           "--stop-grace", "5s", script)
        children = [int(until(lambda rank=rank: self.read_if(f"child.{rank}"), "a child"))
                    for rank in range(3)]
        for rank in range(3):
            until(lambda rank=rank: os.path.exists(self.path(f"up.{rank}")), "its trap")
        started = until(lambda: self.events(job, "generation_running") and
                        self.events(job, "worker_started"), "the workers")
        agent = job.agent()
        highest = max(int(fd) for fd in os.listdir(f"/proc/{agent}/fd"))
        hard = resource.prlimit(agent, resource.RLIMIT_NOFILE)[1]
        # A number or two below what is open: whatever is closed now does not come back.
        resource.prlimit(agent, resource.RLIMIT_NOFILE, (min(20, highest - 1), hard))
        os.kill(next(event["pid"] for event in started if event["rank"] == 0), signal.SIGKILL)
        self.assertEqual(job.code(), 137, job.err)
        self.assertEqual([pid for pid in children if alive(pid)], [])
        self.assertEqual([rank for rank in range(3) if not os.path.exists(self.path(f"told.{rank}"))],
                         [], job.err)

    def read_if(self, name):
        try:
            return self.read(name).strip()
        except FileNotFoundError:
            return ""


class Processes(MusterCase):
    def test_the_limit_of_processes_is_named_and_is_not_126(self):
        if os.getuid() != 0:
            self.skipTest("root is needed to become a user without processes")
        os.chmod(self.folder, 0o777)
        os.chmod(self.scratch, 0o777)
        # A user that nobody else is, so that the count is ours alone: guardian, agent, threads.
        job = Process(self, ["setpriv", "--reuid", "64237", "--clear-groups", "prlimit",
                             "--nproc=12", MUSTER, "run", "--standalone", "--nproc-per-node", "16",
                             "sleep", "60"])
        self.assertEqual(job.code(), 70, job.err)
        self.assertIn("ulimit -u", job.err)


class Memory(MusterCase):
    """A control group of our own with a small limit; root only."""

    def setUp(self):
        super().setUp()
        name = f"muster-test-{os.getpid()}"
        root = "/sys/fs/cgroup"
        first = os.path.exists(f"{root}/memory/cgroup.procs")
        self.group = f"{root}/memory/{name}" if first else f"{root}/{name}"
        limit = "memory.limit_in_bytes" if first else "memory.max"
        try:
            os.mkdir(self.group)
            self.addCleanup(lambda: until(self.removed, "the control group to be empty"))
            with open(f"{self.group}/{limit}", "w", encoding="ascii") as file:
                file.write(str(400 << 20))
        except OSError as error:
            self.skipTest(f"no control group with a memory limit to be had: {error}")

    def removed(self):
        try:
            os.rmdir(self.group)
            return True
        except OSError:
            return False

    def job(self, *arguments):
        wrapper = self.script(f"echo $$ > {self.group}/cgroup.procs\n"
                              'exec "$@"\n', "grouped.sh")
        events = self.path("events")
        process = Process(self, [wrapper, MUSTER, "run", "--standalone", "--nproc-per-node", "2",
                                 "--events", events, *arguments])
        process.events_path = events
        return process

    def test_a_worker_that_the_kernel_killed_for_its_memory(self):
        script = self.script("[ $RANK = 1 ] || exec sleep 60\n"
                             f"exec {sys.executable} -c 'x = bytearray(1 << 30)'\n")
        job = self.job(script)
        self.assertEqual(job.code(), 137, job.err)
        cause = self.events(job, "generation_failed")[0]["first_cause"]
        self.assertEqual((cause["rank"], cause["kind"]), (1, "oom"), job.err)
        self.assertRegex(job.err, "(?i)memory")

    def test_a_worker_killed_in_a_group_that_it_made_itself(self):
        # Version 1 counts in that group alone; the kernel's log names the process.
        try:
            with open("/dev/kmsg", "rb"):
                pass
        except OSError as error:
            self.skipTest(f"the kernel's log cannot be read: {error}")
        if os.stat("/proc/self/ns/pid").st_ino != 0xEFFFFFFC:
            self.skipTest("the kernel's log has other pids than this pid namespace")
        nested = f"{self.group}/nested"
        os.mkdir(nested)
        self.addCleanup(lambda: os.path.isdir(nested) and os.rmdir(nested))
        script = self.script("[ $RANK = 1 ] || exec sleep 60\n"
                             f"echo $$ > {nested}/cgroup.procs\n"
                             f"exec {sys.executable} -c 'x = bytearray(1 << 30)'\n")
        job = self.job(script)
        self.assertEqual(job.code(), 137, job.err)
        cause = self.events(job, "generation_failed")[0]["first_cause"]
        self.assertEqual((cause["rank"], cause["kind"]), (1, "oom"), job.err)

    def test_a_workers_child_that_the_kernel_killed_for_its_memory(self):
        child = f"{sys.executable} -c 'x = bytearray(1 << 30)'"
        script = self.script("[ $RANK = 1 ] || exec sleep 60\n"
                             f"{child}\n[ $? = 137 ] && exit 5\nexit 6\n")
        job = self.job(script)
        self.assertEqual(job.code(), 5, job.err)
        cause = self.events(job, "generation_failed")[0]["first_cause"]
        self.assertEqual((cause["rank"], cause["kind"], cause["exit_code"]), (1, "exit", 5))
        words = "a process of this control group was killed meanwhile because memory ran out"
        self.assertEqual(cause["detail"], words)
        self.assertIn(f"\n  kernel: {words}\n", job.err)

    def test_a_worker_that_somebody_killed(self):
        job = self.job(self.script("[ $RANK = 1 ] || exec sleep 60\nkill -9 $$\n"))
        self.assertEqual(job.code(), 137, job.err)
        cause = self.events(job, "generation_failed")[0]["first_cause"]
        self.assertEqual((cause["rank"], cause["kind"], cause["signal"]), (1, "signal", "SIGKILL"))


if __name__ == "__main__":
    main()
