# SPDX-License-Identifier: Apache-2.0
"""Jobs whose nodes come late, are too many, or keep breaking: real processes, a server of its own."""
from harness import main
from two_nodes import OwnServer


class Elastic(OwnServer):
    def test_a_late_node_makes_the_job_grow(self):
        first = self.member("a", "1:2")
        self.until_event(first, "generation_running", generation=0)
        second = self.member("b", "1:2")
        formed = self.formed(first, 1)
        self.assertEqual(formed["reason"], "node_joined")
        self.assertEqual([node["node"] for node in formed["nodes"]], ["a", "b"])
        self.let_go(1)
        self.assertEqual(first.code(), 0, first.err)
        self.assertEqual(second.code(), 0, second.err)

    def test_a_node_too_many_is_refused_by_name(self):
        first = self.member("a", "1", "--spares", "none")
        self.until_event(first, "generation_running", generation=0)
        second = self.member("b", "1", "--spares", "none")
        self.assertEqual(second.code(), 2, second.err)
        self.assertIn('takes no spares (--spares none); node "b" is one too many', second.err)
        self.let_go(0)
        self.assertEqual(first.code(), 0, first.err)

    def test_a_node_that_keeps_breaking_the_job_sits_out_and_ends_77(self):
        worker = self.script("[ $MUSTER_NODE = bad ] && exit 3\n"
                             "trap 'exit 1' TERM\n"
                             "while [ ! -e go.$MUSTER_GENERATION ]; do sleep 0.01; done\n", "bad.sh")
        rules = ("--max-restarts", "5", "--quarantine", "1/1m,1h")
        good = self.member("good", "1:2", *rules, program=worker)
        self.until_event(good, "generation_running", generation=0)
        bad = self.member("bad", "1:2", *rules, program=worker)
        out = self.until_event(good, "node_quarantined")[0]
        self.assertEqual(out["node"], "bad")
        self.assertIn("first cause of a failure", out["reason"])
        formed = self.formed(good, 2)
        self.assertEqual([node["node"] for node in formed["nodes"]], ["good"])
        self.assertIsNone(bad.popen.poll(), bad.err)
        self.let_go(2)
        self.assertEqual(good.code(), 0, good.err)
        self.assertEqual(bad.code(), 77, bad.err)
        self.assertIn("quarantine", bad.err)

    def test_restarts_that_lead_nowhere_end_78(self):
        job = self.member("a", "1", "--max-restarts", "9", "--max-no-progress", "2",
                          program=self.script("exit 3\n", "fails.sh"))
        self.assertEqual(job.code(), 78, job.err)
        self.assertIn("no progress in 2 generations in a row: no step was ever reported", job.err)
        self.assertEqual(self.events(job, "job_finished")[0]["outcome"], "no_progress")


if __name__ == "__main__":
    main()
