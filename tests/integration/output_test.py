#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Workers' output: terminals, prefixes, whose is shown, which lines are copied, log files."""
import fcntl
import os
import pty
import re
import resource
import struct
import subprocess
import sys
import termios

from harness import MUSTER, MusterCase, Process, main, until


class AtTerminal(Process):
    """A command whose input, output and controlling terminal the test sits at."""

    def __init__(self, case, arguments, rows=24, columns=80):
        self.arguments = arguments
        self.text = b""
        self.ours, theirs = pty.openpty()
        case.addCleanup(os.close, self.ours)
        os.set_blocking(self.ours, False)
        self.resize(rows, columns)
        self.popen = subprocess.Popen(
            arguments, stdin=theirs, stdout=theirs, stderr=theirs, env=case.environment,
            cwd=case.folder, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(theirs)
        case.processes.append(self)

    def resize(self, rows, columns):
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, line):
        os.write(self.ours, line.encode() + b"\n")

    @property
    def out(self):
        try:
            while block := os.read(self.ours, 65536):
                self.text += block
        except OSError:  # nothing more now, or nobody holds the other end any more
            pass
        return self.text.decode(errors="replace")

    err = ""  # on the terminal as well

    def until_shown(self, *parts):
        until(lambda: all(part in self.out for part in parts), f"{parts} in {self.out!r}")

    def code(self, seconds=None):
        until(lambda: (self.out, self.popen.poll())[1] is not None, f"the end: {self.out!r}")
        return super().code(seconds)


class Terminal(MusterCase):
    def python(self, text, name="worker.py"):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def run_at_terminal(self, *arguments, **options):
        return AtTerminal(self, [MUSTER, "run", "--standalone", "--python", sys.executable,
                                 *arguments], **options)

    def test_with_pty_a_worker_sees_a_terminal_and_its_size_as_it_changes(self):
        worker = self.python(
            "import os, signal, sys\n"
            "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGWINCH})\n"
            "print('terminals', sys.stdout.isatty(), sys.stderr.isatty())\n"
            "while True:\n"
            "    size = os.get_terminal_size(1)\n"
            "    print('size', size.columns, size.lines, os.get_terminal_size(2) == size)\n"
            "    if size.columns == 120: break\n"
            "    signal.sigwait({signal.SIGWINCH})\n")
        # The worker's own terminal tells it, whether signals are forwarded or not.
        for forwarded in ("USR1,WINCH", "none"):
            job = self.run_at_terminal("--console", "pty", "--forward-signals", forwarded, worker,
                                       rows=33, columns=99)
            job.until_shown("terminals True True", "size 99 33 True")
            job.resize(40, 120)
            job.until_shown("size 120 40 True")
            self.assertEqual(job.code(), 0, job.out)

    def test_with_pty_every_worker_of_several_draws_its_progress_behind_its_prefix(self):
        worker = self.python(
            "import os, sys, time\n"
            "for step in range(1, 4):\n"
            "    sys.stdout.write(f'\\rstep {step} of rank {os.environ[\"RANK\"]}')\n"
            "    sys.stdout.flush()\n"
            "print('\\nend', sys.stdout.isatty())\n")
        job = self.run_at_terminal("--console", "pty", "--nproc-per-node", "3", worker)
        self.assertEqual(job.code(), 0, job.out)
        for rank in range(3):
            self.assertIn(f"[{rank}] step 3 of rank {rank}\r\n", job.out)
            self.assertIn(f"[{rank}] end True\r\n", job.out)
        # One that is drawn in place: its '\r' comes without the '\n' of a line's end.
        self.assertRegex(job.out, r"\[\d\] step \d of rank \d\r[^\n]")

    def test_with_pty_what_a_worker_leaves_behind_has_its_grace_and_its_terminal(self):
        job = self.run_job("--standalone", "--console", "pty", "--exit-grace", "250s", self.script(
            "(until [ -e go ]; do sleep 0.01; done; echo late) &\n"
            "exit 0\n"))
        until(lambda: "they have 250s" in job.err, "the line about what runs on")
        open(self.path("go"), "w", encoding="utf-8").close()
        self.assertEqual(job.code(), 0, job.err)
        self.assertTrue(job.out.endswith("late\n"), job.out)

    def test_with_pty_a_password_can_be_asked_for(self):
        worker = self.python("import getpass\nprint('got', getpass.getpass('key: '))\n")
        job = self.run_at_terminal("--console", "pty", worker)
        job.until_shown("key: ")
        job.type("secret")
        job.until_shown("got secret")
        self.assertEqual(job.code(), 0, job.out)

    def test_with_pty_off_a_terminal_output_is_the_workers_bytes(self):
        worker = self.python("import sys\n"
                             "print('terminal', sys.stdout.isatty())\n"
                             "print('problem', sys.stderr.isatty(), file=sys.stderr)\n")
        job = self.run_job("--standalone", "--console", "pty", worker)
        self.assertEqual(job.code(), 0, job.err)
        self.assertEqual((job.out, job.err), ("terminal True\n", "problem True\n"))

    def test_a_breakpoint_of_the_only_worker_is_a_debugger_at_the_terminal(self):
        worker = self.python("import os\n"
                             "answer = 41\n"
                             "breakpoint()\n"
                             "print('after', answer + 1, os.environ['RANK'])\n")
        job = self.run_at_terminal(worker)
        job.until_shown("(Pdb)")
        job.type("p answer + 500")
        job.until_shown("541")
        job.type("answer = 6")
        until(lambda: job.out.count("(Pdb)") == 3, f"the prompt in {job.out!r}")
        job.type("continue")
        job.until_shown("after 7 0")
        self.assertEqual(job.code(), 0, job.out)

    def test_pdb_as_the_program(self):
        worker = self.python("print('the first line')\nanswer = 41\nprint('end', answer)\n")
        job = self.run_at_terminal("-m", "pdb", worker)
        job.until_shown("(Pdb)")
        job.type("next")
        job.type("next")
        job.type("p answer + 500")
        job.until_shown("541")
        job.type("continue")
        job.until_shown("end 41", "restarted")
        job.type("quit")
        self.assertEqual(job.code(), 0, job.out)


class Prefix(MusterCase):
    def test_a_template_of_ones_own_is_shown_off_a_terminal_too(self):
        script = self.script("echo line\necho problem >&2\n"
                             "exit $((1 - MUSTER_GENERATION))\n")
        job = self.run_job("--max-restarts", "1", "--rdzv-id", "train", "--node-name", "n1",
                           "--log-prefix", "{{{job}}}{node}.{generation}.{rank}.{local_rank}> ",
                           script)
        self.assertEqual(job.code(), 0, job.err)
        self.assertEqual(job.out, "{train}n1.0.0.0> line\n{train}n1.1.0.0> line\n")
        for generation in range(2):
            self.assertIn(f"{{train}}n1.{generation}.0.0> problem\n", job.err)

    def test_torchruns_template_changes_no_mode(self):
        variable = {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "<${role_name}${local_rank}>:"}
        script = self.script("echo line\n")
        job = self.run_job("--standalone", script, environment=variable)
        self.assertEqual((job.code(), job.out, job.err), (0, "line\n", ""))
        job = self.run_job("--standalone", "--console", "prefixed", script, environment=variable)
        self.assertEqual((job.code(), job.out, job.err), (0, "<default0>:line\n", ""))

    def test_an_unknown_name_is_refused_with_those_that_are_known(self):
        job = self.muster("run", "--standalone", "--log-prefix", "{host} ", "/bin/true")
        self.assertEqual(job.code(), 2)
        self.assertEqual(job.err, "muster: --log-prefix: '{host} ': {host} is not one of {rank}, "
                                  "{local_rank}, {node}, {job}, {generation}\n")


class Files(MusterCase):
    """Log files below a folder of the case, of a job with a name."""

    def latest(self, name="", job="mine"):
        return self.path(os.path.join("logs", job, "latest", name))

    def log(self, name):
        with open(self.latest(name), encoding="utf-8") as file:
            return file.read()

    def run_logged(self, *arguments, **options):
        return self.run_job("--rdzv-id", "mine", "--log-dir", self.path("logs"), *arguments,
                            **options)


class LocalRanks(Files):
    def test_a_hidden_rank_has_files_and_last_words_all_the_same(self):
        script = self.script("echo out $RANK\necho err $RANK >&2\n[ $RANK = 1 ] && sleep 60\n"
                             "until [ -e go ]; do sleep 0.01; done; exit 3\n")
        job = self.run_logged("--nproc-per-node", "2", "--local-ranks-filter", "1", "-t", "3", script)
        until(lambda: "out 1" in job.out and "err 1" in job.err, "rank 1's lines")
        until(lambda: os.path.exists(self.latest("gen-0/rank-0/stderr.log")) and
              self.log("gen-0/rank-0/stderr.log"), "rank 0's file")
        open(self.path("go"), "w", encoding="utf-8").close()
        self.assertEqual(job.code(), 3, job.err)
        self.assertEqual(job.out, "out 1\n")
        block = job.err.index("muster: job mine failed")
        self.assertNotIn("err 0", job.err[:block])
        self.assertIn("err 0", job.err[block:])
        for rank in range(2):
            self.assertEqual(self.log(f"gen-0/rank-{rank}/stdout.log"), f"out {rank}\n")
            self.assertEqual(self.log(f"gen-0/rank-{rank}/stderr.log"), f"err {rank}\n")

    def test_a_rank_that_is_not_here_gets_a_line(self):
        script = self.script("echo out $RANK\n")
        job = self.run_job("--standalone", "--nproc-per-node", "2", script,
                           environment={"PET_LOCAL_RANKS_FILTER": "0,7", "OMP_NUM_THREADS": "1"})
        self.assertEqual((job.code(), job.out), (0, "out 0\n"))
        self.assertEqual(job.err, "muster: PET_LOCAL_RANKS_FILTER: there is no local rank 7 among 2 "
                                  "on this node: ignored\n")


class Picked(Files):
    def test_lines_of_all_workers_in_one_file_a_generation(self):
        script = self.script("echo loss $RANK in $MUSTER_GENERATION\necho step $RANK\n"
                             "echo a,b $RANK\nprintf 'last loss'\n"
                             "echo WARN $RANK >&2; echo fine >&2\n"
                             "until [ -e done.0 ] && [ -e done.1 ]; do : > done.$RANK; done\n"
                             "exit $((1 - MUSTER_GENERATION))\n")
        job = self.run_logged("--nproc-per-node", "2", "--max-restarts", "1", "--console", "none",
                              "--restart-backoff", "0s", "--duplicate-stdout-filters", "loss,a,,b",
                              "--duplicate-stderr-filters", "WARN", script)
        self.assertEqual(job.code(), 0, job.err)
        self.assertEqual(job.out, "")
        self.assertNotIn("WARN", job.err)
        # The generation that failed was stopped where it stood.
        for line in ("[0] loss 0 in 0", "[1] loss 1 in 0"):
            self.assertIn(line, self.log("gen-0/filtered_stdout.log").splitlines())
        self.assertEqual(sorted(self.log("gen-1/filtered_stdout.log").splitlines()),
                         sorted(f"[{rank}] {text}" for rank in range(2)
                                for text in (f"loss {rank} in 1", f"a,b {rank}", "last loss")))
        self.assertEqual(sorted(self.log("gen-1/filtered_stderr.log").splitlines()),
                         ["[0] WARN 0", "[1] WARN 1"])

    def test_a_place_that_cannot_have_them_is_refused(self):
        job = self.muster("run", "--standalone", "--duplicate-stdout-filters", "x", "/bin/true",
                          environment={"XDG_STATE_HOME": "/proc/nowhere"})
        self.assertEqual(job.code(), 2, job.err)
        self.assertIn("--log-dir: cannot create /proc/nowhere", job.err)


class Rotation(Files):
    def test_the_files_of_a_log_that_was_put_away_have_every_line_once(self):
        script = self.script("i=0; while [ $i -lt 5000 ]; do i=$((i+1))\n"
                             "echo rank $RANK line number $i of many; done\n")
        job = self.run_logged("--nproc-per-node", "2", "-r", "1", "--log-rotate", "20KB,40", script)
        self.assertEqual(job.code(), 0, job.err)
        for rank in range(2):
            names = [name for name in os.listdir(self.latest(f"gen-0/rank-{rank}"))
                     if name.startswith("stdout.log")]
            numbered = sorted((name for name in names if name != "stdout.log"),
                              key=lambda name: -int(name.rsplit(".", 1)[1]))
            self.assertGreater(len(numbered), 5, names)
            texts = [self.log(f"gen-0/rank-{rank}/{name}") for name in [*numbered, "stdout.log"]]
            for text in texts:
                self.assertTrue(text.endswith("\n"))
                self.assertLess(len(text), 20000 + 40)
            self.assertEqual("".join(texts).splitlines(),
                             [f"rank {rank} line number {i} of many" for i in range(1, 5001)])
        self.assertNotIn("--log-rotate", job.err)


class Keep(Files):
    def runs(self):
        return {name for name in os.listdir(self.path("logs/mine"))
                if name.startswith(("run-", ".old-"))}

    def test_as_many_runs_as_are_wanted_stay(self):
        # Removing goes on beside the workers: each job waits for it.
        script = self.script("echo here\nuntil [ $(ls -A logs/mine | grep -c run-) -le 2 ]\n"
                             "do sleep 0.01; done\n")
        seen = []
        for _ in range(4):
            job = self.run_logged("-r", "1", "--log-keep", "2", script)
            self.assertEqual(job.code(), 0, job.err)
            newest = os.path.basename(os.path.realpath(self.latest()))
            self.assertEqual(self.runs(), {*seen[-1:], newest})
            self.assertEqual(self.log("gen-0/rank-0/stdout.log"), "here\n")
            seen.append(newest)
        self.assertEqual(len(set(seen)), 4)

    def test_a_run_that_goes_on_stays(self):
        hold = self.script("echo begin\nuntil [ -e go ]; do sleep 0.01; done\necho end\n", "hold.sh")
        held = self.run_logged("-r", "1", "--log-keep", "1", hold)
        self.until_event(held, "generation_running")
        first = os.path.basename(os.path.realpath(self.latest()))
        script = self.script("until [ $(ls -A logs/mine | grep -c run-) -le 2 ]\n"
                             "do sleep 0.01; done\n")
        for _ in range(2):
            job = self.run_logged("-r", "1", "--log-keep", "1", script)
            self.assertEqual(job.code(), 0, job.err)
            self.assertEqual(self.runs(), {first, os.path.basename(os.path.realpath(self.latest()))})
        open(self.path("go"), "w", encoding="utf-8").close()
        self.assertEqual(held.code(), 0, held.err)
        with open(self.path(f"logs/mine/{first}/gen-0/rank-0/stdout.log"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "begin\nend\n")

    def test_what_was_removed_stands_in_the_agents_log(self):
        quick = self.run_logged("-r", "1", "/bin/true")
        self.assertEqual(quick.code(), 0, quick.err)
        script = self.script("until grep -q 'logs of 1 old run' logs/mine/latest/agent.log\n"
                             "do sleep 0.01; done\n")
        job = self.run_logged("-r", "1", "--log-keep", "1", script)
        self.assertEqual(job.code(), 0, job.err)
        self.assertEqual(len(self.runs()), 1)
        self.assertNotIn("--log-keep", job.err)


class FullDisk(Files):
    def test_what_a_log_lacks_is_told_when_it_goes_on_and_at_the_end(self):
        script = self.script("for turn in 1 2 3; do\n"
                             "until [ -e go.$turn ]; do sleep 0.01; done\n"
                             "i=0; most=$(cat go.$turn)\n"
                             "while [ $i -lt $most ]; do i=$((i+1))\n"
                             "echo turn $turn line $i of this output; done; done\n")
        job = self.run_logged("-r", "1", script)
        agent = job.agent()

        def lines(turn, count):
            return "".join(f"turn {turn} line {i} of this output\n" for i in range(1, count + 1))

        def go(turn, count):
            with open(self.path("go.next"), "w", encoding="utf-8") as file:
                file.write(str(count))
            os.rename(self.path("go.next"), self.path(f"go.{turn}"))

        def logged():
            try:
                return self.log("gen-0/rank-0/stdout.log")
            except FileNotFoundError:
                return ""
        go(1, 1000)
        until(lambda: logged() == lines(1, 1000), "the first turn's lines")
        # No file of the agent may grow beyond what the log has now: a full disk, for root too.
        soft, hard = resource.prlimit(agent, resource.RLIMIT_FSIZE)
        resource.prlimit(agent, resource.RLIMIT_FSIZE, (len(logged()), hard))
        go(2, 200)
        until(lambda: job.out == lines(2, 200), "the second turn's lines on the console")
        resource.prlimit(agent, resource.RLIMIT_FSIZE, (soft, hard))
        go(3, 1000)
        self.assertEqual(job.code(), 0, job.err)
        self.assertEqual(logged(), lines(1, 1000) + lines(3, 1000))
        self.assertEqual(job.out, lines(2, 200))
        said = [re.sub(r"/\S+/", "", line) for line in job.err.splitlines()]
        lost = len(lines(2, 200))
        self.assertEqual(said, [
            "muster: cannot write stdout.log: File too large (--log-dir); what log files cannot take "
            "is shown here, the job goes on",
            f"muster: stdout.log takes output again; {lost} bytes are missing in it",
            f"muster: log files lack {lost} bytes of output that they could not take; it was shown "
            "here"])


if __name__ == "__main__":
    main()
