#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fault plans: what fires, what is reported, what is refused; and operating a live job."""
import json
import os

from harness import SOURCE, MusterCase, main, until
from two_nodes import OwnServer

SLEEP = "[ $MUSTER_GENERATION = 1 ] && exit 0\nexec sleep 600\n"


class Faults(MusterCase):
    def test_kill_after(self):
        plan = [{"do": "kill", "when": {"after": "50ms"}, "on": {"rank": 1}}]
        job = self.run_job("--standalone", "--nproc-per-node", "2", "--max-restarts", "1",
                           "--chaos", json.dumps(plan), self.script(SLEEP))
        self.assertEqual(job.code(), 0, job.err)
        cause = self.events(job, "generation_failed")[0]["first_cause"]
        self.assertEqual((cause["rank"], cause["signal"]), (1, "SIGKILL"))
        fired = self.events(job, "chaos_fired")
        self.assertEqual(len(fired), 1)
        self.assertEqual(self.events(job, "chaos_unfired"), [])

    def test_plan_from_a_file_with_another_signal(self):
        with open(self.path("plan.json"), "w", encoding="utf-8") as file:
            json.dump({"seed": 7, "faults": [{"do": "kill", "signal": "SEGV",
                                              "when": {"after": "0s"}, "on": {"rank": 0}}]}, file)
        job = self.run_job("--standalone", "--chaos", self.path("plan.json"),
                           self.script("exec sleep 600\n"))
        self.assertEqual(job.code(), 139, job.err)

    def test_a_fault_of_generation_1_waits_for_it(self):
        plan = [{"do": "kill", "when": {"after": "0s"}, "on": {"rank": 0}},
                {"do": "kill", "when": {"generation": 1, "after": "0s"}, "on": {"rank": 0}}]
        job = self.run_job("--standalone", "--max-restarts", "2", "--restart-backoff", "0s",
                           "--chaos", json.dumps(plan),
                           self.script("[ $MUSTER_GENERATION = 2 ] && exit 0\nexec sleep 600\n"))
        self.assertEqual(job.code(), 0, job.err)
        self.assertEqual([event["generation"] for event in self.events(job, "chaos_fired")], [0, 1])

    def test_stop_for_a_while(self):
        plan = [{"do": "stop", "for": "100ms", "when": {"after": "0s"}, "on": {"rank": 0}}]
        job = self.run_job("--standalone", "--chaos", json.dumps(plan), self.script(
            "while [ ! -e go ]; do sleep 0.01; done\n"))
        self.until_event(job, "chaos_fired")
        open(self.path("go"), "w", encoding="utf-8").close()
        self.assertEqual(job.code(), 0, job.err)

    def test_kill_agent(self):
        plan = [{"do": "kill-agent", "when": {"after": "20ms"}, "on": {"rank": 0}}]
        job = self.run_job("--standalone", "--chaos", json.dumps(plan),
                           self.script("exec sleep 600\n"))
        self.assertEqual(job.code(), 70, job.err)

    def test_exit_is_the_workers_own_act_at_the_step_or_at_its_next_report(self):
        for when, step in (({"step": 30}, 30), ({"after": "100ms"}, None)):
            with self.subTest(when=when):
                plan = [{"do": "exit", "code": 7, "when": when, "on": {"rank": 1}}]
                job = self.run_job("--standalone", "--nproc-per-node", "2", "--chaos",
                                   json.dumps(plan), "/usr/bin/python3", self.reporter())
                self.assertEqual(job.code(), 7, job.err)
                cause = self.events(job, "generation_failed")[0]["first_cause"]
                self.assertEqual((cause["rank"], cause["exit_code"]), (1, 7))
                self.assertEqual(len(self.events(job, "chaos_fired")), 1)
                with open(self.path("step.1"), encoding="ascii") as file:
                    last = int(file.read())
                if step:
                    self.assertEqual(last, step)

    def reporter(self):
        """Reports a step every 5 ms; the last that was begun is in a file."""
        text = ("import os, sys, time\n"
                f"sys.path.insert(0, {os.path.join(SOURCE, 'worker_runtime')!r})\n"
                "import progress\n"
                "for step in range(1, 100000):\n"
                "    with open('step.' + os.environ['RANK'], 'w') as file:\n"
                "        file.write(str(step))\n"
                "    progress.report(step)\n"
                "    if os.path.exists('go'):\n"
                "        break\n"
                "    time.sleep(0.005)\n")
        with open(self.path("reporter.py"), "w", encoding="ascii") as file:
            file.write(text)
        return self.path("reporter.py")

    def test_slow_leaves_a_worker_a_part_of_the_time(self):
        plan = [{"do": "slow", "factor": 50, "when": {"after": "0s"}, "on": {"rank": 1}}]
        job = self.run_job("--standalone", "--nproc-per-node", "2", "--chaos", json.dumps(plan),
                           self.script("touch up.$RANK\nwhile [ ! -e go ]; do sleep 0.01; done\n"))
        self.until_event(job, "chaos_fired")
        (pid,) = [event["pid"] for event in self.events(job, "worker_started", rank=1)]

        def state():
            with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                return file.read().rsplit(")", 1)[1].split()[0]
        until(lambda: state() == "T", "the worker standing")
        until(lambda: state() != "T", "the worker running")
        until(lambda: state() == "T", "the worker standing again")
        open(self.path("go"), "w", encoding="utf-8").close()
        self.assertEqual(job.code(), 0, job.err)

    def test_preempt_is_a_leave_of_the_agent(self):
        plan = [{"do": "preempt", "when": {"after": "20ms"}, "on": {"random": "node"}}]
        job = self.run_job("--standalone", "--chaos", json.dumps(plan), "--chaos-strict",
                           self.script("exec sleep 600\n"))
        self.assertEqual(job.code(), 143, job.err)
        self.assertEqual(len(self.events(job, "chaos_fired")), 1)

    def test_a_random_rank_is_the_same_for_the_same_seed(self):
        def victim(seed):
            plan = {"seed": seed, "faults": [{"do": "kill", "when": {"after": "0s"},
                                              "on": {"random": "rank"}}]}
            job = self.run_job("--standalone", "--nproc-per-node", "4", "--chaos",
                               json.dumps(plan), self.script("exec sleep 600\n"))
            self.assertEqual(job.code(), 137, job.err)
            return self.events(job, "generation_failed")[0]["first_cause"]["rank"]
        self.assertEqual(victim(5), victim(5))
        self.assertGreater(len({victim(seed) for seed in range(8)}), 1)

    def test_the_plans_that_come_along_are_sound(self):
        folder = os.path.join(SOURCE, "configs", "chaos")
        names = sorted(os.listdir(folder))
        self.assertGreater(len(names), 5)
        for name in names:
            check = self.muster("chaos", "check", os.path.join(folder, name))
            self.assertEqual(check.code(), 0, check.err)

    def test_a_fault_that_never_fires_is_told_and_79_when_strict(self):
        plan = json.dumps([{"do": "kill", "when": {"after": "1h"}, "on": {"rank": 0}}])
        job = self.run_job("--standalone", "--chaos", plan, "/bin/true")
        self.assertEqual(job.code(), 0, job.err)
        self.assertIn("never fired", job.err)
        self.assertEqual(len(self.events(job, "chaos_unfired")), 1)
        job = self.run_job("--standalone", "--chaos", plan, "--chaos-strict", "/bin/true")
        self.assertEqual(job.code(), 79, job.err)
        # Above the block of a failed job, which is the last that is said.
        job = self.run_job("--standalone", "--chaos", plan, "/bin/false")
        self.assertEqual(job.code(), 1, job.err)
        told, block = (job.err.index(text) for text in ("never fired", "muster: job "))
        self.assertLess(told, block, job.err)
        self.assertEqual(job.err.count("never fired"), 1)

    def test_bad_plans_are_refused_by_pointer(self):
        for plan, word in (('[{"do":"explode"}]', "explode"), ('[{"do":"kill"}]', "when"),
                           ('[{"do":"kill","when":{"after":"1s"},"on":{"rank":9}}]', "9"),
                           ('[{"do":"kill","when":{"generation":1,"after":"1s"},"on":{"rank":0}}]',
                            "--max-restarts"),
                           ('[{"do":"kill","when":{"after":"1s","stepp":3},"on":{"rank":0}}]',
                            "stepp"),
                           ('[{"do"', "chaos"), ("no-such-file.json", "no-such-file.json")):
            with self.subTest(plan=plan):
                job = self.run_job("--standalone", "--chaos", plan, "/bin/true")
                self.assertEqual(job.code(), 2, job.err)
                self.assertIn(word, job.err)
                self.assertEqual(len(job.err.strip().splitlines()), 1, job.err)

    def test_chaos_check_prints_the_plan(self):
        plan = '[{"do":"kill","when":{"step":130},"on":{"rank":1}}]'
        check = self.muster("chaos", "check", plan)
        self.assertEqual(check.code(), 0, check.err)
        self.assertIn("130", check.out)
        self.assertEqual(self.muster("chaos", "check", "[{}]").code(), 2)


class OnTheLink(OwnServer):
    """Faults between an agent and a server of its own, whose node time-out is short."""

    TIMES = ("--heartbeat", "200ms", "--node-timeout", "2s", "--server-grace", "60s",
             "--last-call", "60s")

    def job_with(self, fault, nnodes="2", first="n1"):
        plan = json.dumps([{"when": {"after": "0s"}, "on": {"node": first}, **fault}])
        nodes = [self.member(name, nnodes, *self.TIMES, "--chaos", plan) for name in ("n0", "n1")]
        self.until_event(nodes[0], "generation_running")
        return nodes

    def test_a_hiccup_costs_nothing(self):
        nodes = self.job_with({"do": "partition", "for": "1s"})
        self.until_event(nodes[0], "chaos_fired")
        self.let_go(0)
        self.assertEqual([node.code() for node in nodes], [0, 0], nodes[1].err)
        self.assertEqual(self.events(nodes[0], "node_left"), [])

    def lost_and_put_out(self, direction):
        nodes = self.job_with({"do": "partition", "for": "5s", "direction": direction}, "1:2")
        self.until_event(nodes[0], "generation_running", generation=1)
        (left,) = self.events(nodes[0], "node_left")
        self.assertEqual((left["node"], left["reason"]), ("n1", "lost"))
        self.assertEqual(nodes[1].code(), 77, nodes[1].err)
        self.let_go(1)
        self.assertEqual(nodes[0].code(), 0, nodes[0].err)

    def test_a_cut_node_is_lost_and_put_out_when_it_is_back(self):
        self.lost_and_put_out("both")

    def test_a_node_that_is_not_heard_is_lost_and_put_out(self):
        self.lost_and_put_out("out")

    def test_a_delay_below_the_time_out_costs_nothing(self):
        nodes = self.job_with({"do": "delay", "by": "300ms", "for": "1m"})
        self.until_event(nodes[0], "chaos_fired")
        self.let_go(0)
        self.assertEqual([node.code() for node in nodes], [0, 0], nodes[1].err)
        self.assertEqual(self.events(nodes[0], "node_left"), [])


class Operate(MusterCase):
    def test_status_and_stop_find_the_live_job(self):
        job = self.run_job("--standalone", "--nproc-per-node", "2",
                           self.script("trap 'exit 0' TERM\ntouch up.$RANK\n"
                                       "while :; do sleep 0.01; done\n"))
        self.until_event(job, "generation_running")
        until(lambda: all(os.path.exists(self.path(f"up.{r}")) for r in range(2)), "both traps")
        status = self.muster("status", "--json")
        self.assertEqual(status.code(), 0, status.err)
        described = json.loads(status.out)
        self.assertEqual(described["schema"], 1)
        server = described["server"]
        self.assertEqual(self.muster("version").code(), 0)
        self.assertEqual(f"muster {server['version']}\n", self.processes[-1].out)
        for key in ("instance", "host", "user", "pid"):
            self.assertTrue(server[key], key)
        text = self.muster("status")
        self.assertEqual(text.code(), 0, text.err)
        self.assertIn("running", text.out)
        stop = self.muster("stop")
        self.assertEqual(stop.code(), 0, stop.err)
        self.assertEqual(job.code(), 143, job.err)
        self.assertEqual(self.events(job, "job_finished")[0]["outcome"], "stopped")
        nobody = self.muster("status")
        self.assertEqual(nobody.code(), 2, nobody.err)

    def test_status_tells_what_failures_cost(self):
        plan = [{"do": "kill", "when": {"after": "0s"}, "on": {"rank": 0}}]
        job = self.run_job("--standalone", "--max-restarts", "1", "--chaos", json.dumps(plan),
                           self.script("while [ ! -e go ]; do sleep 0.01; done\n"))
        (told,) = self.until_event(job, "recovered")
        asked = self.muster("status", "--json")
        self.assertEqual(asked.code(), 0, asked.err)
        (shown,) = json.loads(asked.out)["jobs"]
        self.assertEqual(shown["recoveries"]["count"], 1)
        for part in ("detect", "stop", "form", "spawn", "total"):
            self.assertAlmostEqual(shown["recoveries"][f"median_{part}_s"], told[f"{part}_s"], 6)
        self.assertTrue(0 < shown["goodput"] <= 1, shown)
        asked = self.muster("status")
        self.assertEqual(asked.code(), 0)
        self.assertIn("recovered 1 time, in ", asked.out)
        open(self.path("go"), "w", encoding="utf-8").close()
        self.assertEqual(job.code(), 0, job.err)

    def test_two_live_jobs_are_listed(self):
        script = self.script("touch up.$1\nwhile [ ! -e go ]; do sleep 0.01; done\n")
        jobs = [self.run_job("--standalone", script, name) for name in ("a", "b")]
        for job in jobs:
            self.until_event(job, "generation_running")
        status = self.muster("status")
        self.assertEqual(status.code(), 2)
        job_ids = {self.events(job, "job_started")[0]["job"] for job in jobs}
        for name in job_ids:
            self.assertIn(name, status.out + status.err)
        one = self.muster("status", "--job", sorted(job_ids)[0], "--json")
        self.assertEqual(one.code(), 0, one.err)
        open(self.path("go"), "w", encoding="utf-8").close()
        self.assertEqual([job.code() for job in jobs], [0, 0])


if __name__ == "__main__":
    main()
