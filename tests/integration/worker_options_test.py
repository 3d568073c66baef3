#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What options give to workers: devices, descriptors, a role, a port that is held or not, and what
a `muster run` inside a worker takes from outside."""
import os
import socket
import sys

from harness import MUSTER, MusterCase, main, until

# Blocks until the file is there, so that the test can look meanwhile.
WAIT = "while [ ! -e go ]; do sleep 0.01; done\n"


class WorkerOptions(MusterCase):
    def workers_see(self, *arguments, names, workers=2, environment=None):
        """What each local rank has in its environment under `names`, by rank."""
        show = "".join(f'echo "${{{name}-unset}}" >> seen.$RANK\n' for name in names)
        job = self.run_job("--standalone", "--nproc-per-node", str(workers), *arguments,
                           self.script("rm -f seen.$RANK\n" + show), environment=environment)
        self.assertEqual(job.code(), 0, job.err)
        return [self.read(f"seen.{rank}").split() for rank in range(workers)]

    def test_devices_of_the_node(self):
        names = ("CUDA_VISIBLE_DEVICES", "LOCAL_RANK")
        self.assertEqual(self.workers_see("--devices", "2,0", names=names),
                         [["2,0", "0"], ["2,0", "1"]])
        # Indices count what is visible already.
        self.assertEqual(self.workers_see("--devices=1,0", names=names,
                                          environment={"CUDA_VISIBLE_DEVICES": "4,6,7"}),
                         [["6,4", "0"], ["6,4", "1"]])
        self.assertEqual(self.workers_see(names=names), [["unset", "0"], ["unset", "1"]])

    def test_a_device_for_each_worker(self):
        names = ("CUDA_VISIBLE_DEVICES", "LOCAL_RANK", "RANK")
        self.assertEqual(self.workers_see("--virtual-local-rank", "--devices=1,GPU-77",
                                          names=names),
                         [["1", "0", "0"], ["GPU-77", "0", "1"]])
        self.assertEqual(self.workers_see(names=names, environment={"PET_VIRTUAL_LOCAL_RANK": "1"}),
                         [["0", "0", "0"], ["1", "0", "1"]])

    def test_devices_that_are_not_there(self):
        for arguments, words in (
                (("--devices", "3"),
                 "--devices: there is no device 3: CUDA_VISIBLE_DEVICES='5,6' has 2"),
                (("--virtual-local-rank", "--nproc-per-node", "3"),
                 "--virtual-local-rank: CUDA_VISIBLE_DEVICES='5,6' has 2 for 3 workers")):
            job = self.muster("run", "--standalone", *arguments, "/bin/true",
                              environment={"CUDA_VISIBLE_DEVICES": "5,6"})
            self.assertEqual(job.code(), 2, job.err)
            self.assertIn(words, job.err)

    def test_processors(self):
        usable = sorted(os.sched_getaffinity(0))
        show = self.script("grep Cpus_allowed_list /proc/self/status > cpus.$RANK\n")

        def seen(rank):
            cpus = set()
            for part in self.read(f"cpus.{rank}").split(":")[1].strip().split(","):
                first, _, last = part.partition("-")
                cpus.update(range(int(first), int(last or first) + 1))
            return cpus
        job = self.run_job("--standalone", "--numa-binding", "exclusive", show)
        if "cannot be loaded" in job.err:
            self.skipTest(job.err)
        self.assertEqual(job.code(), 0, job.err)
        self.assertTrue(seen(0) <= set(usable))
        if len(usable) >= 2:
            job = self.run_job("--standalone", "--nproc-per-node", "2", "--numa-binding",
                               "exclusive", show)
            self.assertEqual(job.code(), 0, job.err)
            self.assertTrue(seen(0) and seen(1))
            self.assertFalse(seen(0) & seen(1))
        # What this process may not use no worker gets.
        os.sched_setaffinity(0, usable[:1])
        try:
            job = self.run_job("--standalone", "--nproc-per-node", "2", "--numa-binding", "node",
                               show)
            self.assertEqual(job.code(), 0, job.err)
        finally:
            os.sched_setaffinity(0, usable)
        self.assertEqual((seen(0), seen(1)), (set(usable[:1]), set(usable[:1])))
        job = self.muster("run", "--standalone", "--nproc-per-node", "1000", "--numa-binding",
                          "exclusive", "/bin/true")
        self.assertEqual(job.code(), 2, job.err)
        self.assertRegex(job.err, r"--numa-binding: NUMA node 0 has \d+ cores? for \d+ workers")

    def test_the_role(self):
        self.assertEqual(self.workers_see("--role", "trainer", names=("ROLE_NAME",), workers=1),
                         [["trainer"]])

    def test_descriptors_that_are_kept(self):
        read, write = os.pipe()
        other, unused = os.pipe()
        try:
            job = self.muster("run", "--standalone", "--keep-fds", str(write), self.script(
                f"echo words >&{write}; [ -e /proc/self/fd/{other} ] && exit 9; exit 0\n"),
                pass_fds=(write, other))
            os.close(write)
            self.assertEqual(job.code(), 0, job.err)
            self.assertEqual(os.read(read, 100), b"words\n")
        finally:
            for fd in (read, other, unused):
                os.close(fd)
        job = self.muster("run", "--standalone", "--keep-fds=57", "/bin/true")
        self.assertEqual(job.code(), 2, job.err)
        self.assertIn("--keep-fds: descriptor 57 is not open in the process that started muster",
                      job.err)

    def port_is_free(self, port):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return True
            except OSError:
                return False

    def test_the_master_port_is_held_or_not(self):
        for hold, free in (("yes", False), ("no", True)):
            for name in ("go", "port"):
                if os.path.exists(self.path(name)):
                    os.remove(self.path(name))
            job = self.run_job("--standalone", "--master-port-hold", hold, self.script(
                "echo $MASTER_PORT > port.new; mv port.new port\n" + WAIT))
            until(lambda: os.path.exists(self.path("port")), "the worker")
            self.assertEqual(self.port_is_free(int(self.read("port"))), free, hold)
            open(self.path("go"), "w", encoding="utf-8").close()
            self.assertEqual(job.code(), 0, job.err)

    def test_a_script_whatever_its_name(self):
        path = self.script("", "program.sh")
        with open(path, "w", encoding="utf-8") as file:
            file.write("import sys\nprint('python', sys.argv[1:])\n")
        job = self.muster("run", "--standalone", "--run-path", "--no-python", "--python",
                          sys.executable, path, "a b")
        self.assertEqual(job.code(), 0, job.err)
        self.assertEqual(job.out, "python ['a b']\n")
        self.assertIn("--no-python is ignored: --run-path is given", job.err)
        job = self.muster("run", "--standalone", "--run-path", "nowhere.py")
        self.assertEqual(job.code(), 127, job.err)
        self.assertIn("--run-path nowhere.py: No such file or directory", job.err)

    def test_a_muster_run_in_a_worker(self):
        inner = self.script('echo "$RANK/$WORLD_SIZE $PET_NPROC_PER_NODE" >> inner\n', "inner.sh")
        for flag, lines in (("", ["0/1 3"]), ("--inherit", ["0/3 3", "1/3 3", "2/3 3"])):
            if os.path.exists(self.path("inner")):
                os.remove(self.path("inner"))
            job = self.run_job("--standalone", "--nproc-per-node", "1", self.script(
                f"exec {MUSTER} run {flag} --standalone {inner}\n"),
                environment={"PET_NPROC_PER_NODE": "3"})
            self.assertEqual(job.code(), 0, job.err)
            self.assertEqual(sorted(self.read("inner").splitlines()), lines)
            ignored = "inherited PET_ variables are ignored (--inherit takes them)"
            self.assertEqual(ignored in job.err, not flag, job.err)

    def test_what_is_not_needed_is_named(self):
        job = self.muster("run", "--standalone", "--monitor-interval", "5", "/bin/true")
        self.assertEqual(job.code(), 0, job.err)
        self.assertIn("--monitor-interval is ignored: the end of a worker is seen at once", job.err)


if __name__ == "__main__":
    main()
