#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--stop-scope, --exit-grace, --signals-to-handle and --forward-signals with real processes."""
import os
import signal

from harness import MusterCase, alive, main, until

# A leader with a child in its process group; each says which signals it got. The leader ends when
# it was told; the child when it was, or never.
FAMILY = ("trap 'echo leader TERM >> got; touch leader.ended; exit 0' TERM\n"
          "sh -c 'trap \"echo child TERM >> got; exit 0\" TERM; echo $$ > child\n"
          "while :; do sleep 0.01; done' &\n"
          "until [ -s child ]; do sleep 0.01; done\ntouch up\n"
          "while :; do sleep 0.01; done\n")


class StopOptions(MusterCase):
    def running(self, script, *arguments, up="up"):
        job = self.run_job("--standalone", *arguments, self.script(script))
        self.until_event(job, "generation_running")
        until(lambda: os.path.exists(self.path(up)), "the worker to be up")
        return job

    def got(self):
        return self.read("got").split("\n")[:-1]

    def test_scope_leader_reaches_the_group_when_the_leader_ended(self):
        job = self.running(FAMILY, *self.PATIENT)
        job.signal(signal.SIGTERM)
        self.assertEqual(job.code(), 143, job.err)
        self.assertEqual(self.got(), ["leader TERM", "child TERM"])

    def test_scope_group_reaches_all_at_once(self):
        # This leader waits for its child and would wait for ever if only it had the signal.
        job = self.running(FAMILY.replace("touch leader.ended", "wait; echo waited >> got"),
                           "--stop-scope", "group", *self.PATIENT)
        job.signal(signal.SIGTERM)
        self.assertEqual(job.code(), 143, job.err)
        self.assertCountEqual(self.got()[:2], ["leader TERM", "child TERM"])
        self.assertEqual(self.got()[2:], ["waited"])

    def test_scope_group_reaches_what_left_the_group_when_the_leader_ended(self):
        job = self.running(
            "setsid sh -c 'trap \"echo child TERM >> got; exit 0\" TERM; echo $$ > child\n"
            "while :; do sleep 0.01; done' &\n"
            "trap 'exit 0' TERM\nuntil [ -s child ]; do sleep 0.01; done\ntouch up\n"
            "while :; do sleep 0.01; done\n", "--stop-scope", "group", *self.PATIENT)
        job.signal(signal.SIGTERM)
        self.assertEqual(job.code(), 143, job.err)
        self.assertEqual(self.got(), ["child TERM"])

    def test_scope_group_tells_nobody_twice_who_leaves_the_group_over_it(self):
        with open(self.path("worker.py"), "w", encoding="utf-8") as file:
            file.write("import os, signal, sys, time\n"
                       "leader = os.fork() != 0\n"
                       "got = []\n"
                       "def on_term(*_):\n"
                       "    got.append(1)\n"
                       "    if leader: return\n"
                       "    if len(got) == 1: os.setsid(); open('left', 'w').close()\n"
                       "    if len(got) == 2: open('twice', 'w').close()\n"
                       "signal.signal(signal.SIGTERM, on_term)\n"
                       "open(f'up.{leader}', 'w').close()\n"
                       "while not os.path.exists('left'): time.sleep(0.01)\n"
                       "if leader: sys.exit(0)\n"
                       "while not os.path.exists('go'): time.sleep(0.01)\n")
        job = self.run_job("--standalone", "--stop-scope", "group", *self.PATIENT,
                           self.path("worker.py"))
        self.until_event(job, "generation_running")
        until(lambda: all(os.path.exists(self.path(f"up.{who}")) for who in (True, False)), "both")
        job.signal(signal.SIGTERM)
        self.until_event(job, "worker_exited", rank=0)
        open(self.path("go"), "w", encoding="utf-8").close()
        self.assertEqual(job.code(), 143, job.err)
        self.assertFalse(os.path.exists(self.path("twice")))

    def test_exit_grace_names_what_runs_on_and_ends_it(self):
        job = self.run_job("--standalone", "--exit-grace", "300ms", self.script(
            "sleep 4242 &\necho $! > pid\nexit 0\n"))
        self.assertEqual(job.code(), 0, job.err)
        pid = int(self.read("pid"))
        self.assertRegex(job.err, rf"muster: rank 0 ended, processes that it started run on: {pid} "
                                  r"\(sleep 4242\); they have 300ms \(--exit-grace\)")
        self.assertFalse(alive(pid))

    def test_exit_grace_lets_a_child_finish(self):
        job = self.run_job("--standalone", *self.PATIENT, "--exit-grace", "250s", self.script(
            "(while [ ! -e go ]; do sleep 0.01; done; echo done > finished) &\nexit 0\n"))
        until(lambda: "they have 250s (--exit-grace)" in job.err, "the line about what runs on")
        open(self.path("go"), "w", encoding="utf-8").close()
        self.assertEqual(job.code(), 0, job.err)
        self.assertEqual(self.read("finished"), "done\n")

    def test_a_further_signal_that_stops_the_job(self):
        job = self.running("trap 'echo USR1 > got; exit 0' USR1\ntouch up\n"
                           "while :; do sleep 0.01; done\n",
                           "--signals-to-handle", "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1")
        job.signal(signal.SIGUSR1)
        self.assertEqual(job.code(), 128 + signal.SIGUSR1, job.err)
        self.assertEqual(self.read("got"), "USR1\n")
        self.assertEqual([event["outcome"] for event in self.events(job, "job_finished")],
                         ["stopped"])

    def test_a_worker_that_a_further_signal_ended_first(self):
        job = self.running("touch up\nexec sleep 1000\n", "--max-restarts", "1",
                           "--signals-to-handle", "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1")
        os.kill(self.events(job, "worker_started")[0]["pid"], signal.SIGUSR1)
        self.until_event(job, "worker_exited", rank=0)
        job.signal(signal.SIGUSR1)
        self.assertEqual(job.code(), 128 + signal.SIGUSR1, job.err)
        self.assertEqual(self.events(job, "generation_failed"), [])

    def test_a_list_that_leaves_some_out(self):
        job = self.running("touch up\nexec sleep 1000\n", "--signals-to-handle", "SIGTERM,SIGFOO")
        self.assertIn("--signals-to-handle: 'SIGFOO' is no signal here: ignored\n", job.err)
        self.assertIn("--signals-to-handle: SIGINT, SIGHUP, SIGQUIT stop the job as well", job.err)
        job.signal(signal.SIGINT)
        self.assertEqual(job.code(), 130, job.err)

    def test_a_signal_of_the_users_own_choice_passes_guardian_and_agent(self):
        number = signal.SIGRTMIN + 3  # its default action would end both
        with open(self.path("worker.py"), "w", encoding="utf-8") as file:
            file.write("import os, signal, time\n"
                       f"signal.signal({int(number)}, lambda *_: open('got', 'w').close())\n"
                       "open('up', 'w').close()\n"
                       "while not os.path.exists('got'): time.sleep(0.01)\n")
        job = self.run_job("--standalone", "--forward-signals", str(int(number)),
                           self.path("worker.py"))
        until(lambda: os.path.exists(self.path("up")), "the worker to be up")
        job.signal(number)
        self.assertEqual(job.code(), 0, job.err)


if __name__ == "__main__":
    main()
