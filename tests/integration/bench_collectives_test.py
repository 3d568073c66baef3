#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`muster-train bench-collectives` under `muster run`: on the CPU, and on CUDA devices that are not
there (muster-train-fake)."""
import json
import os
import signal
import subprocess

from harness import BIN, TRAIN, MusterCase, free_port, main, until

FAKE = os.path.join(BIN, "muster-train-fake")


class BenchCollectives(MusterCase):
    def setUp(self):
        super().setUp()
        os.mkdir(self.path("nccl"))
        self.environment["FAKE_NCCL_DIRECTORY"] = self.path("nccl")

    def start(self, *options, ranks=2, program=TRAIN, launcher=(), size="64K"):
        return self.run_job("--standalone", "--nproc-per-node", str(ranks), *launcher, "--",
                            program, "bench-collectives", "--max-bytes", size, *options)

    @staticmethod
    def rows(text):
        """The fields of the table's rows."""
        return [line.split() for line in text.splitlines() if not line.startswith("#")]

    def check(self, job, backend, ranks, kind="fp32", least=8, most=65536):
        self.assertEqual(job.code(120), 0, job.err)
        self.assertIn(f"# all-reduce, sum; {ranks} ranks, backend {backend}", job.out)
        self.assertIn(f"#   rank {ranks - 1}: ", job.out)
        rows = self.rows(job.out)
        self.assertEqual(int(rows[0][0]), least)
        self.assertEqual(int(rows[-1][0]), most)
        for size, count, name, time_us, algbw, busbw, wrong in rows:
            self.assertEqual(int(size), int(count) * (4 if kind == "fp32" else 2))
            self.assertEqual((name, wrong), (kind, "0"))
            self.assertGreater(float(time_us), 0)
            self.assertGreaterEqual(float(busbw) + 0.001, float(algbw))
        self.assertIn("# wrong results: 0", job.out)
        # Rank 0 alone prints.
        self.assertEqual(job.out.count("# average bus bandwidth: "), 1)

    def test_on_the_cpu_with_every_type(self):
        for ranks in (2, 3):
            for kind in ("fp32", "bf16", "fp16"):
                with self.subTest(ranks=ranks, kind=kind):
                    job = self.start("--dtype", kind, "--device", "cpu", "--iterations", "3",
                                     ranks=ranks)
                    self.check(job, "tcp", ranks, kind)

    def test_auto_without_devices_says_why_it_is_the_cpu(self):
        self.environment["FAKE_DEVICES"] = "0"
        job = self.start("--iterations", "1", program=FAKE)
        self.check(job, "tcp", 2)
        self.assertIn("device auto: the CPU, since ", job.err)

    def test_on_devices_by_either_way(self):
        for backend, ranks in (("nccl", 2), ("nccl", 3), ("staged", 2), ("staged", 3)):
            for kind in ("fp32", "bf16"):
                with self.subTest(backend=backend, ranks=ranks, kind=kind):
                    job = self.start("--backend", backend, "--dtype", kind, "--iterations", "2",
                                     "--warmup", "1", "--factor", "8", ranks=ranks, program=FAKE,
                                     size="32K")
                    self.check(job, backend, ranks, kind, most=32768)
                    self.assertIn("device 0, Fake GPU", job.out)

    def test_auto_takes_nccl_or_says_why_not(self):
        options = ("--iterations", "1", "--warmup", "0", "--factor", "8")
        self.check(self.start(*options, program=FAKE, size="4K"), "nccl", 2, most=4096)
        self.environment["FAKE_DEVICES"] = "1"
        shared = self.start(*options, program=FAKE, size="4K")
        self.check(shared, "staged", 2, most=4096)
        self.assertIn("ranks 0 and 1 are on one GPU", shared.err)
        refused = self.start(*options, "--backend", "nccl", program=FAKE)
        self.assertEqual(refused.code(60), 85, refused.err)
        self.assertIn("--backend nccl: ranks 0 and 1 are on one GPU", refused.err)

    def test_wrong_sums_end_with_86_and_name_the_rank(self):
        self.environment["FAKE_NCCL_SPOILS"] = "1"
        job = self.start("--backend", "nccl", "--iterations", "1", "--factor", "8", program=FAKE,
                         size="4K")
        self.assertEqual(job.code(60), 86, job.err)
        self.assertEqual({row[-1] for row in self.rows(job.out)}, {"1"})
        self.assertIn("# wrong results: 4", job.out)
        self.assertIn("4 results are wrong (rank 1: 4)", job.err)
        cause = self.events(job, "generation_failed")[0]["first_cause"]
        self.assertEqual((cause["exit_code"], cause["rank"]), (86, 1))

    def test_json_on_standard_output_and_the_table_beside_it(self):
        job = self.start("--json", "--device", "cpu", "--iterations", "2", "--factor", "4")
        self.assertEqual(job.code(60), 0, job.err)
        lines = [json.loads(line) for line in job.out.splitlines()]
        self.assertEqual([line["bytes"] for line in lines[:-1]],
                         [8, 32, 128, 512, 2048, 8192, 32768])
        for line in lines[:-1]:
            self.assertEqual((line["ranks"], line["backend"], line["wrong"]), (2, "tcp", 0))
        self.assertTrue(lines[-1]["done"])
        self.assertEqual(lines[-1]["sizes"], 7)
        self.assertIn("# average bus bandwidth: ", job.err)

    def test_two_nodes(self):
        port = free_port()
        nodes = [self.run_job("--nnodes", "2", "--nproc-per-node", "1", "--rdzv-id", "job",
                              "--rdzv-endpoint", f"127.0.0.2:{port}", "--node-rank", str(rank),
                              "--advertise-addr", f"127.0.0.{2 + rank}", "--",
                              TRAIN, "bench-collectives", "--device", "cpu", "--max-bytes", "64K",
                              "--iterations", "2") for rank in (0, 1)]
        self.check(nodes[0], "tcp", 2)
        self.assertEqual(nodes[1].code(60), 0, nodes[1].err)
        self.assertEqual(nodes[1].out, "")

    def test_the_survivor_of_a_kill_ends_with_81_and_takes_no_blame(self):
        plan = '[{"do":"kill","when":{"step":3},"on":{"rank":1}}]'
        job = self.start("--device", "cpu", launcher=("--chaos", plan))
        self.assertEqual(job.code(60), 137, job.err)
        cause = self.events(job, "generation_failed")[0]["first_cause"]
        self.assertEqual((cause["rank"], cause["signal"]), (1, "SIGKILL"))
        survivor = self.events(job, "worker_exited", rank=0)[0]
        self.assertEqual(survivor.get("exit_code"), 81, survivor)

    def test_asked_to_stop_all_ranks_end_after_the_size(self):
        job = self.start("--device", "cpu", "--iterations", "500", size="16M")
        until(lambda: self.rows(job.out), "the first row")
        job.signal(signal.SIGTERM)
        self.assertEqual(job.code(), 143, job.err)
        self.assertIn("# stopped on request", job.out)
        for rank in (0, 1):
            exited = self.events(job, "worker_exited", rank=rank)[0]
            self.assertEqual(exited.get("exit_code"), 143, exited)

    def test_ranks_with_different_options_are_refused(self):
        script = self.script('exec "$@" --iterations "$((RANK + 1))"\n')
        job = self.run_job("--standalone", "--nproc-per-node", "2", "--", script, TRAIN,
                           "bench-collectives", "--max-bytes", "64K")
        self.assertEqual(job.code(60), 2, job.err)
        self.assertIn("rank 1 and rank 0 have different options", job.err)

    def alone(self, *arguments):
        return subprocess.run([TRAIN, "bench-collectives", *arguments], capture_output=True,
                              text=True, cwd=self.folder, env=self.environment, check=False,
                              timeout=60)

    def test_one_rank_without_a_launcher(self):
        done = self.alone("--device", "cpu", "--max-bytes", "1K", "--iterations", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("1 rank, backend none", done.stdout)
        self.assertIn("# average bus bandwidth: 0.000 GB/s", done.stdout)

    def test_help_teaches_and_mistakes_are_2_and_one_line(self):
        shown = self.alone("--help")
        self.assertEqual(shown.returncode, 0, shown.stderr)
        for word in ("--min-bytes", "2(n-1)/n", "muster run --nnodes 2", "86 wrong"):
            self.assertIn(word, shown.stdout)
        for option, word in (("--factor=1", "2 or more"), ("--min-bytes=8X", "K, M or G"),
                             ("--itrations=3", "did you mean --iterations?"),
                             ("--backend=mpi", "auto, tcp, staged or nccl")):
            with self.subTest(option=option):
                done = self.alone(option)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(word, done.stderr)
                self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        mistyped = subprocess.run([TRAIN, "bench-colectives"], capture_output=True, text=True,
                                  cwd=self.folder, env=self.environment, check=False, timeout=60)
        self.assertEqual(mistyped.returncode, 2)
        self.assertIn("did you mean bench-collectives?", mistyped.stderr)


if __name__ == "__main__":
    main()
