#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Unmodified PyTorch programs: gloo, data-parallel training with a crash, error files, data
loaders, wrappers. Debian's python3-torch (1.13), which only /usr/bin/python3 sees."""
import json
import os
import signal
import subprocess
import unittest

from harness import MUSTER, SOURCE, Process, MusterCase, alive, free_port, main, until

PYTHON = "/usr/bin/python3"
PROGRAMS = os.path.join(SOURCE, "tests", "integration", "pytorch")


def has_torch():
    try:
        return subprocess.run([PYTHON, "-c", "import torch.distributed"], check=False,
                              capture_output=True).returncode == 0
    except OSError:
        return False


def setUpModule():
    if not has_torch():
        raise unittest.SkipTest(f"{PYTHON} has no torch (Debian's package python3-torch)")


def program(name):
    return os.path.join(PROGRAMS, name)


class TorchCase(MusterCase):
    """`nodes` is 1 or 2; every node runs two workers, or one where there are two nodes."""

    def launch(self, nodes, *arguments, **options):
        if nodes == 1:
            return [self.run_job("--standalone", "--nproc-per-node", "2", "--python", PYTHON,
                                 *arguments, **options)]
        port = free_port()
        return [self.run_job("--nnodes", "2", "--rdzv-endpoint", f"127.0.0.2:{port}",
                             "--node-name", f"n{rank}", "--node-rank", str(rank),
                             "--advertise-addr", f"127.0.0.{2 + rank}", "--python", PYTHON,
                             *arguments, **options)
                for rank in range(2)]

    def end_well(self, jobs):
        for job in jobs:
            self.assertEqual(job.code(), 0, job.err)

    def train(self, nodes, manner, *arguments):
        """Trains in a folder of its own and returns the hash of what was learnt."""
        folder = self.path(f"{manner}.{nodes}")
        os.mkdir(folder)
        jobs = self.launch(nodes, *arguments, program("train.py"), folder, manner)
        self.end_well(jobs)
        with open(os.path.join(folder, "hash"), encoding="ascii") as file:
            return file.read(), jobs


class Training(TorchCase):
    def test_all_reduce(self):
        for nodes in (1, 2):
            self.end_well(self.launch(nodes, program("all_reduce.py")))
            for rank in range(2):
                self.assertEqual(self.read(f"sum.{rank}"), "3.0 2")
                os.remove(self.path(f"sum.{rank}"))

    def test_a_crash_costs_nothing_of_what_was_learnt(self):
        calm, _ = self.train(1, "calm")
        for nodes in (1, 2):
            for manner in ("exit", "kill"):
                learnt, jobs = self.train(nodes, manner, "--max-restarts", "1")
                self.assertEqual(learnt, calm, f"{manner} on {nodes} nodes: {jobs[0].err}")
                cause = self.events(jobs[0], "generation_failed")[0]["first_cause"]
                self.assertEqual(cause["rank"], 1, jobs[0].err)

    def test_an_exception_is_told(self):
        own = self.path("own.json")
        folder = self.path("raise")
        os.mkdir(folder)
        job = self.launch(1, "--log-dir", self.path("logs"), program("train.py"), folder, "raise",
                          environment={"TORCHELASTIC_ERROR_FILE": own})[0]
        self.assertEqual(job.code(), 1, job.err)
        self.assertRegex(job.err, r"first cause: rank 1 \(.*\): exit code 1\n")
        self.assertIn("  it reported: ValueError: the batch is rotten\n", job.err)
        with open(own, encoding="utf-8") as file:
            self.assertIn("the batch is rotten", json.load(file)["message"]["message"])
        found = [os.path.join(where, "error.json")
                 for where, _, names in os.walk(self.path("logs")) if "error.json" in names]
        self.assertTrue(any("/gen-0/rank-1/" in path for path in found), found)

    def test_a_rank_that_hangs_is_found_by_its_progress(self):
        job = self.launch(1, "--hang-timeout", "2s,60s", "--max-restarts", "1", "--log-dir",
                          self.path("logs"), program("progress_loop.py"),
                          os.path.join(SOURCE, "worker_runtime"))[0]
        self.assertEqual(job.code(), 0, job.err)
        cause = self.events(job, "generation_failed")[0]["first_cause"]
        self.assertEqual((cause["kind"], cause["rank"]), ("hang", 1), job.err)
        self.assertTrue(os.path.exists(cause["stacks"]), cause)


class Surroundings(TorchCase):
    def test_data_loaders(self):
        self.end_well(self.launch(1, program("loader.py")))
        for rank in range(2):
            self.assertEqual(self.read(f"total.{rank}"), "496.0")

    def test_data_loaders_end_with_a_killed_rank(self):
        job = self.run_job("--standalone", "--python", PYTHON, program("loader.py"), "wait")
        until(lambda: os.path.exists(self.path("half")), "the middle of the data")
        pid = int(self.read("half"))
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            loaders = [int(word) for word in file.read().split()]
        self.assertGreaterEqual(len(loaders), 2)
        os.kill(pid, signal.SIGKILL)
        self.assertEqual(job.code(), 137, job.err)
        self.assertEqual([loader for loader in loaders if alive(loader)], [])

    def wrapper(self):
        return self.script(f'export WRAPPED=1\n{PYTHON} "$@"\n', "wrapper.sh")

    def test_a_wrapper_passes_a_failure_on(self):
        folder = self.path("wrapped")
        os.mkdir(folder)
        job = self.run_job("--standalone", self.wrapper(), program("train.py"), folder, "exit")
        self.assertEqual(job.code(), 7, job.err)

    def test_a_wrapper_and_what_it_wraps_are_stopped(self):
        job = self.run_job("--standalone", self.wrapper(), program("loader.py"), "wait")
        until(lambda: os.path.exists(self.path("half")), "the middle of the data")
        pid = int(self.read("half"))
        job.signal(signal.SIGTERM)
        self.assertEqual(job.code(), 143, job.err)
        self.assertFalse(alive(pid))

    def test_a_job_within_a_job(self):
        # The outer job's variables are of another world of ranks.
        os.mkdir(self.path("inner"))
        outer = self.script(f"[ $RANK = 1 ] || exit 0\nexec {MUSTER} run --standalone "
                            f"--nproc-per-node 3 --python {PYTHON} {program('variables.py')} "
                            f"{self.path('inner')}\n")
        job = self.run_job("--standalone", "--nproc-per-node", "2", "--rdzv-id", "outer",
                           "--max-restarts", "4", "--role", "outer", outer,
                           environment={"PET_NNODES": "1", "PET_NPROC_PER_NODE": "9"})
        self.assertEqual(job.code(), 0, job.err)
        for rank in range(3):
            with open(self.path(f"inner/env.{rank}.json"), encoding="utf-8") as file:
                env = json.load(file)
            expected = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "3",
                        "LOCAL_WORLD_SIZE": "3", "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1",
                        "ROLE_RANK": str(rank), "ROLE_WORLD_SIZE": "3", "ROLE_NAME": "default",
                        "TORCHELASTIC_MAX_RESTARTS": "0", "TORCHELASTIC_RESTART_COUNT": "0",
                        "MUSTER_GENERATION": "0", "MASTER_ADDR": "127.0.0.1"}
            self.assertEqual({name: env.get(name) for name in expected}, expected)
            self.assertNotEqual(env["TORCHELASTIC_RUN_ID"], "outer")
            self.assertEqual(env["MUSTER_JOB_ID"], env["TORCHELASTIC_RUN_ID"])
        self.assertIn("inherited PET_ variables are ignored", job.err)


if __name__ == "__main__":
    main()
