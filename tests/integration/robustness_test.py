#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a machine can run out of, and what a command line can hold: right outcome, clear words."""
import glob
import os
import resource
import signal
import subprocess

from harness import MUSTER, MusterCase, Process, free_port, main, until

KIB = 1024


def limited(case, limits, *arguments):
    """`muster run` under prlimit(1)'s flags."""
    events = case.path(f"events.{len(case.processes)}.jsonl")
    job = Process(case, ["prlimit", *limits, MUSTER, "run", "--events", events, *arguments])
    job.events_path = events
    return job


class Inputs(MusterCase):
    """What comes with the command line and the environment reaches every worker whole."""

    def test_a_thousand_variables(self):
        odd = ["", " ", "a=b", "two\nlines", "\ttab", "'\"$(x)`", "é漢", "\udcff\udcfe",
               "x" * 900]
        wanted = {f"LINE_{number:03d}": f"{odd[number % len(odd)]}{number}"
                  for number in range(1000)}
        job = self.run_job("--standalone", "--nproc-per-node", "2",
                           self.script("cat /proc/$$/environ > env.$RANK\n"), environment=wanted)
        self.assertEqual(job.code(), 0, job.err)
        for rank in range(2):
            with open(self.path(f"env.{rank}"), "rb") as file:
                lines = file.read().split(b"\0")
            got = dict(line.split(b"=", 1) for line in lines if line)
            for name, value in wanted.items():
                self.assertEqual(got.get(name.encode()), os.fsencode(value), name)
            self.assertEqual(got[b"RANK"], str(rank).encode())

    # The kernel takes 128 KiB, with the zero at its end, in one argument.
    LONGEST = 128 * KIB - 1

    def arguments_arrive(self, *server):
        # The kernel lets a start have a quarter of the stack for all of it.
        words = [chr(ord("a") + number) * self.LONGEST for number in range(8)]
        script = self.script("cat /proc/$$/cmdline > args.$RANK\n")
        job = self.run_job(*server, "--nproc-per-node", "2", script, *words)
        self.assertEqual(job.code(), 0, job.err[-2000:])
        for rank in range(2):
            with open(self.path(f"args.{rank}"), encoding="ascii") as file:
                got = file.read().split("\0")
            # The interpreter, the script, the words, and nothing after the last zero.
            self.assertEqual(len(got), 11, [word[:40] for word in got])
            self.assertTrue(got[2:-1] == words, f"rank {rank} has other arguments")

    def test_a_megabyte_of_arguments(self):
        self.arguments_arrive("--standalone")

    def test_a_megabyte_of_arguments_with_a_server_of_its_own(self):
        port = free_port()
        server = self.muster("rendezvous", "--listen", f"127.0.0.1:{port}", "--state-dir",
                             self.path("server"))
        until(lambda: str(port) in server.out + server.err, "the server's line")
        self.arguments_arrive("--nnodes", "1", "--rdzv-id", "long", "--rdzv-endpoint",
                              f"127.0.0.1:{port}")
        server.signal(signal.SIGTERM)
        self.assertEqual(server.code(), 0, server.err)

    def test_more_than_the_kernel_takes_is_named(self):
        # With a stack of 512 KiB all arguments and variables have 128 KiB. What is left when muster
        # has been started is too little for a worker, which has more variables.
        for size in range(self.LONGEST, self.LONGEST - 4 * KIB, -128):
            job = limited(self, [f"--stack={512 * KIB}"], "--standalone", "/bin/true", "x" * size)
            code = job.code()
            if not job.err.startswith("prlimit:"):
                break
        self.assertEqual(code, 126, job.err)
        self.assertRegex(job.err, "(?m)^muster: .*/bin/true: Argument list too long")
        self.assertNotIn("xxxx", job.err)
        self.assertEqual(self.events(job, "worker_started"), [])


class ManyWorkers(MusterCase):
    WORKERS = 512

    def test_512_workers_of_true(self):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if hard != resource.RLIM_INFINITY and hard < 8 * self.WORKERS:
            self.skipTest(f"512 workers need more open files than the {hard} allowed here")
        job = self.run_job("--standalone", "--nproc-per-node", str(self.WORKERS), "/bin/true")
        # One after the other: on busy cores each start waits for its turn.
        self.assertEqual(job.code(240), 0, job.err)
        for name in ("worker_started", "worker_exited"):
            ranks = [event["rank"] for event in self.events(job, name)]
            self.assertEqual(sorted(ranks), list(range(self.WORKERS)))
        self.assertEqual({event["exit_code"] for event in self.events(job, "worker_exited")}, {0})
        self.assertEqual(self.events(job, "job_finished")[0]["outcome"], "succeeded")


class ShortLived(MusterCase):
    """Workers that end before anybody can look at them."""

    def test_all_succeed(self):
        for _ in range(5):
            job = self.run_job("--standalone", "--nproc-per-node", "16", "/bin/true")
            self.assertEqual(job.code(), 0, job.err)
            exits = self.events(job, "worker_exited")
            self.assertEqual(sorted(event["rank"] for event in exits), list(range(16)))

    def test_the_one_that_fails_is_named_among_those_that_succeed(self):
        rounds, culprit = 20, 5
        job = self.run_job("--standalone", "--nproc-per-node", "8", "--max-restarts", str(rounds),
                           "--restart-backoff", "0s", "/bin/sh", "-c",
                           f"exit $((RANK == {culprit} ? 3 : 0))")
        self.assertEqual(job.code(), 3, job.err)
        causes = [event["first_cause"] for event in self.events(job, "generation_failed")]
        self.assertEqual([(cause["rank"], cause["kind"], cause["exit_code"]) for cause in causes],
                         [(culprit, "exit", 3)] * (rounds + 1))
        self.assertEqual(len(self.events(job, "worker_exited")), 8 * (rounds + 1))

    def test_all_fail(self):
        job = self.run_job("--standalone", "--nproc-per-node", "16", "/bin/sh", "-c", "exit 3")
        self.assertEqual(job.code(), 3, job.err)
        self.assertEqual(len(self.events(job, "worker_exited")), 16)
        cause = self.events(job, "generation_failed")[0]["first_cause"]
        self.assertEqual((cause["kind"], cause["exit_code"]), ("exit", 3))
        self.assertRegex(job.err, r"muster: job \S+ failed")


class Forks(MusterCase):
    """A process that cannot be started: 70, the limit by name, and nothing left."""

    def test_no_memory_for_a_fork(self):
        # Someone takes the agent's memory away while it runs: there is no room for what the next
        # worker is to be given.
        large = {f"LARGE_{number}": "x" * 120_000 for number in range(12)}
        job = self.run_job("--standalone", "--nproc-per-node", "2", "--max-restarts", "3",
                           "--restart-backoff", "0s", "/bin/sleep", "600", environment=large)
        self.until_event(job, "generation_running")
        agent = job.agent()
        with open(f"/proc/{agent}/statm", encoding="ascii") as file:
            size = int(file.read().split()[0]) * resource.getpagesize()
        if size > 1 << 40:
            self.skipTest("a sanitizer's shadow memory cannot be limited")
        resource.prlimit(agent, resource.RLIMIT_AS, (size, size))
        victim = self.events(job, "worker_started", rank=1)[0]["pid"]
        os.kill(victim, signal.SIGKILL)
        self.assertEqual(job.code(), 70, job.err)
        self.assertRegex(job.err, r"muster: .*(out of memory|bad_alloc|Cannot allocate memory)")

    def test_every_number_of_processes(self):
        # A user that nobody else is: guardian, agent, its threads and workers are all there is.
        if os.getuid() != 0:
            self.skipTest("root is needed to become a user without processes")
        for path in (self.folder, self.scratch):
            os.chmod(path, 0o777)
        codes = []
        for number in range(1, 33):
            job = Process(self, ["setpriv", "--reuid", "64238", "--clear-groups", "prlimit",
                                 f"--nproc={number}", MUSTER, "run", "--standalone",
                                 "--nproc-per-node", "2", "/bin/true"],
                          # A leak check of a sanitizer's would need a process, too.
                          environment={"ASAN_OPTIONS": "detect_leaks=0"})
            codes.append(job.code())
            self.assertIn(codes[-1], (0, 70), job.err)
            if codes[-1] == 70:
                self.assertRegex(job.err, "(?m)^muster: ", f"{number} processes")
                self.assertRegex(job.err, "ulimit -u|Resource temporarily unavailable",
                                 f"{number} processes")
            elif codes[-4:] == [0] * 4:
                break
        self.assertEqual(codes[-1], 0, codes)
        self.assertIn(70, codes)

    def test_logs_without_a_thread_to_write_them(self):
        # Guardian, agent, its stand-in and the worker: output gets no thread.
        if os.getuid() != 0:
            self.skipTest("root is needed to become a user without processes")
        for path in (self.folder, self.scratch):
            os.chmod(path, 0o777)
        script = self.script("exec seq 200000\n")
        job = Process(self, ["setpriv", "--reuid", "64239", "--clear-groups", "prlimit",
                             "--nproc=4", MUSTER, "run", "--standalone", "--log-dir",
                             self.path("logs"), "-r", "3", script],
                      environment={"ASAN_OPTIONS": "detect_leaks=0"})
        self.assertEqual(job.code(), 0, job.err)
        (log,) = glob.glob(self.path("logs/*/run-*/**/stdout.log"), recursive=True)
        with open(log, encoding="ascii") as file:
            self.assertEqual(file.read().split(), [str(line) for line in range(1, 200001)])


class Mounted(MusterCase):
    """File systems of our own, in a mount namespace that goes with the job."""

    UNSHARE = ["unshare", "--mount", "--propagation", "private"]

    def setUp(self):
        super().setUp()
        tried = subprocess.run([*self.UNSHARE, "true"], check=False, capture_output=True)
        if os.getuid() != 0 or tried.returncode != 0:
            self.skipTest("root is needed for a file system of a given size")
        self.place = self.path("place")
        os.mkdir(self.place)

    def on(self, mount, *arguments, before="", after="", **options):
        """A job behind a mount on `place`, between two lines of shell."""
        mounted = self.script(f"mount -t tmpfs -o {mount} none {self.place} || exit 99\n{before}\n"
                              f'"$@"\ncode=$?\n{after}\nexit $code\n', "mounted.sh")
        return Process(self, [*self.UNSHARE, mounted, MUSTER, "run", "--standalone", *arguments],
                       **options)

    FAIL = "echo last words >&2\nexit 3\n"

    def test_a_read_only_log_folder_that_was_asked_for_is_refused(self):
        for flags in (("--log-dir", self.place), ("--log-dir", f"{self.place}/below")):
            job = self.on("ro", *flags, "/bin/true")
            self.assertEqual(job.code(), 2, job.err)
            self.assertRegex(job.err, r"\Amuster: --log-dir: cannot (write in|create) "
                                      rf"{self.place}\S*: Read-only file system\n\Z")

    def test_a_read_only_state_folder_costs_a_line_when_it_is_needed(self):
        state = {"XDG_STATE_HOME": self.place}
        job = self.on("ro", "/bin/true", environment=state)
        self.assertEqual((job.code(), job.err), (0, ""))
        job = self.on("ro", self.script(self.FAIL), environment=state)
        self.assertEqual(job.code(), 3, job.err)
        lines = [line for line in job.err.splitlines() if "Read-only file system" in line]
        self.assertEqual(len(lines), 1, job.err)
        self.assertIn("--log-dir", lines[0])
        self.assertIn("last words", job.err)

    def test_a_full_disk_under_the_logs_loses_no_output(self):
        lines = 20000
        job = self.on("size=64k", "-r", "3", "--log-dir", self.place, "/usr/bin/seq", str(lines),
                      after=f"cp {self.place}/*/latest/gen-0/rank-0/stdout.log kept")
        self.assertEqual(job.code(), 0, job.err)
        kept, shown = self.read("kept").splitlines(), job.out.splitlines()
        self.assertGreater(len(kept), 1000)
        self.assertEqual(shown[-1], str(lines))
        # One line may be cut in two where the disk was full.
        self.assertGreaterEqual(len(set(kept) | set(shown)), lines - 1)
        told = [line for line in job.err.splitlines() if "--log-dir" in line]
        self.assertEqual(len(told), 1, job.err)
        self.assertIn("No space left on device", told[0])

    def test_a_full_disk_under_the_last_words_costs_a_line_a_file(self):
        job = self.on("size=4k", "--log-dir", self.place, self.script(self.FAIL))
        self.assertEqual(job.code(), 3, job.err)
        self.assertIn("last words", job.err)
        told = [line for line in job.err.splitlines() if "No space left on device" in line]
        self.assertEqual(len(told), 2, job.err)
        for name, line in zip(("agent.log", "rank-0/stderr.log"), told):
            self.assertRegex(line, rf"muster: cannot write {self.place}/\S*{name}: ")

    def test_a_full_disk_under_the_events_costs_a_line(self):
        events = f"{self.place}/events"
        job = self.on("size=16k", "--nproc-per-node", "40", "--events", events, "/bin/true",
                      environment={"OMP_NUM_THREADS": "1"})
        self.assertEqual(job.code(), 0, job.err)
        self.assertEqual(job.err,
                         f"muster: events: cannot write {events}: No space left on device\n")

    def test_no_room_for_the_private_files(self):
        # The store's token has a page, and so has each progress file; then it is full.
        private = {"XDG_RUNTIME_DIR": self.place, "TMPDIR": self.place, "OMP_NUM_THREADS": "1"}
        fill = f"head -c 4096 /dev/zero > {self.place}/filled"
        for size, workers, before in (("4k", 1, fill), ("4k", 1, ""), ("8k", 2, "")):
            job = self.on(f"size={size}", "--nproc-per-node", str(workers), "--max-restarts", "3",
                          "/bin/sleep", "600", before=before, environment=private)
            self.assertEqual(job.code(), 70, job.err)
            self.assertRegex(job.err,
                             rf"muster: .*{self.place}/muster-\S*: No space left on device")


class LogFolders(MusterCase):
    def test_a_missing_one_is_made(self):
        deep = self.path("a/b/c")
        job = self.run_job("--standalone", "--log-dir", deep, "-r", "3", "/bin/echo", "hello")
        self.assertEqual(job.code(), 0, job.err)
        (name,) = os.listdir(deep)
        self.assertEqual(self.read(f"a/b/c/{name}/latest/gen-0/rank-0/stdout.log"), "hello\n")

    def test_one_that_others_own_is_refused(self):
        if os.getuid() != 0:
            self.skipTest("root is needed to become somebody without rights")
        os.chmod(self.folder, 0o755)
        os.chmod(self.scratch, 0o777)
        logs = self.path("logs")
        os.mkdir(logs, 0o755)
        job = Process(self, ["setpriv", "--reuid", "64239", "--clear-groups", MUSTER, "run",
                             "--standalone", "--log-dir", logs, "/bin/true"])
        self.assertEqual(job.code(), 2, job.err)
        self.assertEqual(job.err, f"muster: --log-dir: cannot write in {logs}: Permission denied\n")

    def test_one_that_goes_while_the_job_runs(self):
        logs = self.path("logs")
        script = self.script(f"[ $MUSTER_GENERATION = 1 ] && {{ echo again; exit 0; }}\n"
                             f"rm -rf {logs}\necho last words >&2\nexit 3\n")
        job = self.run_job("--standalone", "--max-restarts", "1", "-r", "1", "--log-dir", logs,
                           script)
        self.assertEqual(job.code(), 0, job.err)
        self.assertIn("last words", job.err)
        (name,) = os.listdir(logs)
        (run,) = [entry for entry in os.listdir(f"{logs}/{name}") if entry.startswith("run-")]
        self.assertEqual(self.read(f"logs/{name}/{run}/gen-1/rank-0/stdout.log"), "again\n")


if __name__ == "__main__":
    main()
