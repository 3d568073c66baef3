# SPDX-License-Identifier: Apache-2.0
"""scripts/soak cluster: training jobs on hosts of their own, one after another, under random faults.

Each job has its own seed, from which its faults, their victims and times are drawn. After each fault
it must run again, with one generation on all hosts; at its end all nodes must report success, no
process may be left on a host, and the parameters must be those of an undisturbed run, to the bit.
Whatever `muster run` ends with while the job lives is started again, as Kubernetes would.
"""
import glob
import json
import os
import random
import signal
import subprocess
import tempfile
import time

from tests.nodes import hosts as test_hosts

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
NODE_TIMEOUT = 2.0
SERVER_GRACE = 10.0
SETTLE = 90.0   # for a job to run again after a fault
# What a node may end with before its job does: its agent died, the server was out of reach, it
# was put out, it was told to stop, it was killed.
ENDS = {70, 75, 76, 77, 143, -signal.SIGKILL, 128 + signal.SIGKILL}


class Violation(Exception):
    pass


class Node:
    """`muster run` on one host, in as many lives as it takes."""

    def __init__(self, cluster, host, number):
        self.cluster, self.host, self.number = cluster, host, number
        self.process = None
        self.lives = 0
        self.codes = []

    def path(self, kind):
        return os.path.join(self.cluster.folder, f"{kind}.{self.host.name}.{self.lives}")

    def start(self):
        self.lives += 1
        with open(self.path("out"), "wb") as out, open(self.path("err"), "wb") as err:
            self.process = subprocess.Popen(
                self.host.words(*self.cluster.line(self.path("events"))), stdout=out, stderr=err,
                stdin=subprocess.DEVNULL, cwd=self.cluster.folder, start_new_session=True,
                env={**self.cluster.environment, **self.host.environment()})

    def ended(self):
        """The exit code if this life has ended since the last look."""
        code = self.process.poll()
        if code is not None and len(self.codes) < self.lives:
            self.codes.append(code)
            return code
        return None

    def is_early(self):
        """Refused because the life before it is not yet known to be over."""
        with open(self.path("err"), encoding="utf-8", errors="replace") as file:
            return "has already joined" in file.read()

    def agent(self):
        for pid in self.host.pids():
            if test_hosts.start_ticks(pid) is None:
                continue
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    words = file.read().split(b"\0")
                with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                    parent = int(file.read().rsplit(")", 1)[1].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            # The first process of the host is the guardian: everything before it was exec'd away.
            if words[:1] == [self.cluster.muster.encode()] and parent == self.process.pid:
                return pid
        return None

    def workers(self):
        """(pid, generation) of the training processes here."""
        found = []
        for pid in self.host.pids():
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    variables = dict(word.split(b"=", 1) for word in file.read().split(b"\0")
                                     if b"=" in word)
                name = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
            except OSError:
                continue
            if name == "muster-train" and b"MUSTER_GENERATION" in variables:
                found.append((pid, int(variables[b"MUSTER_GENERATION"])))
        return found


class Cluster:
    """One job."""

    def __init__(self, options, seed, steps):
        self.options, self.seed, self.steps = options, seed, steps
        self.chance = random.Random(seed)
        self.muster = os.path.join(options.bin, "muster")
        self.train = os.path.join(options.bin, "muster-train")
        self.folder = tempfile.mkdtemp(prefix="muster-soak-")
        self.environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        self.strict = seed % 2 == 1
        self.hosts = test_hosts.Hosts(options.hosts + 1, os.path.join(self.folder, "hosts"))
        self.nodes = [Node(self, host, number)
                      for number, host in enumerate(self.hosts.all[:-1])]
        self.server = None
        self.server_host = self.hosts.all[-1]
        self.began = time.monotonic()
        self.count = 0

    def close(self):
        self.hosts.close()
        for node in self.nodes:
            if node.process:
                node.process.wait()
        if self.server:
            self.server.wait()
        if not self.options.keep_files:
            subprocess.run(["rm", "-rf", self.folder], check=True)

    def line(self, events):
        fence = ("--fence", "strict") if self.strict else ()
        return [self.muster, "run", "--nnodes", str(len(self.nodes)), "--nproc-per-node", "1",
                "--rdzv-id", "soak", "--rdzv-endpoint", f"{self.server_host.name}:29400",
                "--heartbeat", "200ms", "--node-timeout", f"{NODE_TIMEOUT}s", "--server-grace",
                f"{SERVER_GRACE}s", "--stop-grace", "5s", "--restart-backoff", "0s",
                "--max-restarts", "100000", "--join-timeout", "300s", *fence, "--events", events,
                "--", self.train, "--config", os.path.join(ROOT, "configs", "gpt-nano.json"),
                "--set", f"steps={self.steps}", "--set", "checkpoint.every_steps=5", "--set",
                f"train_batch_size={2 * len(self.nodes)}", "--set",
                f"checkpoint.dir={os.path.join(self.folder, 'checkpoints')}"]

    def start_server(self):
        with open(os.path.join(self.folder, "server.err"), "ab") as err:
            self.server = subprocess.Popen(
                self.server_host.words(self.muster, "rendezvous", "--listen", ":29400",
                                       "--state-dir", os.path.join(self.folder, "server")),
                stdout=err, stderr=err, stdin=subprocess.DEVNULL, start_new_session=True,
                env={**self.environment, **self.server_host.environment()})

    # ---- looking

    def say(self, text):
        print(f"soak: seed {self.seed}: {time.monotonic() - self.began:6.1f} s  {text}", flush=True)

    def result(self):
        """The last line of rank 0, once it is done."""
        for path in glob.glob(os.path.join(self.folder, "out.*")):
            with open(path, encoding="utf-8", errors="replace") as file:
                for text in file:
                    if '"done":true' in text:
                        return json.loads(text)
        return None

    def keep_alive(self):
        for node in self.nodes:
            code = node.ended()
            if code is None or (code == 0 and self.succeeded()):
                continue
            if code not in ENDS and not (code == 2 and node.is_early()):
                raise Violation(f"{node.host.name} ended with {code}: see {node.path('err')}")
            node.start()

    def succeeded(self):
        outcomes = {event["outcome"] for event in self.events()
                    if event["event"] == "job_finished"}
        if outcomes - {"succeeded"}:
            raise Violation(f"the job ended otherwise: {outcomes}")
        return bool(outcomes)

    def events(self):
        for path in glob.glob(os.path.join(self.folder, "events.*")):
            with open(path, encoding="utf-8") as file:
                for text in file:
                    if text.endswith("\n"):
                        yield json.loads(text)

    def until_runs(self, what, before=frozenset()):
        """All hosts have a worker of one generation, none of `before`, or the job is done."""
        began = time.monotonic()
        seen = []
        while time.monotonic() - began < SETTLE:
            self.keep_alive()
            if self.result():
                return
            workers = [node.workers() for node in self.nodes]
            generations = {generation for found in workers for _, generation in found}
            pids = {pid for found in workers for pid, _ in found}
            if all(len(found) == 1 for found in workers) and len(generations) == 1 \
                    and not pids & before:
                self.say(f"{what}: generation {generations.pop()} runs after "
                         f"{time.monotonic() - began:.2f} s")
                return
            seen = workers
            time.sleep(0.02)
        raise Violation(f"{what}: does not run again within {SETTLE:.0f} s; workers {seen}")

    # ---- faults

    def kill_worker(self, node):
        for pid, _ in node.workers():
            os.kill(pid, self.chance.choice((signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT)))

    def kill_agent(self, node):
        pid = node.agent()
        if pid:
            os.kill(pid, signal.SIGKILL)

    def preempt(self, node):
        pid = node.agent()
        if pid:
            os.kill(pid, signal.SIGTERM)

    def kill_host(self, node):
        node.host.kill()
        self.wait(self.chance.uniform(0, 2 * NODE_TIMEOUT))
        node.host.heal()

    def cut_shortly(self, node):
        node.host.cut(self.chance.choice(("both", "in", "out")))
        self.wait(self.chance.uniform(0, NODE_TIMEOUT / 2))
        node.host.heal()

    def cut(self, node):
        node.host.cut(self.chance.choice(("both", "in", "out")))
        self.wait(self.chance.uniform(NODE_TIMEOUT, 2 * SERVER_GRACE))
        node.host.heal()

    def freeze(self, node):
        node.host.freeze()
        self.wait(self.chance.uniform(0, 3 * NODE_TIMEOUT))
        node.host.thaw()

    def lose_packets(self, node):
        node.host.lose(10)
        self.wait(self.chance.uniform(1, 4))
        node.host.heal()

    def kill_server(self, _):
        self.server_host.signal(signal.SIGKILL)
        self.server.wait()
        self.wait(self.chance.uniform(0, SERVER_GRACE / 2))
        self.start_server()

    FAULTS = (kill_worker, kill_worker, kill_agent, preempt, kill_host, cut_shortly, cut, freeze,
              lose_packets, kill_server)
    ENDS_WORKERS = (kill_worker, kill_agent, preempt, kill_host)

    @staticmethod
    def wait(seconds):
        time.sleep(seconds)

    # ---- a whole job

    def run(self, faults):
        self.start_server()
        for node in self.nodes:
            node.start()
        self.until_runs("start")
        while not self.result() and self.count < faults:
            self.pause(self.chance.uniform(0.2, 3))
            fault = self.chance.choice(self.FAULTS)
            node = self.chance.choice(self.nodes)
            if self.result():
                break
            self.count += 1
            before = {pid for each in self.nodes for pid, _ in each.workers()}
            fault(self, node)
            self.until_runs(f"{fault.__name__} on {node.host.name}",
                            before if fault in self.ENDS_WORKERS else frozenset())
        return self.finish()

    def pause(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.result():
            self.keep_alive()
            time.sleep(0.02)

    def finish(self):
        deadline = time.monotonic() + 300
        while any(node.process.poll() is None for node in self.nodes) or not self.result():
            if time.monotonic() > deadline:
                raise Violation("the job does not end")
            self.keep_alive()
            time.sleep(0.05)
        codes = [node.process.poll() for node in self.nodes]
        if any(code != 0 for code in codes):
            raise Violation(f"the nodes ended with {codes}")
        left = [pid for node in self.nodes for pid in node.host.pids()]
        if left:
            raise Violation(f"processes are left: {left}")
        return self.result()["param_hash"]


def recoveries(cluster):
    found = {}
    for event in cluster.events():
        if event["event"] == "recovered":
            found[event["generation"]] = event
    return list(found.values())


def table(all_recoveries):
    print(f"{'seconds':>15}  {'median':>8}  {'p99':>8}   of {len(all_recoveries)} recoveries")
    for part in ("detect_s", "stop_s", "form_s", "spawn_s", "total_s", "first_progress_s"):
        values = sorted(event[part] for event in all_recoveries if part in event)
        if values:
            print(f"{part:>15}  {values[len(values) // 2]:8.3f}  "
                  f"{values[min(len(values) - 1, int(0.99 * len(values)))]:8.3f}")


def one_job(options, seed, faults, gathered):
    cluster = Cluster(options, seed, options.steps)
    kept = False
    try:
        result = cluster.run(faults)
        gathered.extend(recoveries(cluster))
        return result, cluster.count
    except Violation as violation:
        kept = True
        print(f"soak: seed {seed}: VIOLATION: {violation}\n"
              f"  its files: {cluster.folder}\n"
              f"  again: scripts/soak cluster --first-seed {seed} --hours 0 --hosts {options.hosts} "
              f"--steps {options.steps}", flush=True)
        return None, cluster.count
    finally:
        options.keep_files = options.keep_files or kept
        cluster.close()
        options.keep_files = False


def main(options):
    why = test_hosts.missing()
    if why:
        print(f"soak: {why}")
        return 3
    options.keep_files = False
    calm, _ = one_job(options, options.first_seed, 0, [])
    if calm is None:
        return 1
    end = time.monotonic() + 3600 * options.hours
    gathered, faults, jobs, bad = [], 0, 0, 0
    while jobs == 0 or time.monotonic() < end:
        seed = options.first_seed + jobs
        jobs += 1
        result, count = one_job(options, seed, 1000000, gathered)
        faults += count
        if result is None:
            bad += 1
        elif result != calm:
            bad += 1
            print(f"soak: seed {seed}: VIOLATION: parameters {result}, undisturbed {calm}")
    table(gathered)
    print(f"soak: {jobs} jobs, {faults} faults, {bad} violations")
    return 1 if bad else 0
