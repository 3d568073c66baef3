#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training on CUDA devices that are not there (muster-train-fake): real processes under `muster
run`, killed and compared bit for bit."""
import json
import os

from harness import BIN, SOURCE, MusterCase, main

CONFIG = os.path.join(SOURCE, "configs", "gpt-nano.json")
TRAIN = os.path.join(BIN, "muster-train-fake")


class CudaTraining(MusterCase):
    def setUp(self):
        super().setUp()
        self.corpus = self.make_corpus()
        os.mkdir(self.path("nccl"))
        self.environment["FAKE_NCCL_DIRECTORY"] = self.path("nccl")

    def start(self, folder, *settings, launcher=(), workers=2):
        arguments = [TRAIN, "--config", CONFIG]
        for setting in (f"data.path={self.corpus}", f"checkpoint.dir={self.path(folder)}",
                        "checkpoint.every_steps=3", "steps=8", "device=cuda",
                        "parallel.deterministic=false", "parallel.bucket_mb=0.1",
                        "model.n_layer=1", "model.n_embd=32", "model.n_ctx=32", *settings):
            arguments += ["--set", setting]
        return self.run_job("--standalone", "--nproc-per-node", str(workers), "--max-restarts", "2",
                            *launcher, "--", *arguments)

    def train(self, folder, *settings, launcher=(), workers=2):
        job = self.start(folder, *settings, launcher=launcher, workers=workers)
        self.assertEqual(job.code(180), 0, job.err)
        last = json.loads(job.out.strip().splitlines()[-1])
        self.assertTrue(last["done"], last)
        return job, last["param_hash"]

    def test_a_killed_rank_changes_nothing(self):
        calm, undisturbed = self.train("calm", "bf16.enabled=true")
        self.assertIn("device cuda: Fake GPU", calm.err)
        for backend in ("nccl", "staged"):
            for victim in (0, 1):
                with self.subTest(backend=backend, victim=victim):
                    plan = json.dumps([{"do": "kill", "when": {"step": 5}, "on": {"rank": victim}}])
                    job, killed = self.train(f"{backend}.{victim}", "bf16.enabled=true",
                                             f"parallel.backend={backend}",
                                             launcher=("--chaos", plan))
                    self.assertEqual(len(self.events(job, "recovered")), 1)
                    self.assertEqual(killed, undisturbed)

    def test_ranks_that_share_a_device_go_through_host_memory_and_say_so(self):
        _, apart = self.train("apart")
        self.environment["FAKE_DEVICES"] = "1"
        job, together = self.train("together")
        self.assertEqual(together, apart)
        self.assertIn("gradients go through host memory", job.err)
        self.assertIn("ranks 0 and 1 are on one GPU", job.err)
        refused = self.start("refused", "parallel.backend=nccl")
        self.assertEqual(refused.code(60), 85, refused.err)
        cause = self.events(refused, "generation_failed")[0]["first_cause"]
        self.assertEqual(cause["exit_code"], 85)
        self.assertIn("ranks 0 and 1 are on one GPU", refused.err)

    def test_the_world_size_leaves_no_trace_where_that_is_asked_for(self):
        hashes = {self.train(f"of.{workers}", "parallel.deterministic=true", "fp16.enabled=true",
                             workers=workers)[1] for workers in (1, 3)}
        self.assertEqual(len(hashes), 1)

    def test_a_checkpoint_of_the_cpu_goes_on_on_a_device(self):
        self.train("moved", "device=cpu", "steps=4")
        job, _ = self.train("moved", "steps=8")
        self.assertIn("resuming from", job.err)
        self.assertIn('"step":5,', job.out)


if __name__ == "__main__":
    main()
