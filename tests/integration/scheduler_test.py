#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Nodes that a scheduler starts again, as another attempt or the same: real processes."""
import os
import signal

from harness import alive, main
from two_nodes import OwnServer


def slurm(restart, step="0", job="7"):
    return {"SLURM_JOB_ID": job, "SLURM_STEP_ID": step, "SLURM_NODEID": "1",
            "SLURM_RESTART_COUNT": str(restart)}


def pod(uid):
    return {"JOB_COMPLETION_INDEX": "1", "POD_UID": uid}


class Scheduler(OwnServer):
    def tried(self, attempt):
        """Node b of the job, as this attempt of its scheduler."""
        return self.run_job("--nnodes", "2", "--rdzv-id", "job", "--rdzv-endpoint",
                            f"127.0.0.2:{self.port}", "--node-name", "b", "--advertise-addr",
                            "127.0.0.2", "--max-restarts", "5", self.worker, environment=attempt)

    def test_a_new_attempt_takes_the_place_and_the_old_one_does_not_come_back(self):
        for kind, attempts in (("slurm", (slurm(0), slurm(1))), ("pod", (pod("u-1"), pod("u-2")))):
            with self.subTest(kind=kind):
                first = self.member("a", "2", "--max-restarts", "5")
                old = self.tried(attempts[0])
                self.until_event(first, "generation_running", generation=0)
                worker = self.events(old, "worker_started")[0]["pid"]
                os.kill(old.agent(), signal.SIGSTOP)
                new = self.tried(attempts[1])
                self.until_event(first, "generation_running", generation=1)
                os.kill(old.agent(), signal.SIGCONT)
                self.assertEqual(old.code(), 77, old.err)
                self.assertFalse(alive(worker))
                again = self.tried(attempts[0])
                self.assertEqual(again.code(), 2, again.err)
                self.assertIn("the scheduler has replaced this agent", again.err)
                self.let_go(1)
                self.assertEqual([first.code(), new.code()], [0, 0], first.err + new.err)
                # Whoever was part of the run reads how it ended, without any work.
                for attempt in attempts:
                    late = self.tried(attempt)
                    self.assertEqual(late.code(), 0, late.err)
                    self.assertEqual(self.events(late, "worker_started"), [])
                os.remove(self.path("go.1"))

    def test_two_steps_of_one_job_are_two(self):
        first = self.member("a", "2", "--max-restarts", "5")
        second = self.tried(slurm(0))
        self.until_event(first, "generation_running", generation=0)
        third = self.tried(slurm(0, step="1"))
        self.assertEqual(third.code(), 2, third.err)
        self.assertIn('node "b" has already joined', third.err)
        self.let_go(0)
        self.assertEqual([first.code(), second.code()], [0, 0])


if __name__ == "__main__":
    main()
