#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a pod's status shows of a node that ended."""
import json
import os
import signal

from harness import MusterCase, free_port, main, until


class TerminationLog(MusterCase):
    def setUp(self):
        super().setUp()
        self.log = self.path("termination")

    def start(self, script, *more):
        return self.run_job("--standalone", "--nproc-per-node", "2", "--termination-log", self.log,
                            *more, self.script(script))

    def document(self):
        try:
            text = self.read("termination")
        except FileNotFoundError:
            return None
        return json.loads(text) if text else None

    def test_it_is_there_while_workers_are_still_being_stopped_and_whole_at_the_end(self):
        # Rank 1 takes its time over the signal.
        job = self.start("if [ $RANK = 0 ]; then\n"
                         "  until [ -e up ]; do sleep 0.01; done\n"
                         "  echo some last words >&2; exit 3\nfi\n"
                         "trap 'until [ -e go ]; do sleep 0.01; done; exit 0' TERM\n"
                         ": > up; while :; do sleep 0.01; done\n", "--stop-grace", "50s")
        early = until(self.document, "the first cause")
        self.assertNotIn("exit_code", early)
        self.assertEqual((early["first_cause"]["rank"], early["first_cause"]["exit_code"]), (0, 3))
        with open(self.path("go"), "w", encoding="ascii"):
            pass
        self.assertEqual(job.code(), 3, job.err)
        last = self.document()
        self.assertEqual((last["exit_code"], last["exit_class"]), (3, "worker"))
        self.assertIn("some last words", last["first_cause"]["stderr_tail"])
        self.assertTrue(last["run"])

    def test_a_pipe_that_nobody_reads_holds_nobody_up(self):
        os.mkfifo(self.log)
        job = self.start("[ $RANK = 0 ] && exit 3\nexec sleep 1000\n")
        self.assertEqual(job.code(), 3, job.err)
        self.assertIn("termination log: cannot open", job.err)

    def test_a_link_stays_one_and_what_it_names_is_written(self):
        os.symlink("real", self.log)
        job = self.start("exit 3\n")
        self.assertEqual(job.code(), 3, job.err)
        self.assertTrue(os.path.islink(self.log))
        with open(self.path("real"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["exit_code"], 3)

    def test_an_end_before_there_is_an_agent_is_told(self):
        missing = self.path("not.there")
        log = {"MUSTER_TERMINATION_LOG": self.log}
        for arguments, code, exit_class, text in (
                (["--standalone", missing], 127, "worker", "not.there"),
                (["--standalone", "--max-restrats", "3", "/bin/true"], 2, "usage", "--max-restarts"),
                (["--standalone", "--nproc-per-node", "x", "/bin/true"], 2, "usage",
                 "--nproc-per-node"),
                (["--nnodes", "2", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--rdzv-conf",
                  "is_host=0", "--join-timeout", "200ms", "/bin/true"], 75, "join_timeout",
                 "nobody answers")):
            with self.subTest(arguments=arguments):
                job = self.muster("run", *arguments, environment=log)
                self.assertEqual(job.code(), code, job.err)
                last = self.document()
                self.assertEqual((last["exit_code"], last["exit_class"]), (code, exit_class))
                self.assertIn(text, last["text"])
                self.assertIn(text, job.err)
        with open(self.log, "w", encoding="ascii"):
            pass
        job = self.muster("run", "--standalone", "--print-config", "--nproc-per-node", "x",
                          "/bin/true", environment=log)
        self.assertEqual(job.code(), 2, job.err)
        self.assertIsNone(self.document())

    def test_a_killed_agent_is_told_by_its_guardian(self):
        job = self.start("exec sleep 1000\n")
        until(lambda: self.events(job, "generation_running"), "the workers")
        os.kill(job.agent(), signal.SIGKILL)
        self.assertEqual(job.code(), 70, job.err)
        last = self.document()
        self.assertEqual((last["exit_code"], last["exit_class"]), (70, "internal"))
        self.assertIn("was killed by SIGKILL", last["text"])

    def test_a_stop_says_that_it_was_one_and_a_success_nothing(self):
        job = self.start(": > up.$RANK\nexec sleep 1000\n")
        until(lambda: self.events(job, "generation_running"), "the workers")
        job.signal(signal.SIGTERM)
        self.assertEqual(job.code(), 143, job.err)
        self.assertEqual(self.document()["exit_class"], "signal")
        # A restart made it good.
        job = self.start("if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then exit 1; fi\n",
                         "--max-restarts", "1")
        self.assertEqual(job.code(), 0, job.err)
        self.assertEqual(self.read("termination"), "")
        # What an earlier run left is not this one's.
        self.assertEqual(self.start("exit 3\n").code(), 3)
        self.assertNotEqual(self.read("termination"), "")
        self.assertEqual(self.start("exit 0\n").code(), 0)
        self.assertEqual(self.read("termination"), "")


if __name__ == "__main__":
    main()
