# SPDX-License-Identifier: Apache-2.0
"""What the measurements of scripts/bench are made of: rows, jobs, servers, and the peers."""
import contextlib
import glob
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
SLEEPER = os.path.join(ROOT, "scripts", "bench_sleeper.c")
BIN = os.path.join(ROOT, "build", "release", "bin")  # or --bin


CLOCK_REALTIME_COARSE = 5  # of Linux: stamps files; Python has no name for it
MOST_ROUNDS = 99  # or --rounds


class CannotMeasure(Exception):
    pass


class StandsStill(CannotMeasure):
    """A run that does not end."""


def program(name):
    return os.path.join(BIN, name)


# ---------------------------------------------------------------- rows


def result(name, value, unit, peer=None, ratio=None, goal=None):
    return {"name": name, "value": value, "unit": unit, "peer": peer, "ratio": ratio, "goal": goal}


def compared(name, unit, samples, goals):
    """One row a peer, of medians, and one without where Muster has a goal of its own, or no peer;
    `samples` is {who: values}, ours under "muster"."""
    mine = statistics.median(samples["muster"])
    if len(samples) == 1 or "muster" in goals:  # no peer, or a goal of its own
        yield result(name, mine, unit, None, None, goals.get("muster"))
    peers = {who: statistics.median(values) for who, values in samples.items() if who != "muster"}
    for who, value in peers.items():
        yield result(f"{name}.{who}", mine, unit, f"{who} {value:.1f} {unit}", mine / value,
                     goals.get(who))


def alternately(contenders, rounds):
    """{who: values} of {who: a function that measures once}, in turns: `rounds` of each, or of a
    peer as many as {who: number} says of it. What a first round, which does not count, or a peer
    that stands still has taken is not among them."""
    samples = {who: [] for who in contenders}
    numbers = rounds if isinstance(rounds, dict) else {"": rounds}
    stood = dict.fromkeys(contenders, 0)
    for number in range(min(max(numbers.values()), MOST_ROUNDS) + 1):
        for who, measure in contenders.items():
            if number > numbers.get(who, numbers[""]) or stood[who] == 2:
                continue
            try:
                value = measure()
            except StandsStill as trouble:
                if who == "muster":
                    raise
                stood[who] += 1
                print(f"{trouble}; that run is left out", flush=True)
                continue
            if number > 0:
                samples[who].append(value)
    return {who: values for who, values in samples.items() if values}


# ---------------------------------------------------------------- the peers


def mpirun(*arguments):
    """A command line of mpirun's."""
    if shutil.which("mpirun") is None:
        raise CannotMeasure("mpirun is not installed (scripts/setup --bench)")
    return ["mpirun", "--oversubscribe", "--allow-run-as-root", *arguments]


_torchrun = None


def torchrun(*arguments):
    """A command line of torchrun's with the agent as quick as it can be told to be; None, and a
    line, where there is no torchrun."""
    global _torchrun
    if _torchrun is None:
        _torchrun = find_torchrun()
        if not _torchrun:
            print("torchrun: not here, so nothing is measured beside it "
                  "(scripts/setup --bench-torch)", flush=True)
    if not _torchrun:
        return None
    return [*_torchrun, *arguments]


# PyTorch 1.13, which Debian has, does not know its own default of these two on Python 3.11: a value
# for the tenth rank alone does instead.
TORCHRUN_DEFAULTS = ([], ["--redirects", "9:1", "--tee", "9:1"])


def find_torchrun():
    for python in dict.fromkeys(["/usr/bin/python3", sys.executable]):
        for defaults in TORCHRUN_DEFAULTS:
            command = [python, "-m", "torch.distributed.run", "--standalone", "--no_python",
                       "--monitor_interval", "0.1", *defaults]
            with contextlib.suppress(OSError):
                tried = subprocess.run([*command, "/bin/true"], check=False, capture_output=True,
                                       stdin=subprocess.DEVNULL)
                if tried.returncode == 0:
                    return command
                if b"No module named" in tried.stderr:
                    break
    return []


def muster_run(*arguments):
    return [program("muster"), "run", "--standalone", *arguments]


# ---------------------------------------------------------------- waiting and reading


def wait_for(condition, what, seconds=20):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.005)
    raise CannotMeasure(f"waited {seconds} s for {what}")


def timed(command, limit_s=120):
    """Milliseconds of a whole run."""
    start = time.monotonic()
    run = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.PIPE, start_new_session=True)
    try:
        _, said = run.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        run.communicate()
        raise StandsStill(f"{command[0]} has not ended within {limit_s} s") from None
    if run.returncode != 0:
        raise CannotMeasure(f"{command[0]} ended with {run.returncode}: "
                            f"{said.decode(errors='replace')[-300:]}")
    return (time.monotonic() - start) * 1e3


def events(path):
    try:
        with open(path, encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.endswith("\n")]
    except FileNotFoundError:
        return []


def resident_mib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    raise CannotMeasure(f"process {pid} has no VmRSS")


def usage(pid):
    """Processor seconds of a process, and {thread: times it went to sleep}."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    ticks = int(fields[11]) + int(fields[12])
    sleeps = {}
    for path in glob.glob(f"/proc/{pid}/task/*/status"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that ended
            with open(path, encoding="ascii") as file:
                sleeps[path] = sum(int(line.split()[1]) for line in file
                                   if line.startswith("voluntary_ctxt_switches"))
    return ticks / os.sysconf("SC_CLK_TCK"), sleeps


def spent(before, after):
    return (after[0] - before[0],
            sum(count - before[1].get(thread, 0) for thread, count in after[1].items()))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.2", 0))
        return probe.getsockname()[1]


# ---------------------------------------------------------------- processes


def end(process):
    """Stops a launcher; False: it had to be killed, and what it started may be left."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return False
    return True


class Job:
    """A `muster run` in the background, in a folder of its own, stopped at the end."""

    def __init__(self, arguments, command_line):
        self.folder = tempfile.mkdtemp(prefix="muster-bench-")
        self.events = os.path.join(self.folder, "events.jsonl")
        command = [program("muster"), "run", "--events", self.events,
                   "--log-dir", os.path.join(self.folder, "logs"), *arguments, "--", *command_line]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def seen(self, name, count=1):
        found = [event for event in events(self.events) if event["event"] == name]
        return found if len(found) >= count else None

    def agent_pid(self):
        children = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        with open(children, encoding="ascii") as file:
            return int(file.read().split()[0])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        end(self.process)
        shutil.rmtree(self.folder, ignore_errors=True)


class Server:
    """A `muster rendezvous` on a port of its own."""

    def __init__(self):
        self.state = tempfile.mkdtemp(prefix="muster-bench-state-")
        self.process = subprocess.Popen(
            [program("muster"), "rendezvous", "--listen", "127.0.0.1:0", "--state-dir", self.state],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.port = None
        for line in self.process.stdout:
            if "127.0.0.1:" in line:
                self.port = line.split("127.0.0.1:")[1].split()[0].strip(".,;")
                break

    def __enter__(self):
        if not self.port:
            self.__exit__()
            raise CannotMeasure("muster rendezvous did not say where it listens")
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)
        self.process.stdout.close()
        shutil.rmtree(self.state, ignore_errors=True)


class Sleepers:
    """Workers of any launcher that say when they begin, and then sleep until they are stopped.

    Times are of the clock that stamps files, which ticks every few milliseconds.
    """

    def __init__(self, launcher, workers):
        """`launcher`: its command line, up to the program."""
        self.workers = workers
        self.lives = 0
        self.folder = tempfile.mkdtemp(prefix="muster-bench-")
        worker = os.path.join(self.folder, "sleeper")
        compiled = subprocess.run(["cc", "-O2", "-static", "-o", worker, SLEEPER], check=False,
                                  capture_output=True, text=True)
        if compiled.returncode != 0:
            raise CannotMeasure(f"cc {SLEEPER}: {compiled.stderr[-300:]}")
        self.began = time.clock_gettime(CLOCK_REALTIME_COARSE)
        self.process = subprocess.Popen(
            [*launcher, worker], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "BENCH_FOLDER": self.folder, "TMPDIR": self.folder})

    def path(self, rank):
        return os.path.join(self.folder, f"{self.lives}.{rank}")

    def wait(self):
        """Until all workers of this life have begun; the time when the last one did."""
        def all_begun():
            return all(os.path.exists(self.path(rank)) for rank in range(self.workers))
        wait_for(all_begun, f"{self.workers} workers", 120)
        return max(os.stat(self.path(rank)).st_mtime for rank in range(self.workers))

    def fail(self):
        """Kills a worker; milliseconds until all of the next life have begun."""
        path = self.path(self.workers // 2)
        wait_for(lambda: os.path.getsize(path) > 0, "a worker's pid")
        with open(path, encoding="ascii") as file:
            victim = int(file.read())
        killed = time.clock_gettime(CLOCK_REALTIME_COARSE)
        os.kill(victim, signal.SIGKILL)
        self.lives += 1
        return (self.wait() - killed) * 1e3

    def stop(self):
        """Milliseconds from SIGTERM to the launcher's end."""
        start = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(120)
        except subprocess.TimeoutExpired:
            raise StandsStill(f"{self.process.args[0]} has not stopped within 120 s") from None
        return (time.monotonic() - start) * 1e3

    def kill_workers(self):
        for path in glob.glob(os.path.join(self.folder, "*.*[0-9]")):
            with open(path, encoding="ascii") as file:
                pid = file.read().strip()
            with contextlib.suppress(OSError, ValueError):
                with open(f"/proc/{pid}/environ", "rb") as file:  # not a stranger with its number
                    if self.folder.encode() in file.read():
                        os.kill(int(pid), signal.SIGKILL)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if not end(self.process):
            self.kill_workers()
        shutil.rmtree(self.folder, ignore_errors=True)
