#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank's crash, and its peers' ends right after: the first one is named, always."""
import os

from harness import MusterCase, main

RANKS = 8
ROUNDS = int(os.environ.get("FIRST_CAUSE_ROUNDS", "15"))

# The culprit ends with 7. Everybody else looks until it is dead and ends with 9, as ranks in a
# collective do, long before anybody could have told them.
PEERS = """
cd {folder}
: > up.$RANK
if [ $RANK = {culprit} ]; then echo $$ > pid.new; mv pid.new {pid}; {before} exit 7; fi
until [ -s {pid} ]; do :; done
read -r culprit < {pid}
while read -r _ _ state _ < /proc/$culprit/stat && [ "$state" != Z ]; do :; done 2> /dev/null
exit 9
"""


class FirstCause(MusterCase):
    def blamed(self, culprit, number, before):
        folder = self.path(f"round.{number}")
        os.mkdir(folder)
        script = self.script(PEERS.format(culprit=culprit, folder=folder,
                                          pid="pid", before=before), f"peers.{number}.sh")
        job = self.run_job("--standalone", "--nproc-per-node", str(RANKS), script)
        job.code()
        failed = self.events(job, "generation_failed")[0]
        return failed["first_cause"]["rank"], failed["first_cause"].get("exit_code"), job.err

    def check(self, before):
        for number in range(ROUNDS):
            culprit = number % RANKS
            with self.subTest(number=number, culprit=culprit):
                rank, code, text = self.blamed(culprit, number, before)
                self.assertEqual((rank, code), (culprit, 7), text)

    def test_while_the_others_are_still_being_started(self):
        self.check("")

    def test_once_all_of_them_run(self):
        self.check("for each in 0 1 2 3 4 5 6 7; do until [ -e up.$each ]; do :; done; done;")


if __name__ == "__main__":
    main()
