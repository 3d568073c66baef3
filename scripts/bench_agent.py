# SPDX-License-Identifier: Apache-2.0
"""What the agent costs: starting, restarting and stopping workers, waiting for them, and passing
their output on; beside mpirun and torchrun where they do the same."""
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from bench_tools import (CannotMeasure, Job, Server, Sleepers, alternately, compared, free_port,
                         mpirun, muster_run, resident_mib, result, spent, timed, torchrun, usage,
                         wait_for)

MPIRUN_GOAL, TORCHRUN_GOAL = "ratio <= 1", "ratio <= 0.05"


def with_torchrun(contenders, arguments, measure):
    """Adds torchrun to those who are measured, where there is one."""
    command = torchrun(*arguments)
    if command:
        contenders["torchrun"] = lambda: measure(command)
    return contenders


def bench_launch(_):
    """The whole run of four workers that end at once."""
    contenders = {"muster": lambda: timed(muster_run("--nproc-per-node", "4", "/bin/true")),
                  "mpirun": lambda: timed(mpirun("-n", "4", "/bin/true"))}
    with_torchrun(contenders, ["--nproc_per_node", "4", "/bin/true"], timed)
    samples = alternately(contenders, {"": 15, "torchrun": 3})
    yield from compared("launch", "ms", samples,
                        {"mpirun": "ratio <= 0.33", "torchrun": TORCHRUN_GOAL})


def bench_start(_):
    """From the command to the last worker's first step. The workers stay: with many that end at
    once, Open MPI 4.1 stands still now and then."""
    for workers, rounds in ((4, 15), (64, 7), (256, 5)):
        count = str(workers)

        def started(command):
            with Sleepers(command, workers) as job:
                return (job.wait() - job.began) * 1e3
        contenders = {"muster": lambda: started(muster_run("--nproc-per-node", count)),
                      "mpirun": lambda: started(mpirun("-n", count))}
        with_torchrun(contenders, ["--nproc_per_node", count], started)
        samples = alternately(contenders, {"": rounds, "torchrun": 3})
        yield from compared(f"start.{workers}", "ms", samples,
                            {"mpirun": MPIRUN_GOAL, "torchrun": TORCHRUN_GOAL})


def bench_restart(_):
    """From kill -9 of a worker to the last worker of the next life."""
    for workers, rounds in ((4, 15), (64, 7)):
        count = str(workers)
        ours = muster_run("--nproc-per-node", count, "--max-restarts", "99", "--restart-backoff",
                          "0s")
        theirs = torchrun("--nproc_per_node", count, "--max_restarts", "99")
        with contextlib.ExitStack() as stack:
            contenders = {}
            for who, command in (("muster", ours), ("torchrun", theirs)):
                if command:
                    job = stack.enter_context(Sleepers(command, workers))
                    job.wait()
                    contenders[who] = job.fail
            samples = alternately(contenders, {"": rounds, "torchrun": 5})
        yield from compared(f"restart.{workers}", "ms", samples,
                            {"torchrun": TORCHRUN_GOAL,
                             **({"muster": "<= 30 ms"} if workers == 4 else {})})
    yield from restart_reported()


def restart_reported():
    """What the job itself says of it."""
    totals = []
    with Job(["--standalone", "--nproc-per-node", "4", "--max-restarts", "15", "--restart-backoff",
              "0s"], ["/bin/sleep", "600"]) as job:
        wait_for(lambda: job.seen("generation_running"), "the first generation")
        for number in range(15):
            started = [event for event in job.seen("worker_started")
                       if event["generation"] == number and event["rank"] == 1]
            os.kill(started[0]["pid"], 9)
            wait_for(lambda n=number: job.seen("recovered", n + 1), "a recovery")
            totals.append(job.seen("recovered")[-1]["total_s"] * 1e3)
    yield result("restart.reported", statistics.median(totals), "ms", None, None, "<= 30 ms")


def bench_stop(_):
    """From SIGTERM to the launcher's end, with 64 workers that obey at once."""
    count = "64"

    def stopped(command):
        with Sleepers(command, 64) as job:
            job.wait()
            return job.stop()
    contenders = {"muster": lambda: stopped(muster_run("--nproc-per-node", count)),
                  "mpirun": lambda: stopped(mpirun("-n", count))}
    with_torchrun(contenders, ["--nproc_per_node", count], stopped)
    samples = alternately(contenders, {"": 7, "torchrun": 3})
    yield from compared("stop.64", "ms", samples, {"mpirun": MPIRUN_GOAL, "torchrun": MPIRUN_GOAL})


# ---------------------------------------------------------------- waiting


@contextlib.contextmanager
def idle_kinds():
    """Yields {kind: (guardian's pid or None, pid of the agent or server)}: all run, none works."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(Server())
        port = free_port()
        two = ["--nnodes", "2", "--nproc-per-node", "4", "--rdzv-id", "bench-two",
               "--rdzv-endpoint", f"127.0.0.2:{port}"]
        arguments = {
            "standalone": ["--standalone", "--nproc-per-node", "4"],
            "host": [*two, "--node-rank", "0", "--node-name", "host",
                     "--advertise-addr", "127.0.0.2"],
            "node": [*two, "--node-rank", "1", "--node-name", "node",
                     "--advertise-addr", "127.0.0.3"],
            "agent": ["--nnodes", "1", "--nproc-per-node", "4", "--rdzv-id", "bench-one",
                      "--rdzv-endpoint", f"127.0.0.1:{server.port}"],
        }
        jobs = {kind: stack.enter_context(Job(given, ["/bin/sleep", "3600"]))
                for kind, given in arguments.items()}
        for kind, job in jobs.items():
            wait_for(lambda job=job: job.seen("generation_running"), f"the job of {kind}")
        yield {**{kind: (job.process.pid, job.agent_pid()) for kind, job in jobs.items()},
               "server": (None, server.process.pid)}


WITH_SERVER = ("standalone", "host", "server")


def bench_memory(_):
    with idle_kinds() as kinds:
        for kind, (_, pid) in kinds.items():
            limit = 28 if kind in WITH_SERVER else 20
            yield result(f"memory.{kind}", resident_mib(pid), "MiB", None, None, f"<= {limit} MiB")
        yield result("memory.guardian", resident_mib(kinds["node"][0]), "MiB", None, None, None)


def bench_idle(options):
    with idle_kinds() as kinds:
        pids = [pid for pair in kinds.values() for pid in pair if pid]
        time.sleep(min(5, options.seconds))  # what belongs to the start is over
        start = time.monotonic()
        before = {pid: usage(pid) for pid in pids}
        time.sleep(options.seconds)
        after = {pid: usage(pid) for pid in pids}
        seconds = time.monotonic() - start
    for kind, pair in kinds.items():
        costs = [spent(before[pid], after[pid]) for pid in pair if pid]
        yield result(f"idle.{kind}.cpu", sum(cost[0] for cost in costs) / seconds * 100,
                     "% of a core", None, None, "<= 0.1 %")
        yield result(f"idle.{kind}.wakeups", sum(cost[1] for cost in costs) / seconds, "a second",
                     None, None, "<= 10")


# ---------------------------------------------------------------- output

# Writes so many bytes in lines of 100, in blocks of 64 KB, at so many bytes a second (0: as fast as
# they are taken), and leaves behind how long that took and how much of it was spent in writing.
WRITER = r"""
import os, sys, time
total, rate = int(sys.argv[1]), float(sys.argv[2])
block = (b"x" * 99 + b"\n") * 640
start, writing, written = time.monotonic(), 0.0, 0
while written < total:
    before = time.monotonic()
    rest = memoryview(block)
    while rest:
        rest = rest[os.write(1, rest):]
    now = time.monotonic()
    writing += now - before
    written += len(block)
    if rate and start + written / rate > now:
        time.sleep(start + written / rate - now)
took = time.monotonic() - start
with open(os.path.join(os.environ["BENCH_FOLDER"], str(os.getpid())), "w") as file:
    print(written, took, writing, file=file)
"""
OUTPUT_BYTES = 300_000_000  # a worker
OUTPUT_RATE = 100_000_000   # a worker and second


def written_by_two(launcher, rate):
    """(MB a second of two workers together, milliseconds a second that each spent in writing).

    `launcher`: its command line up to the program; None: no launcher, each writes to a `cat`.
    """
    folder = tempfile.mkdtemp(prefix="muster-bench-")
    try:
        writer = os.path.join(folder, "writer.py")
        with open(writer, "w", encoding="utf-8") as file:
            file.write(WRITER)
        worker = [sys.executable, writer, str(OUTPUT_BYTES), str(rate)]
        environment = {**os.environ, "BENCH_FOLDER": folder}
        if launcher is None:
            seen = [piped(worker, ["cat"], environment) for _ in range(2)]
        else:
            seen = [piped([*launcher, *worker], ["wc", "-c"], environment)]
        counted = [finished(*pair) for pair in seen]
        done = []
        for name in os.listdir(folder):
            if name.isdigit():
                with open(os.path.join(folder, name), encoding="ascii") as file:
                    done.append([float(word) for word in file.read().split()])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if len(done) != 2:
        raise CannotMeasure(f"{len(done)} of 2 workers have written their output")
    total = sum(written for written, _, _ in done)
    if launcher is not None and int(counted[0]) < total:
        raise CannotMeasure(f"{launcher[0]} passed {int(counted[0])} of {total:.0f} bytes on")
    return (total / 1e6 / max(took for _, took, _ in done),
            max(writing / took for _, took, writing in done) * 1e3)


def piped(command, reader, environment):
    first = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, env=environment)
    target = subprocess.PIPE if reader[0] == "wc" else subprocess.DEVNULL
    second = subprocess.Popen(reader, stdin=first.stdout, stdout=target, text=True)
    first.stdout.close()
    return first, second


def finished(first, second):
    said, _ = second.communicate()
    if first.wait() != 0:
        raise CannotMeasure(f"{first.args[0]} ended with {first.returncode}")
    return said


def bench_output(_):
    """200 MB/s through two workers, and all that they can: prefixed by rank, read from a pipe."""
    ours = muster_run("--nproc-per-node", "2", "--console", "prefixed", "--no-python")
    launchers = {"muster": ours, "cat": None, "mpirun": mpirun("-n", "2", "--tag-output")}
    for name, rate in (("paced", OUTPUT_RATE), ("peak", 0)):
        samples = alternately({who: lambda launcher=launcher: written_by_two(launcher, rate)
                               for who, launcher in launchers.items()}, 3)
        speeds = {who: [pair[0] for pair in pairs] for who, pairs in samples.items()}
        stalls = {who: [pair[1] for pair in pairs] for who, pairs in samples.items()}
        yield from compared(f"output.{name}", "MB/s", speeds,
                            {"mpirun": "ratio >= 1", "cat": "ratio >= 1" if rate else None})
        if rate:
            yield from compared(f"output.{name}.writing", "ms/s", stalls,
                                {"mpirun": MPIRUN_GOAL, "cat": "ratio <= 1"})


BENCHES = {"launch": bench_launch, "start": bench_start, "restart": bench_restart,
           "stop": bench_stop, "memory": bench_memory, "idle": bench_idle, "output": bench_output}
