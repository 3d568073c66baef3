#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who failed first is named where its peers, on its node and on another, may end before it does."""
import os
import sys

from harness import main
from two_nodes import TwoNodes

RANKS = 8
ROUNDS = int(os.environ.get("FIRST_CAUSE_ROUNDS", "8"))

# Generation g: every rank holds a connection to rank g % 8, and ends when it is closed. The last
# generation ends well.
PROGRAM = """#!/usr/bin/env python3
import atexit, os, resource, signal, socket, sys, time, traceback
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
folder, end, answer, rounds = sys.argv[1:5]
generation, rank = os.environ["MUSTER_GENERATION"], int(os.environ["RANK"])
place = os.path.join(folder, "port." + generation)

def say(words):
    print(words, file=sys.stderr, flush=True)

def report(message):
    with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w", encoding="ascii") as file:
        file.write('{"message": {"message": "%s"}}' % message)

def fail(message):
    try:
        raise ValueError(message)
    except ValueError:
        traceback.print_exc()
        raise

if generation == rounds:
    sys.exit(0)
if rank != int(generation) % 8:
    while not os.path.exists(place):
        time.sleep(0.005)
    with open(place, encoding="ascii") as file:
        line = socket.create_connection(("127.0.0.1", int(file.read())))
    line.recv(1)
    if answer == "raises":
        raise ConnectionError("peer is gone")
    if answer == "speaks":
        say("connection closed by peer")
    os.kill(os.getpid(), signal.SIGABRT)

door = socket.create_server(("127.0.0.1", 0))
with open(place + ".new", "w", encoding="ascii") as file:
    print(door.getsockname()[1], file=file)
os.rename(place + ".new", place)
peers = [door.accept()[0] for _ in range(7)]
while not os.path.exists(os.path.join(folder, "go." + generation)):
    time.sleep(0.005)

def let_go(teardown):
    for peer in peers:
        peer.close()
    time.sleep(teardown)

if end == "raises":
    atexit.register(let_go, 0.4)
    raise ValueError("no such shard")
if end == "raises twice":
    try:
        fail("no such shard")
    except ValueError:
        let_go(0.1)
        raise
if end == "reports":
    report("ValueError: no such shard")
    let_go(0.4)
    os._exit(1)
if end == "asserts":
    say("assertion failed: no such shard")
    os.kill(os.getpid(), signal.SIGABRT)
if end == "exits":
    os._exit(7)
os.kill(os.getpid(), int(end))
"""


class Connected(TwoNodes):
    def blamed(self, end, answer):
        """The first causes of ROUNDS generations."""
        script = self.path("connected.py")
        with open(script, "w", encoding="ascii") as file:
            file.write(PROGRAM)
        nodes = [self.node(rank, "--nproc-per-node", "4", "--max-restarts", str(ROUNDS),
                           "--restart-backoff", "0s", "--python", sys.executable, script,
                           self.folder, end, answer, program=str(ROUNDS))
                 for rank in (0, 1)]
        for generation in range(ROUNDS):
            for node in nodes:
                self.until_event(node, "generation_running", generation=generation)
            self.let_go(generation)
            (failed,) = self.until_event(nodes[0], "generation_failed", generation=generation)
            yield generation % RANKS, failed["first_cause"]
        self.assertEqual([node.code() for node in nodes], [0, 0], nodes[0].err + nodes[1].err)

    def check(self, end, answer, **wanted):
        tail = wanted.pop("tail", "")
        for culprit, cause in self.blamed(end, answer):
            with self.subTest(culprit=culprit):
                self.assertEqual(cause["rank"], culprit, cause)
                for key, value in wanted.items():
                    self.assertEqual(cause.get(key), value, cause)
                self.assertIn(tail, cause.get("stderr_tail", ""))

    def test_an_exception_though_all_others_abort_before_its_interpreter_has_ended(self):
        self.check("raises", "aborts", exit_code=1, tail="ValueError: no such shard")

    def test_an_exception_though_all_others_raise_over_it(self):
        self.check("raises", "raises", exit_code=1, tail="ValueError: no such shard")

    def test_an_exception_that_is_logged_and_raised_again_when_the_others_have_raised_theirs(self):
        self.check("raises twice", "raises", exit_code=1, tail="ValueError: no such shard")

    def test_an_error_file_though_all_others_abort_before_its_writer_has_ended(self):
        self.check("reports", "aborts", exit_code=1)

    def test_of_aborts_the_one_whose_last_words_came_first(self):
        self.check("asserts", "speaks", signal="SIGABRT", tail="assertion failed: no such shard")

    def test_a_crash_though_all_others_abort(self):
        self.check("11", "aborts", signal="SIGSEGV")

    def test_an_exit_though_all_others_abort(self):
        self.check("exits", "aborts", exit_code=7)


class OneNode(Connected):
    """All ranks at one agent, which waits for nobody elsewhere."""

    def blamed(self, end, answer):
        script = self.path("connected.py")
        with open(script, "w", encoding="ascii") as file:
            file.write(PROGRAM)
        job = self.run_job("--standalone", "--nproc-per-node", str(RANKS), "--max-restarts",
                           str(ROUNDS), "--restart-backoff", "0s", "--python", sys.executable,
                           script, self.folder, end, answer, str(ROUNDS))
        for generation in range(ROUNDS):
            self.until_event(job, "generation_running", generation=generation)
            self.let_go(generation)
            (failed,) = self.until_event(job, "generation_failed", generation=generation)
            yield generation % RANKS, failed["first_cause"]
        self.assertEqual(job.code(), 0, job.err)


if __name__ == "__main__":
    main()
