#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One node, real workers: environment, output, exit codes, restart, files, events."""
import json
import os
import signal

from harness import MUSTER, MusterCase, Process, alive, main, until

SHOW = 'env | grep -E "^(RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|GROUP_|MASTER_|MUSTER_|TORCH|ROLE_|OMP|PET_)" | sort > env.$RANK\n'


class Environment(MusterCase):
    def test_variables_of_the_contract(self):
        job = self.run_job("--standalone", "--nproc-per-node", "2", "--max-restarts", "3",
                           self.script(SHOW),
                           environment={"RANK": "77", "MASTER_ADDR": "elsewhere",
                                        "WORLD_SIZE": "99", "MUSTER_LOG_LEVEL": "warning",
                                        "MUSTER_STORY": "mine"})
        self.assertEqual(job.code(), 0, job.err)
        for rank in range(2):
            with open(self.path(f"env.{rank}"), encoding="utf-8") as file:
                env = dict(line.rstrip("\n").split("=", 1) for line in file)
            for name, value in {
                    "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2",
                    "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1",
                    "ROLE_RANK": str(rank), "ROLE_WORLD_SIZE": "2", "ROLE_NAME": "default",
                    "TORCHELASTIC_MAX_RESTARTS": "3", "TORCHELASTIC_RESTART_COUNT": "0",
                    "TORCHELASTIC_USE_AGENT_STORE": "False", "OMP_NUM_THREADS": "1",
                    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", "MUSTER_GENERATION": "0",
                    "MUSTER_RESTART_REASON": "start"}.items():
                self.assertEqual(env.get(name), value, name)
            self.assertNotEqual(env["MASTER_ADDR"], "elsewhere")
            self.assertTrue(20000 <= int(env["MASTER_PORT"]) <= 28999, env["MASTER_PORT"])
            for name in ("MUSTER_JOB_ID", "MUSTER_RUN_ID", "MUSTER_NODE", "MUSTER_STORE",
                         "MUSTER_STORE_TOKEN_FILE", "MUSTER_PROGRESS_FILE", "MUSTER_STOP_FILE",
                         "MUSTER_ASSIGNMENT_FILE", "MUSTER_RUN_DIR", "TORCHELASTIC_ERROR_FILE",
                         "TORCHELASTIC_RUN_ID"):
                self.assertTrue(env.get(name), name)
            self.assertNotIn("MUSTER_LOG_LEVEL", env)
            self.assertEqual(env["MUSTER_STORY"], "mine")  # no option: the user's own

    def test_debug_lines_tell_what_the_agent_hears_and_does(self):
        job = self.run_job("--standalone", "--log-level", "debug", "/bin/true")
        self.assertEqual(job.code(), 0, job.err)
        for words in (" sends Join: 1 slot", " received Commit: ", " starts workers of run ",
                      " starting -> running", " ended: exit 0", " ends with 0, class succeeded"):
            self.assertEqual(job.err.count(words), 1, job.err)
        job = self.run_job("--standalone", "--log-level", "info", "/bin/true")
        self.assertEqual((job.code(), job.err.count(" sends ")), (0, 0), job.err)

    def test_descriptors_0_to_2_only(self):
        # 3 is the folder that ls reads; a leaked descriptor would push it further up.
        job = self.run_job("--standalone", "ls", "/proc/self/fd")
        self.assertEqual(job.code(), 0, job.err)
        self.assertEqual(job.out.split(), ["0", "1", "2", "3"])

    def test_arguments_reach_the_program_byte_for_byte(self):
        script = self.script('printf "%s\\n" "$@" > args.$RANK\n')
        odd = ["--nnodes", "$$", "a b", "", "${local_rank}", "-x=${local_rank}"]
        self.assertEqual(self.run_job("--standalone", "--nproc-per-node", "2", script, *odd).code(), 0)
        with open(self.path("args.1"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "--nnodes\n$$\na b\n\n1\n-x=1\n")
        job = self.run_job("--standalone", "--no-substitute", "--pass-local-rank", script, *odd)
        self.assertEqual(job.code(), 0)
        with open(self.path("args.0"), encoding="utf-8") as file:
            self.assertEqual(file.read(),
                             "--nnodes\n$$\na b\n\n${local_rank}\n-x=${local_rank}\n--local-rank=0\n")

    def test_a_store_key_travels_between_workers(self):
        # The port answers; what speaks to it is tested with the training program.
        job = self.run_job("--standalone", self.script('echo "$MUSTER_STORE" > store; ls -l '
                                                       '"$MUSTER_STORE_TOKEN_FILE" > mode\n'))
        self.assertEqual(job.code(), 0, job.err)
        with open(self.path("store"), encoding="utf-8") as file:
            self.assertRegex(file.read(), r"^127\.0\.0\.1:\d+$")
        with open(self.path("mode"), encoding="utf-8") as file:
            self.assertTrue(file.read().startswith("-rw-------"))


class ExitCodes(MusterCase):
    def test_success(self):
        job = self.run_job("--standalone", "--nproc-per-node", "4", "/bin/true")
        self.assertEqual(job.code(), 0)
        # OMP_NUM_THREADS=1 is said in one line; nothing else is.
        self.assertRegex(job.err, r"\Amuster: OMP_NUM_THREADS [^\n]*\n\Z")
        finished = self.events(job, "job_finished")
        self.assertEqual([event["outcome"] for event in finished], ["succeeded"])

    def test_the_workers_own_code(self):
        self.assertEqual(self.run_job("--standalone", self.script("exit 7\n")).code(), 7)
        flat = self.run_job("--standalone", "--exit-code", "flat", self.script("exit 7\n"))
        self.assertEqual(flat.code(), 1)

    def test_a_signal_is_128_and_its_number(self):
        job = self.run_job("--standalone", "--nproc-per-node", "2",
                           self.script("[ $RANK = 1 ] && kill -SEGV $$\nsleep 600\n"))
        self.assertEqual(job.code(), 139)
        self.assertIn("SIGSEGV", job.err)

    def test_early_exit_0_of_one_rank_is_no_success_yet(self):
        job = self.run_job("--standalone", "--nproc-per-node", "2",
                           self.script("[ $RANK = 1 ] && exit 0\n"
                                       "while [ ! -e go ]; do sleep 0.01; done; exit 5\n"))
        self.until_event(job, "worker_exited", rank=1)
        open(self.path("go"), "w", encoding="utf-8").close()
        self.assertEqual(job.code(), 5)

    def test_missing_and_not_executable(self):
        job = self.run_job("--standalone", "--max-restarts", "3", "./no-such-program")
        self.assertEqual(job.code(), 127)
        self.assertIn("no-such-program", job.err)
        with open(self.path("plain.bin"), "wb") as file:
            file.write(b"\x7fELF not really")
        job = self.run_job("--standalone", "--max-restarts", "3", "./plain.bin")
        self.assertEqual(job.code(), 126)
        self.assertIn("plain.bin", job.err)

    def test_exit_127_of_a_worker_is_a_worker_failure(self):
        job = self.run_job("--standalone", "--max-restarts", "1", "--restart-backoff", "0s",
                           self.script("exit 127\n"))
        self.assertEqual(job.code(), 127)
        self.assertEqual(len(self.events(job, "generation_failed")), 2)


class Restart(MusterCase):
    def test_one_failure_costs_one_restart(self):
        job = self.run_job("--standalone", "--nproc-per-node", "2", "--max-restarts", "2",
                           self.script("echo $RANK $TORCHELASTIC_RESTART_COUNT $MUSTER_GENERATION "
                                       "$MUSTER_RESTART_REASON >> seen.$RANK\n"
                                       "[ $MUSTER_GENERATION = 0 ] || exit 0\n"
                                       "until [ -e seen.0 ]; do sleep 0.01; done\n"
                                       "[ $RANK = 1 ] && exit 3\nsleep 600\n"))
        self.assertEqual(job.code(), 0, job.err)
        for rank in range(2):
            with open(self.path(f"seen.{rank}"), encoding="utf-8") as file:
                self.assertEqual(file.read(), f"{rank} 0 0 start\n{rank} 1 1 worker_failure\n")
        names = [event["event"] for event in self.events(job)]
        for name in ("job_started", "node_joined", "generation_formed", "worker_started",
                     "generation_running", "worker_exited", "generation_failed",
                     "restart_scheduled", "recovered", "job_finished"):
            self.assertIn(name, names)
        cause = self.events(job, "generation_failed")[0]["first_cause"]
        self.assertEqual((cause["rank"], cause["kind"], cause["exit_code"]), (1, "exit", 3))
        scheduled = self.events(job, "restart_scheduled")[0]
        self.assertEqual((scheduled["restarts_used"], scheduled["max_restarts"],
                          scheduled["charged"]), (1, 2, True))
        torn = [event["torn_down"] for event in self.events(job, "worker_exited", rank=0)]
        self.assertEqual(torn, [True, False])
        self.assertEqual([event["seq"] for event in self.events(job)],
                         sorted(event["seq"] for event in self.events(job)))
        self.assertIn("recovered in", job.err)

    def test_kill_9_of_a_worker(self):
        job = self.run_job("--standalone", "--nproc-per-node", "4", "--max-restarts", "1",
                           self.script("[ $MUSTER_GENERATION = 1 ] && exit 0\nexec sleep 600\n"))
        self.until_event(job, "generation_running")
        victim = self.events(job, "worker_started", rank=2)[0]["pid"]
        os.kill(victim, signal.SIGKILL)
        self.assertEqual(job.code(), 0, job.err)
        cause = self.events(job, "generation_failed")[0]["first_cause"]
        self.assertEqual((cause["rank"], cause["kind"], cause["signal"]), (2, "signal", "SIGKILL"))
        first_world = [event["pid"] for event in self.events(job, "worker_started", generation=0)]
        self.assertEqual([pid for pid in first_world if alive(pid)], [])

    def test_the_budget_is_never_exceeded(self):
        job = self.run_job("--standalone", "--nproc-per-node", "2", "--max-restarts", "2",
                           "--restart-backoff", "0s",
                           self.script('[ $RANK = 1 ] && { echo "bad luck" >&2; exit 9; }\n'
                                       "sleep 600\n"))
        self.assertEqual(job.code(), 9)
        self.assertEqual(len(self.events(job, "generation_formed")), 3)
        finished = self.events(job, "job_finished")[0]
        self.assertEqual((finished["outcome"], finished["exit_code"], finished["exit_class"],
                          finished["restarts_used"]), ("failed", 9, "worker", 2))
        block = job.err[job.err.index("muster: job"):]
        self.assertRegex(block, r"muster: job \S+ failed")
        self.assertIn("bad luck", block)
        self.assertIn("rank 1", block)


class Files(MusterCase):
    def test_the_last_64_kib_of_a_failed_workers_stderr_are_kept(self):
        job = self.run_job("--standalone", "--console", "none", "--log-dir", self.path("logs"),
                           self.script("seq 100000 30000000 | head -20000 >&2; exit 3\n"))
        self.assertEqual(job.code(), 3, job.err)
        (name,) = os.listdir(self.path("logs"))
        kept = self.read(f"logs/{name}/latest/gen-0/rank-0/stderr.log")
        self.assertLessEqual(len(kept), 65536)
        self.assertGreater(len(kept), 65536 - 8)
        lines = [int(line) for line in kept.splitlines()]
        self.assertEqual(lines, list(range(lines[0], 120000)))
        # The event and the block stay short.
        tail = self.events(job, "generation_failed")[0]["first_cause"]["stderr_tail"]
        self.assertEqual(tail.splitlines(), [str(n) for n in range(119980, 120000)])

    def test_redirected_output_and_meta(self):
        logs = self.path("logs")
        job = self.run_job("--standalone", "--nproc-per-node", "2", "--rdzv-id", "ignored",
                           "--log-dir", logs, "-r", "3",
                           self.script('echo "out $RANK"; echo "err $RANK" >&2\n'))
        self.assertEqual(job.code(), 0, job.err)
        self.assertEqual(job.out, "")
        (job_name,) = os.listdir(logs)
        latest = os.path.join(logs, job_name, "latest")
        self.assertTrue(os.path.islink(latest))
        for rank in range(2):
            folder = os.path.join(latest, "gen-0", f"rank-{rank}")
            with open(os.path.join(folder, "stdout.log"), encoding="utf-8") as file:
                self.assertEqual(file.read(), f"out {rank}\n")
            with open(os.path.join(folder, "stderr.log"), encoding="utf-8") as file:
                self.assertEqual(file.read(), f"err {rank}\n")
            with open(os.path.join(folder, "meta.json"), encoding="utf-8") as file:
                meta = json.load(file)
            self.assertEqual(meta["local_rank"], rank)
            self.assertGreater(meta["pid"], 1)

    def test_what_a_full_disk_cannot_take_is_shown(self):
        # No file may grow beyond 64 KiB: a disk that is full for everybody, root too.
        script = self.script("for i in $(seq 4500); do echo $RANK line number $i; done\n"
                             "echo $RANK is done >&2\n")
        logs = self.path("logs")
        limited = self.script(
            f"ulimit -f 128\nexec {MUSTER} run --standalone --nproc-per-node 2 --log-dir {logs} "
            f"-r 3 --max-restarts 0 {script}\n", "limited.sh")
        job = Process(self, [limited])
        self.assertEqual(job.code(), 0, job.err)
        for rank in range(2):
            (job_name,) = os.listdir(logs)
            with open(os.path.join(logs, job_name, "latest", "gen-0", f"rank-{rank}",
                                   "stdout.log"), encoding="utf-8") as file:
                kept = file.read()
            self.assertGreater(len(kept), 60000)
            shown = [line for line in job.out.splitlines() if line.startswith(f"{rank} ")]
            missing = 4500 - kept.count("\n")
            self.assertIn(len(shown), (missing - 1, missing))  # one may be cut in two
            self.assertTrue(shown[-1] == f"{rank} line number 4500", shown[-1])
        lines = [line for line in job.err.splitlines() if "--log-dir" in line]
        self.assertEqual(len(lines), 1, job.err)
        self.assertRegex(lines[0], "rank-[01]/stdout.log: File too large")

    def test_tee_goes_to_both(self):
        logs = self.path("logs")
        job = self.run_job("--standalone", "--log-dir", logs, "-t", "0:1", self.script("echo both\n"))
        self.assertEqual(job.code(), 0, job.err)
        self.assertIn("both", job.out)
        (job_name,) = os.listdir(logs)
        with open(os.path.join(logs, job_name, "latest", "gen-0", "rank-0", "stdout.log"),
                  encoding="utf-8") as file:
            self.assertEqual(file.read(), "both\n")

    def test_a_restart_deletes_no_log(self):
        logs = self.path("logs")
        job = self.run_job("--standalone", "--max-restarts", "1", "--log-dir", logs, "-r", "1",
                           self.script("echo gen $MUSTER_GENERATION; exit $((1 - MUSTER_GENERATION))\n"))
        self.assertEqual(job.code(), 0, job.err)
        (job_name,) = os.listdir(logs)
        for generation in range(2):
            with open(os.path.join(logs, job_name, "latest", f"gen-{generation}", "rank-0",
                                   "stdout.log"), encoding="utf-8") as file:
                self.assertEqual(file.read(), f"gen {generation}\n")

    def test_the_workers_error_file_reaches_the_report(self):
        text = ('{"message": {"message": "ValueError: no such shard", "extraInfo": '
                '{"py_callstack": "", "timestamp": "1"}}}')
        job = self.run_job("--standalone",
                           self.script(f"echo '{text}' > $TORCHELASTIC_ERROR_FILE; exit 4\n"))
        self.assertEqual(job.code(), 4)
        self.assertIn("no such shard", job.err)
        bad = self.run_job("--standalone",
                           self.script("echo '{\"mess' > $TORCHELASTIC_ERROR_FILE; exit 4\n"))
        self.assertEqual(bad.code(), 4)

    def test_event_lines_are_well_formed(self):
        job = self.run_job("--standalone", "/bin/true")
        self.assertEqual(job.code(), 0)
        for event in self.events(job):
            self.assertEqual(event["schema"], 1)
            self.assertRegex(event["ts"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")
            self.assertTrue(event["job"] and event["run"] is not None)
        job = self.muster("run", "--standalone", "--events", "-", "/bin/true")
        self.assertEqual(job.code(), 0)
        self.assertIn('"event":"job_finished"', job.out.replace(" ", ""))


class Output(MusterCase):
    def test_lines_are_whole_and_streams_apart(self):
        line = "x" * 300
        job = self.run_job("--standalone", "--nproc-per-node", "4", "--console", "prefixed",
                           self.script(f"for i in $(seq 200); do echo $RANK {line}; done\n"
                                       "echo problem >&2\n"))
        self.assertEqual(job.code(), 0)
        lines = job.out.splitlines()
        self.assertEqual(len(lines), 800)
        for one in lines:
            prefix, rank, text = one.split(" ", 2)
            self.assertEqual((prefix, text), (f"[{rank}]", line))
        self.assertEqual(sorted(line for line in job.err.splitlines() if not line.startswith("muster: ")),
                         [f"[{rank}] problem" for rank in range(4)])

    def test_lines_mode_passes_bytes_and_a_last_partial_line(self):
        job = self.run_job("--standalone", "--console", "lines",
                           self.script(r"printf 'a\000b\377\n'; printf 'no newline'" + "\n"))
        self.assertEqual(job.code(), 0)
        with open(job.out_path, "rb") as file:
            self.assertEqual(file.read().rstrip(b"\n"), b"a\0b\xff\nno newline")

    def test_rank0_and_none(self):
        script = self.script("echo rank $RANK\n")
        job = self.run_job("--standalone", "--nproc-per-node", "2", "--console", "rank0", script)
        self.assertEqual(job.code(), 0)
        self.assertEqual(job.out, "rank 0\n")
        job = self.run_job("--standalone", "--nproc-per-node", "2", "--console", "none", script)
        self.assertEqual(job.code(), 0)
        self.assertEqual(job.out, "")

    def test_a_closed_console_does_not_end_the_job(self):
        read_end, write_end = os.pipe()
        os.close(read_end)
        import subprocess
        job = subprocess.Popen(
            [self.muster_path(), "run", "--standalone", self.script(
                "for i in $(seq 100); do echo line $i; done; touch finished\n")],
            stdin=subprocess.DEVNULL, stdout=write_end, stderr=subprocess.DEVNULL,
            env=self.environment, cwd=self.folder)
        os.close(write_end)
        self.assertEqual(job.wait(60), 0)
        self.assertTrue(os.path.exists(self.path("finished")))

    def start_unread(self, *arguments):
        """A job whose stdout is a pipe: (process, the end that nobody reads yet)."""
        from harness import Process
        read_end, write_end = os.pipe()
        self.addCleanup(os.close, read_end)
        line = " ".join([f"exec {self.muster_path()} run --standalone", *arguments])
        job = Process(self, ["/bin/sh", "-c", f"{line} >&{write_end}"], pass_fds=[write_end])
        os.close(write_end)
        return job, read_end

    FLOOD = ("i=0; while [ $i -lt 20000 ]; do i=$((i+1))\n"
             "echo rank $RANK line $i of a long output that goes on and on; done\n"
             "echo fin > fin.$RANK\n")

    def test_a_blocked_console_delays_no_rank(self):
        script = self.script(self.FLOOD + "while [ ! -e go ]; do sleep 0.01; done\n")
        job, read_end = self.start_unread("--nproc-per-node 2 -t 3 --log-dir logs", script)
        until(lambda: all(os.path.exists(self.path(f"fin.{rank}")) for rank in (0, 1)),
              "the end of both ranks")
        job_name, = os.listdir(self.path("logs"))
        folder = self.path(f"logs/{job_name}/latest/gen-0")
        logs = [os.path.join(folder, f"rank-{rank}/stdout.log") for rank in (0, 1)]
        expected = [f"rank {rank} line {i} of a long output that goes on and on"
                    for rank in (0, 1) for i in range(1, 20001)]

        def lines():
            found = []
            for log in logs:
                with open(log, encoding="utf-8") as file:
                    found += file.read().splitlines()
            return found
        until(lambda: lines() == expected, "complete log files")
        # The reader goes on, slowly at first, and gets everything.
        shown = os.read(read_end, 4096)
        open(self.path("go"), "w", encoding="utf-8").close()
        while block := os.read(read_end, 65536):
            shown += block
        self.assertEqual(job.code(), 0, job.err)
        self.assertEqual(sorted(shown.decode().splitlines()), sorted(expected))

    def test_a_console_that_stays_blocked_does_not_hold_the_end(self):
        script = self.script(self.FLOOD + "exit 3\n")
        job, _ = self.start_unread(script)
        self.assertEqual(job.code(), 3)
        self.assertRegex(job.err, r"nobody reads the console: \d+ bytes of stdout are not shown")
        self.assertLess(job.err.index("nobody reads"), job.err.index("muster: job "))

    def test_a_signal_ends_the_wait_for_a_blocked_console(self):
        import signal
        import time
        script = self.script("trap 'exit 0' INT\n" + self.FLOOD + "while :; do sleep 0.01; done\n")
        job, _ = self.start_unread(script)
        until(lambda: os.path.exists(self.path("fin.0")), "the flood's end")
        start = time.monotonic()
        job.signal(signal.SIGINT)
        self.assertEqual(job.code(), 130, job.err)
        # Less than the patience of a job that ends by itself.
        self.assertLess(time.monotonic() - start, 4)

    def test_started_without_a_standard_descriptor(self):
        # Neither a library nor a socket of ours takes the number, and the worker gets /dev/null.
        script = self.script("a=$(readlink /proc/$$/fd/0) b=$(readlink /proc/$$/fd/1)\n"
                             "c=$(readlink /proc/$$/fd/2)\n"
                             "printf '%s\\n' $a $b $c > fds; cat > input\n")
        for number, closing in ((0, "<&-"), (1, ">&-"), (2, "2>&-")):
            for console in ("lines", "raw"):
                with self.subTest(number=number, console=console):
                    job = self.start_in_shell(f"exec {self.muster_path()} run --standalone "
                                              f"--console {console} {script} {closing}")
                    self.assertEqual(job.code(), 0, job.err)
                    fds = self.read("fds").splitlines()
                    if number == 0 or console == "raw":
                        self.assertEqual(fds[number], "/dev/null")
                    else:
                        self.assertRegex(fds[number], "^pipe:")
                    self.assertEqual(self.read("input"), "")

    def start_in_shell(self, line):
        from harness import Process
        return Process(self, ["/bin/sh", "-c", line])

    @staticmethod
    def muster_path():
        from harness import MUSTER
        return MUSTER

    def test_stdin_goes_to_local_rank_0(self):
        with open(self.path("input"), "w", encoding="utf-8") as file:
            file.write("hello\n")
        script = self.script("cat > got.$RANK\n")
        with open(self.path("input"), "rb") as stdin:
            job = self.run_job("--standalone", "--nproc-per-node", "2", script, stdin=stdin)
            self.assertEqual(job.code(), 0)
        for rank, text in ((0, "hello\n"), (1, "")):
            with open(self.path(f"got.{rank}"), encoding="utf-8") as file:
                self.assertEqual(file.read(), text)
        with open(self.path("input"), "rb") as stdin:
            job = self.run_job("--standalone", "--nproc-per-node", "2", "--stdin", "all", script,
                               stdin=stdin)
            self.assertEqual(job.code(), 0)
        with open(self.path("got.1"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "hello\n")


class SideBySide(MusterCase):
    def test_two_jobs_do_not_disturb_each_other(self):
        script = self.script("echo $MASTER_PORT > port.$1\nwhile [ ! -e go ]; do sleep 0.01; done\n"
                             "[ $1 = b ] && exit 3\nexit 0\n")
        first = self.run_job("--standalone", script, "a")
        second = self.run_job("--standalone", script, "b")
        until(lambda: os.path.exists(self.path("port.a")) and os.path.exists(self.path("port.b")),
              "both jobs")
        open(self.path("go"), "w", encoding="utf-8").close()
        self.assertEqual((first.code(), second.code()), (0, 3))
        with open(self.path("port.a"), encoding="utf-8") as one, \
                open(self.path("port.b"), encoding="utf-8") as two:
            self.assertNotEqual(one.read(), two.read())


if __name__ == "__main__":
    main()
