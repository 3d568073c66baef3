#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`muster run` on a node with two GPUs that are not there: in a mount namespace with device files,
a driver's folder in /proc, a kernel log, and a libnvidia-ml.so.1 that reads a file."""
import json
import os
import subprocess
import unittest

from harness import BIN, MUSTER, MusterCase, Process, main, until

FAKE = os.path.abspath(os.path.join(BIN, "..", "tests", "fake_nvml"))

# Everything but null and its like is missing in this /dev.
NODE = r"""set -e
mkdir dev; mount -t tmpfs none dev
for each in null zero random urandom; do touch dev/$each; mount --bind /dev/$each dev/$each; done
mkdir dev/shm; ln -s /proc/self/fd dev/fd
touch dev/nvidiactl dev/nvidia0 dev/nvidia1 dev/kmsg
mount --move dev /dev
mount -t tmpfs none /proc/driver
for each in 0000:1b:00.0 0000:1c:00.0; do
  mkdir -p /proc/driver/nvidia/gpus/$each
  printf 'Model: \t\t NVIDIA H200\nIRQ: \t\t 1\n' > /proc/driver/nvidia/gpus/$each/information
done
echo 'NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build' \
  > /proc/driver/nvidia/version
exec "$@"
"""

# Rank 1 of the first generation loses its GPU and leaves its memory behind.
WORKER = r"""
if [ $MUSTER_GENERATION$RANK = 01 ]; then
  printf 'GPU-a 80000 0\nGPU-b 80000 70000 %s\n' $$ > held; mv held devices
  read -r up rest < /proc/uptime
  echo "4,9,${up%.*}000000,-;NVRM: Xid (PCI:0000:1c:00): 79, pid=$$, name=sh, GPU is lost" \
    >> /dev/kmsg
  exit 5
fi
while [ ! -e go ]; do sleep 0.01; done
"""


class GpuNode(MusterCase):
    def node(self, *command):
        """A process on that node."""
        unshare = ["unshare", "--mount", "--propagation", "private"]
        probe = [*unshare, "mount", "-t", "tmpfs", "none", "/proc/driver"]
        if subprocess.run(probe, check=False, capture_output=True).returncode != 0:
            raise unittest.SkipTest("no right to mount")
        environment = {"FAKE_NVML_STATE": self.path("devices"), "LD_LIBRARY_PATH": FAKE}
        return Process(self, [*unshare, "sh", "-c", NODE, "sh", *command], environment)

    def devices(self, text):
        with open(self.path("devices.new"), "w", encoding="utf-8") as file:
            file.write(text)
        os.rename(self.path("devices.new"), self.path("devices"))

    def looks(self):
        try:
            return self.read("devices.calls").count("m")
        except FileNotFoundError:
            return 0

    def test_a_worker_for_each_gpu_and_a_restart_that_waits_for_its_memory(self):
        self.devices("GPU-a 80000 0\nGPU-b 80000 0\n")
        events = self.path("events")
        job = self.node(MUSTER, "run", "--standalone", "--nproc-per-node", "gpu",
                        "--max-restarts", "1", "--events", events, self.script(WORKER))
        job.events_path = events
        self.until_event(job, "generation_formed", generation=1)
        seen = self.looks()
        until(lambda: self.looks() > seen + 4, "more looks at the devices")
        self.assertEqual(len(self.events(job, "worker_started", generation=1)), 0)
        self.devices("GPU-a 80000 0\nGPU-b 80000 0\n")
        self.until_event(job, "generation_running", generation=1)

        status = self.muster("status")
        self.assertEqual(status.code(), 0, status.err)
        self.assertIn("  2 GPUs (NVIDIA H200, driver 580.65.06)\n", status.out)
        report = self.muster("status", "--json")
        self.assertEqual(report.code(), 0, report.err)
        member = json.loads(report.out)["jobs"][0]["members"][0]
        self.assertEqual((member["gpus"], member["gpu"]),
                         (2, "NVIDIA H200, driver 580.65.06"))

        open(self.path("go"), "w", encoding="utf-8").close()
        self.assertEqual(job.code(), 0, job.err)
        self.assertEqual(len(self.events(job, "worker_started")), 4)
        lost = "GPU 0000:1c:00: Xid 79, the GPU has fallen off the bus (pid "
        self.assertIn("exited with code 5: " + lost, job.err)
        (failed,) = self.events(job, "generation_failed")
        self.assertTrue(failed["first_cause"]["detail"].startswith(lost), failed)
        self.assertTrue(self.read("devices.calls").endswith("s"), "let go of the devices")

    def test_the_failure_block_has_the_device(self):
        self.devices("GPU-a 80000 0\nGPU-b 80000 0\n")
        job = self.node(MUSTER, "run", "--standalone", "--nproc-per-node", "gpu",
                        self.script(WORKER))
        self.assertEqual(job.code(), 5, job.err)
        self.assertIn("\n  kernel: GPU 0000:1c:00: Xid 79, ", job.err)
        self.assertEqual(self.looks(), 0)  # no restart: nobody waits

    def test_a_mask_hides_devices(self):
        job = self.node("env", "CUDA_VISIBLE_DEVICES=1", MUSTER, "run", "--standalone",
                        "--nproc-per-node", "auto", self.script("echo $WORLD_SIZE\n"))
        self.assertEqual(job.code(), 0, job.err)
        self.assertEqual(job.out, "1\n")


if __name__ == "__main__":
    main()
