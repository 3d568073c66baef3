#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Limits of the machine: named where they stop a job, worked around where they need not."""
import os
import resource

from harness import MUSTER, MusterCase, Process, main


class OpenFiles(MusterCase):
    def under(self, limit, *arguments):
        """`muster run` started by a shell that has set limits for itself."""
        words = " ".join(arguments)
        wrapper = self.script(f"{limit}\nexec {MUSTER} run --standalone {words}\n", "limited.sh")
        return Process(self, [wrapper])

    def test_too_few_are_named_before_anything_starts(self):
        for limit in (10, 20, 40):
            job = self.under(f"ulimit -n {limit}", "--nproc-per-node", "4", "/bin/true")
            self.assertEqual(job.code(), 2, job.err)
            self.assertRegex(job.err, r"\Amuster: --nproc-per-node: 4 workers need \d+ open files, "
                                      rf"the limit here is {limit} \(ulimit -Hn\)\n\Z")

    def test_a_soft_limit_is_raised_for_us_and_not_for_the_workers(self):
        script = self.script("ulimit -Sn > soft.$RANK; ulimit -Hn > hard.$RANK; echo $RANK\n")
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        job = self.under("ulimit -Sn 12", "--nproc-per-node", "8", "-t", "3", "--log-dir",
                         self.path("logs"), script)
        self.assertEqual(job.code(), 0, job.err)
        self.assertEqual(sorted(job.out.split()), [str(rank) for rank in range(8)])
        for rank in range(8):
            self.assertEqual(self.read(f"soft.{rank}").strip(), "12")
            self.assertEqual(self.read(f"hard.{rank}").strip(), str(hard))

    def test_what_is_asked_for_is_enough(self):
        needed = 32 + 7 * 8
        job = self.under(f"ulimit -n {needed}", "--nproc-per-node", "8", "-t", "3", "--log-dir",
                         self.path("logs"), "--events", self.path("events"), "/bin/true")
        self.assertEqual(job.code(), 0, job.err)


class Processes(MusterCase):
    def test_the_limit_of_processes_is_named_and_is_not_126(self):
        if os.getuid() != 0:
            self.skipTest("root is needed to become a user without processes")
        os.chmod(self.folder, 0o777)
        os.chmod(self.scratch, 0o777)
        # A user that nobody else is, so that the count is ours alone: guardian, agent, threads.
        job = Process(self, ["setpriv", "--reuid", "64237", "--clear-groups", "prlimit",
                             "--nproc=12", MUSTER, "run", "--standalone", "--nproc-per-node", "16",
                             "sleep", "60"])
        self.assertEqual(job.code(), 70, job.err)
        self.assertIn("ulimit -u", job.err)


if __name__ == "__main__":
    main()
