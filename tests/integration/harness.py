# SPDX-License-Identifier: Apache-2.0
"""Real `muster` processes in a world of their own.

Every test case gets a fresh folder that is HOME, state, run and temporary directory in one, and a
token in its environment that every descendant inherits. At the end the case fails if a process
with the token is alive, or if anything is left in the temporary directory or among the entries of
live jobs. Nothing waits for a fixed time: `until` waits for a condition.
"""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

SOURCE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
BIN = os.environ.get("MUSTER_BIN_DIR", os.path.join(SOURCE, "build", "dev", "bin"))
MUSTER = os.path.join(BIN, "muster")
TRAIN = os.path.join(BIN, "muster-train")
# Upper bound of every wait. Generous: sanitizers and busy cores stretch everything.
PATIENCE = float(os.environ.get("MUSTER_TEST_PATIENCE", "60"))

# A shell starts what it puts in the background with these ignored, and Muster would keep that.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)


def until(condition, what, seconds=None):
    """Waits for a true value and returns it."""
    deadline = time.monotonic() + (seconds or PATIENCE)
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds or PATIENCE:.0f} s for {what}")
        time.sleep(0.005)


def alive(pid):
    """True for a process with a thread that is not dead. The first one may be, and be shown for the
    whole, while another holds its files and locks still."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return False
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/stat", encoding="ascii", errors="replace") as file:
                if file.read().rsplit(")", 1)[1].split()[0] not in "ZX":
                    return True
        except (FileNotFoundError, ProcessLookupError):
            pass
    return False


def holders(token):
    """Live processes with the token in their environment: [(pid, command line)]."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if token.encode() not in file.read():
                    continue
            with open(f"/proc/{name}/cmdline", "rb") as file:
                command = file.read().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if alive(int(name)):
            found.append((int(name), command))
    return found


def free_port():
    """A port nobody listens on now, outside the range the kernel hands out by itself."""
    for _ in range(200):
        port = 10000 + int.from_bytes(os.urandom(2), "big") % 9000
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise AssertionError("no free port")


class Process:
    """A started command with its output in files, so that nothing blocks on a full pipe."""

    def __init__(self, case, arguments, environment=None, stdin=None, cwd=None,
                 pass_fds=()):
        self.case = case
        number = len(case.processes)
        self.out_path = os.path.join(case.folder, f"out.{number}")
        self.err_path = os.path.join(case.folder, f"err.{number}")
        self.arguments = arguments
        with open(self.out_path, "wb") as out, open(self.err_path, "wb") as err:
            self.popen = subprocess.Popen(
                arguments, stdin=stdin or subprocess.DEVNULL, stdout=out, stderr=err,
                env={**case.environment, **(environment or {})}, cwd=cwd or case.folder,
                start_new_session=True, pass_fds=pass_fds)
        case.processes.append(self)

    @property
    def pid(self):
        return self.popen.pid

    @property
    def out(self):
        with open(self.out_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    @property
    def err(self):
        with open(self.err_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def agent(self):
        """The agent's pid: the guardian's first child."""
        def child():
            try:
                with open(f"/proc/{self.pid}/task/{self.pid}/children", encoding="ascii") as file:
                    pids = file.read().split()
                return int(pids[0]) if pids else None
            except FileNotFoundError:
                return None
        return until(child, "the agent process")

    def signal(self, number):
        self.popen.send_signal(number)

    def code(self, seconds=None):
        """Waits for the end and returns the exit code (128 + n for a signal)."""
        try:
            code = self.popen.wait(seconds or PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{' '.join(self.arguments)} did not end within {seconds or PATIENCE:.0f} s\n"
                f"stdout: {self.out[-2000:]}\nstderr: {self.err[-2000:]}") from None
        return code if code >= 0 else 128 - code


class MusterCase(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="muster-test-")
        self.token = f"TEST_TOKEN={uuid.uuid4().hex}"
        self.scratch = os.path.join(self.folder, "tmp")
        os.mkdir(self.scratch)
        self.environment = {
            "PATH": os.environ["PATH"], "HOME": self.folder, "TMPDIR": self.scratch,
            "XDG_STATE_HOME": os.path.join(self.folder, "state"),
            "XDG_RUNTIME_DIR": self.scratch, "LANG": "C.UTF-8",
            self.token.split("=")[0]: self.token.split("=")[1],
        }
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"):
            if name in os.environ:
                self.environment[name] = os.environ[name]
        self.processes = []

    def tearDown(self):
        for process in self.processes:
            if process.popen.poll() is None:
                process.popen.kill()
                process.popen.wait()
        try:
            # Whoever is left has a moment to finish dying, no more.
            until(lambda: not holders(self.token), "the last process to end", 10)
            left = []
        except AssertionError:
            left = holders(self.token)
            for pid, _ in left:
                os.kill(pid, signal.SIGKILL)
        scratch = [os.path.join(folder, name) for folder, folders, names in os.walk(self.scratch)
                   for name in folders + names] + self.entries()
        failed = not getattr(self._outcome, "success", True)
        if failed or left or scratch:
            for process in self.processes:
                sys.stderr.write(f"--- {' '.join(process.arguments)}\n--- stdout\n"
                                 f"{process.out[-3000:]}\n--- stderr\n{process.err[-3000:]}\n")
        shutil.rmtree(self.folder, ignore_errors=True)
        self.assertEqual(left, [], "processes left behind")
        self.assertEqual(scratch, [], "scratch files left behind")

    def entries(self):
        """Files of live jobs."""
        try:
            return os.listdir(os.path.join(self.path("state"), "muster", ".live"))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def path(self, name):
        return os.path.join(self.folder, name)

    def read(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def muster(self, *arguments, **options):
        return Process(self, [MUSTER, *arguments], **options)

    def make_corpus(self):
        """A folder with some text to train on."""
        corpus = self.path("corpus")
        os.mkdir(corpus)
        with open(os.path.join(SOURCE, "LICENSE"), "rb") as file:
            text = file.read()
        with open(os.path.join(corpus, "text"), "wb") as file:
            file.write(text * 4)
        return corpus

    def run_job(self, *arguments, events=None, **options):
        """`muster run` with an event file: events(process) reads it."""
        path = events or self.path(f"events.{len(self.processes)}.jsonl")
        process = self.muster("run", "--events", path, *arguments, **options)
        process.events_path = path
        return process

    @staticmethod
    def events(process, name=None, **fields):
        try:
            with open(process.events_path, encoding="utf-8") as file:
                # Not line by line: what is appended between two reads would cut a line in two.
                whole = file.read().split("\n")[:-1]
            lines = [json.loads(line) for line in whole]
        except FileNotFoundError:
            return []
        return [line for line in lines if (name is None or line["event"] == name)
                and all(line.get(key) == value for key, value in fields.items())]

    def until_event(self, process, name, count=1, **fields):
        def enough():
            found = self.events(process, name, **fields)
            return found if len(found) >= count else None
        return until(enough, f"{count} event(s) {name} {fields or ''}\nstderr: {process.err[-800:]}")

    # Time-outs that only a wrong way to the end would sit out: far beyond any bound of `ends_soon`.
    PATIENT = ("--stop-grace", "300s", "--stop-budget", "400s", "--join-timeout", "300s",
               "--last-call", "300s", "--server-grace", "300s")

    def whole_job_s(self):
        """What a whole job of one worker takes here and now: the yardstick of this machine."""
        start = time.monotonic()
        job = self.muster("run", "--standalone", "/bin/true")
        self.assertEqual(job.code(), 0, job.err)
        return time.monotonic() - start

    def ends_soon(self, jobs, number, code, own=0.0):
        """Sends a signal to jobs started with PATIENT: each ends with the code within a second and
        `own`, what its workers are allowed. The second is for an idle machine: it grows by ten
        whole jobs, measured before and after, for busy cores and sanitizers."""
        jobs = jobs if isinstance(jobs, list) else [jobs]
        job_s = self.whole_job_s()
        start = time.monotonic()
        for job in jobs:
            job.signal(number)
        for job in jobs:
            self.assertEqual(job.code(), code, job.err)
        took = time.monotonic() - start
        job_s = max(job_s, self.whole_job_s())
        self.assertLess(took, 1 + own + 10 * job_s, f"a whole job takes {job_s:.3f} s")

    def script(self, text, name="worker.sh"):
        """An executable shell script in the case's folder."""
        path = self.path(name)
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + text)
        os.chmod(path, 0o755)
        return path


def main():
    unittest.main(verbosity=2)
