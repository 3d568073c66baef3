#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Being stopped: which signal reaches whom, codes, grace, budget, stop file, and nothing left."""
import datetime
import os
import signal
import time

from harness import MUSTER, SOURCE, MusterCase, Process, alive, main, until


def unix_time(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


WAIT = "trap '' TERM\nwhile :; do sleep 0.05; done\n"


class Signals(MusterCase):
    def running(self, script, *arguments, workers=2):
        job = self.run_job("--standalone", "--nproc-per-node", str(workers), *arguments, script)
        self.until_event(job, "generation_running")
        return job

    def pids(self, job):
        return [event["pid"] for event in self.events(job, "worker_started")]

    def test_each_stop_signal_is_passed_on_as_it_came(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            with self.subTest(signal=number.name):
                name = number.name[3:]
                job = self.running(self.script(
                    f"trap 'echo got > got.{name}.$RANK; exit 0' {name}\n"
                    "touch up.$RANK\nwhile :; do sleep 0.01; done\n"))
                until(lambda: os.path.exists(self.path("up.0")) and
                      os.path.exists(self.path("up.1")), "both traps")
                job.signal(number)
                self.assertEqual(job.code(), 128 + number, job.err)
                for rank in range(2):
                    self.assertTrue(os.path.exists(self.path(f"got.{name}.{rank}")))
                    os.remove(self.path(f"up.{rank}"))
                finished = self.events(job, "job_finished")
                self.assertEqual([event["outcome"] for event in finished], ["stopped"])

    def test_a_worker_that_got_the_signal_first_is_stopped_too(self):
        job = self.running(self.script("exec sleep 1000\n"), "--max-restarts", "1")
        os.kill(self.pids(job)[1], signal.SIGTERM)
        self.until_event(job, "worker_exited", rank=1)
        job.signal(signal.SIGTERM)
        self.assertEqual(job.code(), 143, job.err)
        self.assertEqual(self.events(job, "generation_failed"), [])
        self.assertEqual([event["outcome"] for event in self.events(job, "job_finished")],
                         ["stopped"])

    def test_the_stop_file_is_there_before_the_signal(self):
        job = self.running(self.script(
            "trap '[ -e \"$MUSTER_STOP_FILE\" ] && touch planned.$RANK; exit 0' TERM\n"
            "touch up.$RANK\nwhile :; do sleep 0.01; done\n"))
        until(lambda: all(os.path.exists(self.path(f"up.{r}")) for r in range(2)), "both traps")
        job.signal(signal.SIGTERM)
        self.assertEqual(job.code(), 143)
        for rank in range(2):
            self.assertTrue(os.path.exists(self.path(f"planned.{rank}")))

    def test_a_failure_writes_no_stop_file(self):
        job = self.run_job("--standalone", "--nproc-per-node", "2", self.script(
            "[ $RANK = 1 ] && { while [ ! -e up ]; do sleep 0.01; done; exit 3; }\n"
            "trap '[ -e \"$MUSTER_STOP_FILE\" ] && touch planned; exit 0' TERM\n"
            "touch up\nwhile :; do sleep 0.01; done\n"))
        self.assertEqual(job.code(), 3)
        self.assertFalse(os.path.exists(self.path("planned")))

    def test_grace_then_kill(self):
        job = self.running(self.script(WAIT), "--stop-grace", "300ms")
        pids = self.pids(job)
        start = time.monotonic()
        job.signal(signal.SIGTERM)
        self.assertEqual(job.code(), 143)
        self.assertGreater(time.monotonic() - start, 0.25)
        self.assertEqual([pid for pid in pids if alive(pid)], [])

    def test_a_stop_during_the_tear_down_after_a_failure(self):
        job = self.running(self.script(
            "[ $RANK = 1 ] && { while [ ! -e up ]; do sleep 0.01; done; kill -9 $$; }\n"
            "trap 'touch torn' TERM\ntouch up\nwhile [ ! -e go ]; do sleep 0.01; done\n"),
            "--max-restarts", "1")
        until(lambda: os.path.exists(self.path("torn")), "the tear-down")
        job.signal(signal.SIGTERM)
        self.until_event(job, "node_left")
        self.script("", "go")
        self.assertEqual(job.code(), 143, job.err)
        finished = self.events(job, "job_finished")
        self.assertEqual([(event["outcome"], event["exit_code"], event["restarts_used"])
                          for event in finished], [("stopped", 143, 0)])

    def test_second_and_third_signal(self):
        for signals in (2, 3):  # the second leaves two seconds, the third nothing
            with self.subTest(signals=signals):
                job = self.running(self.script(WAIT), *self.PATIENT)
                for _ in range(signals - 1):
                    job.signal(signal.SIGTERM)
                    time.sleep(0.15)  # the next one counts when it comes later than 100 ms
                start = time.monotonic()
                self.ends_soon(job, signal.SIGINT, 143, own=2 if signals == 2 else 0)
                if signals == 2:
                    self.assertGreater(time.monotonic() - start, 1.9)
                finished = self.events(job, "job_finished")
                self.assertEqual([event["outcome"] for event in finished], ["stopped"])

    def test_a_grandchild_of_a_wrapper_goes_too(self):
        job = self.running(self.script("sleep 1000 & echo $! > child.$RANK; wait\n"), workers=1)
        child = until(lambda: os.path.exists(self.path("child.0")) and
                      self.read("child.0").strip(), "the child")
        job.signal(signal.SIGTERM)
        self.assertEqual(job.code(), 143)
        self.assertFalse(alive(int(child)))

    def test_forwarded_signals_do_not_stop(self):
        job = self.running(self.script(
            "trap 'touch usr1' USR1\ntouch up\nwhile [ ! -e usr1 ]; do sleep 0.01; done\n"), workers=1)
        until(lambda: os.path.exists(self.path("up")), "the trap")
        job.signal(signal.SIGUSR1)
        self.assertEqual(job.code(), 0, job.err)

    def test_ignored_signals_stay_ignored_and_term_does_not(self):
        # As nohup and a shell's `&` leave them; the worker finds them ignored too.
        script = self.script("grep SigIgn /proc/$$/status > ignored.new; mv ignored.new ignored\n"
                             "while :; do sleep 0.01; done\n")
        wrapper = self.script(f"trap '' HUP INT QUIT\nexec {MUSTER} run --standalone {script}\n",
                              "nohup.sh")
        job = Process(self, [wrapper])
        until(lambda: os.path.exists(self.path("ignored")), "the worker")
        ignored = int(self.read("ignored").split()[1], 16)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            self.assertTrue(ignored >> (number - 1) & 1, number.name)
            job.signal(number)
        # Had one of them counted, this would be the second and the code the first one's.
        job.signal(signal.SIGTERM)
        self.assertEqual(job.code(), 143, job.err)

    def test_the_budget_is_shorter_than_the_grace(self):
        # 5 s from signal to exit: the workers have all of it but the three that the agent keeps.
        job = self.running(self.script("touch up.$RANK\n" + WAIT), *self.PATIENT,
                           "--stop-budget", "5s")
        until(lambda: all(os.path.exists(self.path(f"up.{rank}")) for rank in range(2)), "both")
        start = time.monotonic()
        self.ends_soon(job, signal.SIGTERM, 143, own=2)
        self.assertGreater(time.monotonic() - start, 1.9)


class Groups(MusterCase):
    """The leader ends with the signal, its group lives on: it has the signal and the rest."""

    LEADER = "%s &\necho $! > child.new; mv child.new child\nwait\n"

    def started(self, child, *arguments):
        path = self.script(child, "child.sh")
        job = self.run_job("--standalone", *arguments, self.script(self.LEADER % path))
        until(lambda: os.path.exists(self.path("up")) and os.path.exists(self.path("child")),
              "the child's trap")
        (leader,) = self.until_event(job, "worker_started")
        return job, leader["pid"], int(self.read("child"))

    def test_who_works_on_after_the_signal_is_let(self):
        job, leader, child = self.started(
            "trap 'echo told >> told' TERM\n: > up\n"
            "while [ ! -e go ]; do sleep 0.01; done\necho saved > saved\n", *self.PATIENT)
        job.signal(signal.SIGTERM)
        until(lambda: os.path.exists(self.path("told")), "the group's signal")
        self.assertFalse(alive(leader))
        self.assertTrue(alive(child))
        self.script("", "go")
        self.assertEqual(job.code(), 143, job.err)
        self.assertEqual((self.read("saved"), self.read("told")), ("saved\n", "told\n"))

    def test_who_does_not_mind_it_is_killed_when_the_grace_is_over(self):
        job, _, child = self.started("trap ': > told' TERM\n: > up\n"
                                     "while :; do sleep 0.01; done\n",
                                     *self.PATIENT, "--stop-grace", "1s")
        start = time.monotonic()
        self.ends_soon(job, signal.SIGTERM, 143, own=1)
        self.assertGreater(time.monotonic() - start, 0.9)
        self.assertTrue(os.path.exists(self.path("told")))
        self.assertFalse(alive(child))

    def test_what_a_worker_that_ended_well_left_behind_has_a_grace(self):
        # Also where it has left session and parent: it is the worker's all the same.
        child = self.script("trap ': > told; exit' TERM\n: > up\nwhile :; do sleep 0.01; done\n",
                            "child.sh")
        script = self.script(f"(setsid {child} &)\nwhile [ ! -e up ]; do sleep 0.01; done\n")
        job = self.run_job("--standalone", *self.PATIENT, "--stop-grace", "1s", script)
        ended = self.until_event(job, "worker_exited")
        self.assertEqual(ended[0]["exit_code"], 0)
        self.assertEqual(job.code(), 0, job.err)
        told = os.stat(self.path("told")).st_mtime
        self.assertGreater(told - unix_time(ended[0]["ts"]), 0.9)
        self.assertIn("processes that it started run on", job.err)

    def test_adopted_orphans_are_reaped_while_the_job_runs(self):
        orphans = 40
        job = self.run_job("--standalone", self.script(
            f"for i in $(seq {orphans}); do (sh -c 'echo $$ >> orphans' &); done\n"
            "while [ ! -e go ]; do sleep 0.01; done\n"))
        def all_written():
            return os.path.exists(self.path("orphans")) and \
                len(self.read("orphans").split()) == orphans
        until(all_written, "the orphans")
        # Zombies too: a pid that is not reaped stays in /proc.
        pids = self.read("orphans").split()
        until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), "all to be reaped")
        self.assertIsNone(job.popen.poll())
        self.script("", "go")
        self.assertEqual(job.code(), 0, job.err)


class OrderedStop(MusterCase):
    """A stop that the server orders: who reports progress has half of the grace for the file."""

    # Deaf to the signal; leaves when the file asks.
    REPORTS = f"""exec python3 -c '
import os, signal, sys, time
sys.path.insert(0, "{os.path.join(SOURCE, "worker_runtime")}")
from progress import report
signal.signal(signal.SIGTERM, lambda *_: open("signalled", "w").close())
report(7)
while not os.path.exists(os.environ["MUSTER_STOP_FILE"]):
    time.sleep(0.01)
'
"""

    def test_the_stop_file_comes_half_a_grace_before_the_signal(self):
        job = self.run_job("--standalone", *self.PATIENT, "--heartbeat", "100ms",
                           self.script(self.REPORTS))

        def reported():
            status = self.muster("status", "--json")
            status.code()
            return '"step":7' in status.out.replace(" ", "")
        until(reported, "the step to be known")
        stop = self.muster("stop")
        self.assertEqual(stop.code(), 0, stop.err)
        # Half of 300 s would be longer than anybody waits here.
        self.assertEqual(job.code(), 143, job.err)
        self.assertFalse(os.path.exists(self.path("signalled")))


if __name__ == "__main__":
    main()
