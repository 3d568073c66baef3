#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training on CUDA devices that are not there (muster-train-fake): real processes under `muster
run`, killed and compared bit for bit."""
import json
import os
import signal

from harness import BIN, SOURCE, MusterCase, main, until

CONFIG = os.path.join(SOURCE, "configs", "gpt-nano.json")
TRAIN = os.path.join(BIN, "muster-train-fake")


class CudaTraining(MusterCase):
    def setUp(self):
        super().setUp()
        self.corpus = self.make_corpus()
        os.mkdir(self.path("nccl"))
        self.environment["FAKE_NCCL_DIRECTORY"] = self.path("nccl")

    def start(self, folder, *settings, launcher=(), workers=2, program=(TRAIN,)):
        arguments = [*program, "--config", CONFIG]
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

    def refused(self, line, *settings):
        job = self.start("refused", *settings)
        self.assertEqual(job.code(60), 85, job.err)
        cause = self.events(job, "generation_failed")[0]["first_cause"]
        self.assertEqual(cause["exit_code"], 85)
        self.assertIn(line, job.err)

    def recovered(self, folder, code=83, **faults):
        """A job whose first generation has faults of NCCL: gives what the rank that ended with `code`
        left in its error file, and what the job said, once a restart has ended as the job without
        faults does."""
        _, calm = self.train(f"{folder}.calm")
        script = self.script('"$@"\ncode=$?\n'
                             f'cp "$TORCHELASTIC_ERROR_FILE" "{self.path(folder)}.$RANK.json"\n'
                             'exit $code\n')
        self.environment.update(faults)
        job = self.start(folder, "parallel.backend=nccl", program=(script, TRAIN))
        self.assertEqual(job.code(180), 0, job.err)
        self.assertEqual(json.loads(job.out.strip().splitlines()[-1])["param_hash"], calm)
        failed = self.events(job, "generation_failed")
        self.assertEqual(len(failed), 1, job.err)
        cause = failed[0]["first_cause"]
        self.assertEqual(cause["exit_code"], code, job.err)
        with open(f"{self.path(folder)}.{cause['rank']}.json", encoding="utf-8") as file:
            error = json.load(file)
        self.assertNotIn("secondary", error)
        self.assertEqual(error["message"]["errorCode"], code)
        # The other one had read the reason in the store, or was stopped while it did.
        for victim in failed[0]["victims"]:
            self.assertIn(victim.get("exit_code", 81), (81, 143), victim)
        return error["message"]["message"], job.err

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
        before = os.listdir(self.path("nccl"))
        self.refused("ranks 0 and 1 are on one GPU", "parallel.backend=nccl")
        self.assertEqual(os.listdir(self.path("nccl")), before, "NCCL was asked")

    def test_ranks_whose_libraries_differ_are_refused_and_told_what_to_install(self):
        self.environment["FAKE_NCCL_VERSION"] = "1:22705"
        self.refused(") has NCCL 2.27.5, rank 0 (", "parallel.backend=nccl")
        job, _ = self.train("otherwise")
        self.assertIn("gradients go through host memory", job.err)
        self.assertIn(": install the same version on all hosts (package libnccl2)", job.err)
        self.environment["FAKE_BLAS_OTHERWISE"] = "1"
        self.refused("rank 1 and rank 0 multiply by different algorithms (cublaslt 130000 ")

    def test_a_driver_older_than_the_libraries_is_refused_before_anything_is_computed(self):
        self.environment["FAKE_DRIVER"] = "12040"
        self.refused("has CUDA 13.x libraries and a driver for CUDA 12.4: install driver 580 or "
                     "newer, or libraries for CUDA 12.x there")

    def test_more_heads_than_a_launch_takes_are_refused_by_name(self):
        job = self.start("heads", "train_micro_batch_size_per_gpu=16400",
                         "train_batch_size=32800", "model.n_head=4", "model.n_embd=16",
                         "model.n_ctx=2")
        self.assertNotEqual(job.code(60), 0, job.err)
        self.assertIn("train_micro_batch_size_per_gpu * model.n_head is 16400 * 4", job.err)

    def test_a_rank_that_never_comes_to_the_communicator(self):
        message, _ = self.recovered("absent", FAKE_NCCL_ABSENT="1",
                                    FAKE_NCCL_LIMITS="3000:60000:5000")
        self.assertIn("NCCL's communicator was not ready within 3s", message)

    def test_a_collective_that_hangs(self):
        message, _ = self.recovered("hangs", FAKE_NCCL_HANGS="1:1",
                                    FAKE_NCCL_LIMITS="60000:3000:5000")
        self.assertRegex(message, r"all-reduce 1 \(f32 x \d+\) did not (end|begin) within 3s")

    def test_an_asynchronous_error(self):
        message, _ = self.recovered("failed", code=85, FAKE_NCCL_FAILS="1:3:1")
        self.assertRegex(message, r"NCCL: .*all-reduce 3 \(f32 x \d+\)$")

    def test_collectives_that_are_in_progress_for_a_while_change_nothing(self):
        _, calm = self.train("calm", "parallel.backend=nccl")
        self.environment["FAKE_NCCL_SLOW"] = "3"
        self.assertEqual(self.train("slow", "parallel.backend=nccl")[1], calm)

    def test_an_abort_that_hangs_too(self):
        message, said = self.recovered("stuck", FAKE_NCCL_HANGS="1:1", FAKE_NCCL_ABORTS="hang",
                                       FAKE_NCCL_LIMITS="60000:3000:1000")
        self.assertRegex(message, r"all-reduce 1 \(f32 x \d+\) did not (end|begin) within 3s")
        self.assertIn("its communicator's abort did not return within 1s", said)

    def test_asked_to_stop_a_rank_gives_up_peers_that_do_not_come(self):
        self.environment["FAKE_NCCL_HANGS"] = "1:19"
        job = self.start("stopped", "parallel.backend=nccl", "steps=100000",
                         launcher=("--stop-grace", "120s"))
        until(lambda: any(name.endswith(".19.0") for name in os.listdir(self.path("nccl"))),
              "rank 0 in the collective that rank 1 does not begin")
        job.signal(signal.SIGTERM)
        self.assertEqual(job.code(60), 143, job.err)
        self.assertIn("asked to stop, but no other rank came to all-reduce", job.err)

    def test_heads_that_no_kernel_takes_are_left_to_the_cpu_or_refused(self):
        large = ("model.n_embd=512", "model.n_head=1", "steps=1")
        self.refused("device cuda: heads have 512 elements", *large)
        job, _ = self.train("large", "device=auto", *large)
        self.assertIn("device auto: the CPU, since heads have 512 elements", job.err)

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
