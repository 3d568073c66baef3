#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What ten typical lines of torchrun's users mean here: `muster run --print-config` beside a golden
file each (tests/integration/torchrun_lines; --rewrite writes them anew, to be read as a diff).

A golden file has all that is not a default, with its source, what follows from it, and the lines
that are shown."""
import json
import os
import sys

from harness import SOURCE, MusterCase, main

FOLDER = os.path.join(SOURCE, "tests", "integration", "torchrun_lines")
REWRITE = "--rewrite" in sys.argv

# Name: words after torchrun, and what the pod or the shell has in its environment.
LINES = {
    "one_node": ("--standalone --nproc_per_node=4 train.py --lr 0.1", {}),
    "two_nodes_c10d": ("--nnodes=2 --nproc-per-node=8 --rdzv-id=77 --rdzv-backend=c10d "
                       "--rdzv-endpoint=node0:29400 --max-restarts=3 train.py", {}),
    "static_master": ("--nnodes 2 --node_rank 1 --nproc_per_node 8 --master_addr 10.0.0.1 "
                      "--master_port 1234 train.py", {}),
    "kubeflow_v2": ("train.py", {
        "PET_NNODES": "2", "PET_NPROC_PER_NODE": "4", "PET_NODE_RANK": "1",
        "PET_MASTER_ADDR": "job-node-0-0.job", "PET_MASTER_PORT": "29400"}),
    "kubeflow_v1_elastic": ("train.py", {
        "PET_NNODES": "1:4", "PET_NPROC_PER_NODE": "1", "PET_MAX_RESTARTS": "10",
        "PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "job-worker-0:23456",
        "PET_RDZV_ID": "job", "MASTER_ADDR": "job-master-0", "MASTER_PORT": "23456",
        "WORLD_SIZE": "4", "RANK": "2", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}),
    "accelerate": ("--nnodes 2 --node_rank 0 --nproc_per_node 2 --rdzv_backend static "
                   "--rdzv_conf read_timeout=100,timeout=900 --master_addr a --master_port 29500 "
                   "--no_python ./train.sh --mixed_precision bf16", {}),
    "lightning": ("--nproc_per_node=2 --nnodes=2 --node_rank=1 --rdzv_id=9 --rdzv_backend=c10d "
                  "--rdzv_endpoint=10.0.0.1:29500 --local_addr 10.0.0.2 train.py --devices 2 "
                  "--num_nodes 2", {}),
    "deepspeed_habits": ("--nproc_per_node 2 --master_port 29501 train.py --deepspeed "
                         "--deepspeed_config ds.json", {"CUDA_VISIBLE_DEVICES": "2,3"}),
    "distributed_launch_habits": ("--use_env --nproc_per_node=4 --nnodes=1 --node_rank=0 "
                                  "--master_addr=127.0.0.1 --master_port=1234 train.py", {}),
    "all_the_rest": ("--role trainer --log_dir logs -r 3 -t 0:1 --monitor_interval 5 "
                     "--start_method fork --event_log_handler null --shutdown_timeout 60 "
                     "--signals_to_handle SIGTERM,SIGUSR2 --local_ranks_filter 0 "
                     "--duplicate_stderr_filters ERROR,CUDA --numa_binding node "
                     "--virtual_local_rank -m train.main --epochs 3", {}),
}


class Lines(MusterCase):
    def meaning(self, words, environment):
        job = self.muster("run", "--print-config", *words.split(),
                          environment={"CI": "", **environment})
        self.assertEqual(job.code(), 0, job.err)
        shown = json.loads(job.out)
        options = {name: f"{json.dumps(option['value'])} by {option['source']}"
                   for name, option in shown["options"].items() if option["source"] != "default"}
        derived = shown["derived"]
        words_of = ["python3" if word.endswith("/python3") else word for word in derived["argv"]]
        derived["argv"] = " ".join(words_of)
        derived["ports"] = [f"{port['port']} on {port['on']}: {port['for']}"
                            for port in derived["ports"]]
        return {"line": words, "environment": environment, "options": options,
                "derived": derived, "notes": shown["notes"]}

    def test_each_line(self):
        for name in ("train.py", "train.sh"):
            self.script("", name)
        os.chmod(self.path("train.py"), 0o644)
        for name, (words, environment) in LINES.items():
            path = os.path.join(FOLDER, name + ".json")
            found = json.dumps(self.meaning(words, environment), indent=2) + "\n"
            if REWRITE:
                with open(path, "w", encoding="utf-8") as file:
                    file.write(found)
            with self.subTest(name), open(path, encoding="utf-8") as file:
                self.assertEqual(found, file.read())

    def test_no_other_golden_files(self):
        self.assertEqual(sorted(os.listdir(FOLDER)), sorted(name + ".json" for name in LINES))


if __name__ == "__main__":
    if REWRITE:
        sys.argv.remove("--rewrite")
    main()
