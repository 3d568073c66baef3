#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank's crash, and its peers' ends right after: the first one is named, always."""
import os
import re
import resource
import signal
import sys

from harness import MusterCase, main, until

RANKS = 8
ROUNDS = int(os.environ.get("FIRST_CAUSE_ROUNDS", "15"))

# The culprit ends with 7. Everybody else looks until it is dead and ends with 9, as ranks in a
# collective do, long before anybody could have told them.
PEERS = """
cd {folder}
if [ $RANK = {culprit} ]; then
  until [ -e all.run ]; do sleep 0.01; done
  echo $$ > pid.new; mv pid.new pid; exit 7
fi
until [ -s pid ]; do sleep 0.01; done
read -r culprit < pid
while read -r _ _ state _ < /proc/$culprit/stat && [ "$state" != Z ]; do :; done 2> /dev/null
exit 9
"""


class FirstCause(MusterCase):
    def blamed(self, culprit, number):
        folder = self.path(f"round.{number}")
        os.mkdir(folder)
        script = self.script(PEERS.format(culprit=culprit, folder=folder), f"peers.{number}.sh")
        job = self.run_job("--standalone", "--nproc-per-node", str(RANKS), script)
        until(lambda: self.events(job, "generation_running"), "all ranks")
        with open(os.path.join(folder, "all.run"), "w", encoding="ascii"):
            pass
        job.code()
        failed = self.events(job, "generation_failed")[0]
        return failed["first_cause"]["rank"], failed["first_cause"].get("exit_code"), job.err

    def test_the_crash_and_not_what_follows_it(self):
        for number in range(ROUNDS):
            culprit = number % RANKS
            with self.subTest(number=number, culprit=culprit):
                rank, code, text = self.blamed(culprit, number)
                self.assertEqual((rank, code), (culprit, 7), text)


# Every rank holds a connection to the culprit, whose death closes it before the kernel tells anybody
# that it has ended; peers abort over that, as NCCL's watchdog does.
CONNECTED = """#!/usr/bin/env python3
import os, resource, signal, socket, sys, time
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
folder, culprit, end = sys.argv[1], sys.argv[2], int(sys.argv[3])
place = os.path.join(folder, "port")
if os.environ["RANK"] == culprit:
    door = socket.create_server(("127.0.0.1", 0))
    with open(place + ".new", "w") as file:
        print(door.getsockname()[1], file=file)
    os.rename(place + ".new", place)
    peers = [door.accept()[0] for _ in range(int(os.environ["WORLD_SIZE"]) - 1)]
    open(os.path.join(folder, "connected"), "w").close()
    while not os.path.exists(os.path.join(folder, "go")):
        time.sleep(0.005)
    if end > 0:
        os._exit(end)
    os.kill(os.getpid(), -end)
while not os.path.exists(place):
    time.sleep(0.005)
with open(place) as file:
    line = socket.create_connection(("127.0.0.1", int(file.read())))
line.recv(1)
os.kill(os.getpid(), signal.SIGABRT)
"""


# As an exception under @record: said at once, and then an interpreter and its devices are closed, the
# sockets first. Peers fail over that in the same way, and are quicker.
RAISING = CONNECTED.replace("""    if end > 0:
        os._exit(end)
    os.kill(os.getpid(), -end)
""", """    fail("ValueError: no such shard")
    for peer in peers:
        peer.close()
    time.sleep(0.05)
    os._exit(end)
""").replace("""line.recv(1)
os.kill(os.getpid(), signal.SIGABRT)
""", """line.recv(1)
fail("ConnectionError: peer is gone")
os._exit(end)
""").replace("""place = os""", """
def fail(message):
    path = os.environ["TORCHELASTIC_ERROR_FILE"]
    with open(path, "w", encoding="ascii") as file:
        file.write('{"message": {"message": "%s"}}' % message)

place = os""")


class Connected(MusterCase):
    def test_who_raised_first_is_named_though_the_others_end_before_it(self):
        for number in range(ROUNDS):
            culprit = number % RANKS
            with self.subTest(number=number, culprit=culprit):
                rank, code, text = self.blamed(culprit, 1, number, RAISING)
                self.assertEqual((rank, code), (culprit, 1), text)
                self.assertIn("it reported: ValueError: no such shard", text)

    def blamed(self, culprit, end, number, program=CONNECTED):
        folder = self.path(f"round.{number}")
        os.mkdir(folder)
        script = self.path("connected.py")
        with open(script, "w", encoding="ascii") as file:
            file.write(program)
        job = self.run_job("--standalone", "--nproc-per-node", str(RANKS), "--python",
                           sys.executable, script, folder, str(culprit), str(end))
        until(lambda: os.path.exists(os.path.join(folder, "connected")), "all connections")
        until(lambda: self.events(job, "generation_running"), "all ranks")
        with open(os.path.join(folder, "go"), "w", encoding="ascii"):
            pass
        code = job.code()
        first = self.events(job, "generation_failed")[0]["first_cause"]
        return first["rank"], code, job.err

    def test_who_dies_is_named_and_not_who_aborts_over_it(self):
        for number in range(ROUNDS):
            culprit = number % RANKS
            end = (-signal.SIGSEGV, -signal.SIGKILL, 7)[number % 3]
            with self.subTest(number=number, culprit=culprit, end=end):
                rank, code, text = self.blamed(culprit, end, number)
                self.assertEqual((rank, code), (culprit, end if end > 0 else 128 - end), text)
                self.assertRegex(text, r"first cause: rank \d+")


    def test_of_aborts_the_one_is_named_whose_last_words_came_first(self):
        # As an assertion that fails does, and a watchdog that sees a peer go.
        program = CONNECTED.replace("    os.kill(os.getpid(), -end)\n", """
    print("assertion failed: no such shard", file=sys.stderr, flush=True)
    os.kill(os.getpid(), -end)
""").replace("line.recv(1)\n", """line.recv(1)
print("connection closed by peer", file=sys.stderr, flush=True)
""")
        for number in range(ROUNDS):
            culprit = number % RANKS
            with self.subTest(number=number, culprit=culprit):
                rank, code, text = self.blamed(culprit, -signal.SIGABRT, number, program)
                self.assertEqual((rank, code), (culprit, 134), text)
                self.assertIn("| assertion failed: no such shard", text)

    def test_an_exception_is_named_and_not_who_aborts_while_its_interpreter_ends(self):
        program = CONNECTED.replace("        os._exit(end)\n", """
        import atexit
        atexit.register(time.sleep, 0.05)
        for peer in peers:
            peer.close()
        raise ValueError("no such shard")
""")
        for number in range(ROUNDS):
            culprit = number % RANKS
            with self.subTest(number=number, culprit=culprit):
                rank, code, text = self.blamed(culprit, 1, number, program)
                self.assertEqual((rank, code), (culprit, 1), text)
                self.assertIn("| ValueError: no such shard", text)


class CoreDump(MusterCase):
    def test_a_core_dump_is_told(self):
        with open("/proc/sys/kernel/core_pattern", encoding="utf-8") as file:
            pattern = file.read().strip()
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        if hard == 0 or "/" in pattern or pattern.startswith("|"):
            self.skipTest(f"no core dumps in the working directory: limit {hard}, {pattern}")
        for limit, words in (("unlimited", " (core dumped)"), ("0", "")):
            with self.subTest(limit=limit):
                job = self.run_job("--standalone",
                                   self.script(f"ulimit -c {limit}; kill -SEGV $$\n"))
                self.assertEqual(job.code(), 139, job.err)
                self.assertRegex(job.err, rf"was killed by SIGSEGV{re.escape(words)}\n")
                self.assertEqual(", core dumped\n" in job.err, bool(words), job.err)
                (failed,) = self.events(job, "generation_failed")
                self.assertEqual(failed["first_cause"].get("core_dumped", False), bool(words))


if __name__ == "__main__":
    main()
