#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank's crash, and its peers' ends right after: the first one is named, always."""
import os
import re
import resource

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
