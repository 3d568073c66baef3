#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The main job, small: a real model under `muster run`, killed and compared bit for bit."""
import json
import os
import signal
import subprocess

from harness import SOURCE, TRAIN, MusterCase, free_port, main

CONFIG = os.path.join(SOURCE, "configs", "gpt-nano.json")


class Training(MusterCase):
    def setUp(self):
        super().setUp()
        self.corpus = self.make_corpus()

    def trainer(self, folder, *settings):
        arguments = [TRAIN, "--config", CONFIG, "--set", f"data.path={self.corpus}",
                     "--set", f"checkpoint.dir={self.path(folder)}",
                     "--set", "checkpoint.every_steps=5", "--set", "steps=20"]
        for setting in settings:
            arguments += ["--set", setting]
        return arguments

    @staticmethod
    def last_line(text):
        return json.loads(text.strip().splitlines()[-1])

    def train(self, folder, *settings, launcher=(), workers=2):
        job = self.run_job("--standalone", "--nproc-per-node", str(workers), "--max-restarts", "3",
                           *launcher, "--", *self.trainer(folder, *settings))
        self.assertEqual(job.code(180), 0, job.err)
        last = self.last_line(job.out)
        self.assertTrue(last["done"], last)
        self.assertEqual(last["step"], 20)
        return job, last

    def test_a_killed_rank_changes_nothing(self):
        plan = '[{"do":"kill","when":{"step":13},"on":{"rank":1}}]'
        for settings in ((), ("bf16.enabled=true",), ("fp16.enabled=true",)):
            with self.subTest(settings=settings):
                name = settings[0] if settings else "fp32"
                job, killed = self.train(f"killed.{name}", *settings, launcher=("--chaos", plan))
                self.assertEqual(len(self.events(job, "chaos_fired")), 1)
                self.assertEqual(len(self.events(job, "recovered")), 1)
                _, undisturbed = self.train(f"undisturbed.{name}", *settings)
                self.assertEqual(killed["param_hash"], undisturbed["param_hash"])
                self.assertEqual(killed["loss"], undisturbed["loss"])

    def test_ranks_of_different_processors_give_the_same_bits(self):
        def job(name, allowed, *settings):
            script = self.script(f'export ONEDNN_MAX_CPU_ISA="$(echo {allowed} | cut -d, -f $((RANK + 1)))"\n'
                                 'exec "$@"\n', f"{name}.sh")
            run = self.run_job("--standalone", "--nproc-per-node", "2", "--", script,
                               *self.trainer(name, "steps=5", *settings))
            self.assertEqual(run.code(180), 0, run.err)
            return run, self.last_line(run.out)["param_hash"]
        _, old = job("old", "SSE41,SSE41")
        mixed, lowered = job("mixed", "ALL,SSE41")
        self.assertEqual(lowered, old)
        self.assertIn("matrix products use sse41 on all of them", mixed.err)
        self.assertNotIn("another instruction set", mixed.err)
        free, _ = job("free", "ALL,SSE41", "parallel.deterministic=false")
        self.assertIn("another instruction set than rank 0's", free.err)

    def test_a_planned_stop_saves_and_resumes(self):
        job = self.run_job("--standalone", "--nproc-per-node", "2", "--",
                           *self.trainer("stopped", "steps=2000", "checkpoint.every_steps=1000"))
        self.until_lines(job, 3)
        job.signal(signal.SIGTERM)
        self.assertEqual(job.code(), 143, job.err)
        saved = [name for name in os.listdir(self.path("stopped")) if name.startswith("step-")]
        self.assertEqual(len([name for name in saved if ".tmp" not in name]), 1, saved)

    def test_the_survivor_of_a_kill_ends_with_81_and_takes_no_blame(self):
        for victim in (0, 1):
            with self.subTest(victim=victim):
                job = self.run_job("--standalone", "--nproc-per-node", "2", "--",
                                   *self.trainer(f"survivor.{victim}", "steps=2000"))
                self.until_lines(job, 3)
                os.kill(self.events(job, "worker_started", rank=victim)[0]["pid"], signal.SIGKILL)
                self.assertEqual(job.code(), 137, job.err)
                cause = self.events(job, "generation_failed")[0]["first_cause"]
                self.assertEqual((cause["rank"], cause["signal"]), (victim, "SIGKILL"))
                survivor = self.events(job, "worker_exited", rank=1 - victim)[0]
                self.assertEqual(survivor.get("exit_code"), 81, survivor)

    def until_lines(self, job, count):
        from harness import until
        until(lambda: job.out.count('"loss"') >= count, f"{count} training steps")

    def test_without_a_launcher(self):
        done = subprocess.run(self.trainer("alone"), capture_output=True, text=True, cwd=self.folder,
                              env=self.environment, check=False, timeout=180)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(self.last_line(done.stdout)["done"])

    def test_two_nodes(self):
        port = free_port()
        nodes = [self.run_job("--nnodes", "2", "--nproc-per-node", "1", "--rdzv-id", "job",
                              "--rdzv-endpoint", f"127.0.0.2:{port}", "--node-rank", str(rank),
                              "--advertise-addr", f"127.0.0.{2 + rank}", "--",
                              *self.trainer("two")) for rank in (0, 1)]
        self.assertEqual([node.code(180) for node in nodes], [0, 0], nodes[0].err + nodes[1].err)
        two = self.last_line(nodes[0].out)["param_hash"]
        _, one = self.train("one")
        self.assertEqual(two, one["param_hash"])

    def test_bad_configuration_is_2_and_one_line(self):
        for setting, word in (("model.n_head=3", "n_head"), ("no.such=1", "no"),
                              ("steps=\"many\"", "steps"), ("data.path=/no/such/corpus", "/no/such")):
            with self.subTest(setting=setting):
                done = subprocess.run(self.trainer("bad", setting), capture_output=True, text=True,
                                      cwd=self.folder, env=self.environment, check=False, timeout=60)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(word, done.stderr)
                self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)


if __name__ == "__main__":
    main()
