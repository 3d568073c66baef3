#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a pod's status shows of a node that ended."""
import json
import signal

from harness import MusterCase, main, until


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
