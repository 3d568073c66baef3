#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whoever is killed, stopped or fails: no process, no private file, no entry of the job stays."""
import contextlib
import os
import shutil
import signal
import subprocess
import unittest

from harness import MUSTER, MusterCase, Process, alive, main, until

# A worker whose grandchild leaves session, group and parent behind.
DAEMON = ("(setsid sh -c 'sleep 1000 & echo $! > daemon.'$RANK'; exit 0' &)\n"
          "touch up.$RANK\nexec sleep 1000\n")


class LeftCase(MusterCase):
    def started(self, name="worker.sh"):
        job = self.run_job("--standalone", "--nproc-per-node", "2", self.script(DAEMON, name))
        self.until_event(job, "generation_running")
        return job, self.pids(job)

    def pids(self, job):
        def daemons():
            try:
                return [int(self.read(f"daemon.{rank}")) for rank in range(2)]
            except (OSError, ValueError):
                return None
        daemon = until(daemons, "the daemons")
        return daemon + [event["pid"] for event in self.events(job, "worker_started")]

    def gone(self, pids):
        until(lambda: not any(alive(pid) for pid in pids), f"the end of {pids}", 20)

    def folders(self):
        return sorted(os.listdir(self.scratch))

    def nothing_left(self, job, pids):
        self.gone(pids)
        self.assertEqual(self.folders(), [], job.err)
        self.assertEqual(self.entries(), [], job.err)

    def kill_both(self, job):
        agent = job.agent()
        os.killpg(job.pid, signal.SIGKILL)  # one walk over the group: the same instant
        self.assertEqual(job.code(), 137)
        self.gone([agent])

    def next_start(self):
        job = self.run_job("--standalone", "/bin/true")
        self.assertEqual(job.code(), 0, job.err)
        return job


class NothingLeft(LeftCase):
    def test_agent_killed(self):
        job, pids = self.started()
        self.assertEqual((len(self.folders()), len(self.entries())), (1, 1))
        os.kill(job.agent(), signal.SIGKILL)
        self.assertEqual(job.code(), 70)
        self.nothing_left(job, pids)
        self.assertIn("muster: ", job.err)

    def test_guardian_killed(self):
        job, pids = self.started()
        agent = job.agent()
        job.signal(signal.SIGKILL)
        self.assertEqual(job.code(), 137)
        self.gone([agent])
        self.nothing_left(job, pids)

    def test_both_killed_in_one_instant(self):
        job, pids = self.started()
        self.kill_both(job)
        self.gone(pids[2:])
        self.assertEqual((len(self.folders()), len(self.entries())), (1, 1))
        later = self.next_start()
        self.nothing_left(later, pids)
        self.assertIn("killed 2 process(es) of jobs of this user", later.err)

    def test_stopped(self):
        job, pids = self.started()
        job.signal(signal.SIGTERM)
        self.assertEqual(job.code(), 143)
        self.nothing_left(job, pids)

    def test_worker_failed(self):
        job, pids = self.started()
        os.kill(pids[-1], signal.SIGKILL)
        self.assertEqual(job.code(), 137)
        self.nothing_left(job, pids)


class Frozen(LeftCase):
    """One of the two is stopped (SIGSTOP) when the other dies."""

    @staticmethod
    def freeze(pid):
        os.kill(pid, signal.SIGSTOP)
        def stopped():
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                return file.read().rsplit(")", 1)[1].split()[0] == "T"
        until(stopped, f"process {pid} to stop")

    def test_stopped_agent(self):
        job, pids = self.started()
        agent = job.agent()
        self.freeze(agent)
        job.signal(signal.SIGKILL)
        self.assertEqual(job.code(), 137)
        self.gone([agent])
        self.nothing_left(job, pids)

    def test_stopped_agent_and_three_signals(self):
        # Nobody is there to act on them but the guardian.
        job, pids = self.started()
        self.freeze(job.agent())
        until(lambda: self.told_to_end(job), "the end")
        self.assertEqual(job.code(), 128 + signal.SIGTERM, job.err)
        self.assertIn("did not act on SIGTERM", job.err)
        self.nothing_left(job, pids)

    def test_three_signals_end_it_too_where_nobody_reads_its_lines(self):
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        os.set_blocking(writer, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writer, b"x" * 4096)
        os.set_blocking(writer, True)
        job = Process(self, ["bash", "-c", f'exec "$@" 2>&{writer}', "bash", MUSTER, "run",
                             "--standalone", "--events", self.path("events.full"),
                             "/bin/sleep", "1000"], pass_fds=(writer,))
        os.close(writer)
        until(lambda: os.path.exists(self.path("events.full")) and
              "generation_running" in self.read("events.full"), "the worker")
        self.freeze(job.agent())
        until(lambda: self.told_to_end(job), "the end")
        self.assertEqual(job.code(), 128 + signal.SIGTERM)

    @staticmethod
    def told_to_end(job):
        job.signal(signal.SIGTERM)
        return job.popen.poll() is not None

    def test_stopped_guardian(self):
        job, pids = self.started()
        self.freeze(job.pid)
        os.kill(job.agent(), signal.SIGKILL)
        self.assertEqual(job.code(), 70)
        self.nothing_left(job, pids)

    def test_both_stopped(self):
        for victim, code in (("agent", 70), ("guardian", 137)):
            with self.subTest(victim=victim):
                job, pids = self.started()
                agent = job.agent()
                self.freeze(agent)
                self.freeze(job.pid)
                os.kill(agent if victim == "agent" else job.pid, signal.SIGKILL)
                self.assertEqual(job.code(), code)
                self.gone([agent])
                self.nothing_left(job, pids)
                for rank in range(2):
                    os.remove(self.path(f"daemon.{rank}"))


class ControlGroups(LeftCase):
    """Where this user may make control groups of version 2, each worker has one."""

    # Without a session, a parent, descriptors and environment that tell whose it is.
    LOST = ("setsid env -i /bin/sh -c 'sleep 1000 & echo $! > daemon.new; "
            "mv daemon.new daemon.0; exit 0' > /dev/null 2>&1 < /dev/null &\n"
            "while [ ! -e daemon.0 ]; do sleep 0.01; done\nexec sleep 1000\n")

    def setUp(self):
        super().setUp()
        mount = next((root for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
                      if os.path.exists(f"{root}/cgroup.controllers")), None)
        if mount is None:
            self.skipTest("no control groups of version 2 are mounted")
        self.mount = mount
        probe = mount + self.group_of("self") + f"/muster-test-{os.getpid()}"
        try:
            os.mkdir(probe)
        except OSError as error:
            self.skipTest(f"no control group can be made: {error}")
        usable = os.path.exists(f"{probe}/cgroup.kill")
        os.rmdir(probe)
        if not usable:
            self.skipTest("groups cannot be killed here")

    @staticmethod
    def group_of(pid):
        with open(f"/proc/{pid}/cgroup", encoding="utf-8") as file:
            group = next(line for line in file if line.startswith("0::")).strip()[3:]
        return "" if group == "/" else group

    def running(self):
        job = self.run_job("--standalone", self.script(self.LOST))
        self.until_event(job, "generation_running")
        until(lambda: os.path.exists(self.path("daemon.0")), "the daemon")
        worker = self.events(job, "worker_started")[0]["pid"]
        daemon = int(self.read("daemon.0"))
        group = self.group_of(worker)
        self.assertEqual(self.group_of(daemon), group)
        (folder,) = self.folders()
        own = self.group_of("self")
        self.assertEqual(group, f"{own}/{folder}/g0-w0")
        self.assertEqual(self.group_of(job.agent()), own)
        return job, daemon, self.mount + os.path.dirname(group)

    def test_the_group_goes_with_the_job(self):
        for number, code in ((signal.SIGTERM, 143), (None, 70)):
            with self.subTest(code=code):
                job, daemon, group = self.running()
                if number is None:
                    os.kill(job.agent(), signal.SIGKILL)
                else:
                    job.signal(number)
                self.assertEqual(job.code(), code, job.err)
                self.assertEqual((alive(daemon), os.path.exists(group)), (False, False))
                os.remove(self.path("daemon.0"))

    def test_a_killed_guardian_leaves_no_group(self):
        job, daemon, group = self.running()
        agent = job.agent()
        job.signal(signal.SIGKILL)
        self.assertEqual(job.code(), 137)
        self.gone([agent, daemon])
        self.assertFalse(os.path.exists(group))

    def test_the_next_start_finds_what_nothing_but_the_group_tells(self):
        job, daemon, group = self.running()
        self.kill_both(job)
        self.assertTrue(alive(daemon))
        self.next_start()
        self.gone([daemon])
        self.assertFalse(os.path.exists(group))

    def test_a_group_that_is_noted_under_another_name_is_left_alone(self):
        job, daemon, group = self.running()
        (folder,) = self.folders()
        stranger = os.path.dirname(group) + f"/muster-test-{os.getpid()}"
        os.mkdir(stranger)
        try:
            with open(os.path.join(self.scratch, folder, "cgroup"), "w", encoding="utf-8") as file:
                file.write(stranger)
            self.kill_both(job)
            self.next_start()
            self.assertTrue(os.path.exists(stranger))
            self.assertTrue(alive(daemon))  # whose note was lost
        finally:
            os.rmdir(stranger)
            with open(f"{group}/cgroup.kill", "w", encoding="ascii") as file:
                file.write("1")
            until(lambda: not alive(daemon), "the daemon's end")
            os.rmdir(f"{group}/g0-w0")
            os.rmdir(group)


class Sweep(LeftCase):
    """What the next start removes, and what it leaves alone."""

    def name_like(self, folder, digits):
        return os.path.join(self.scratch, folder[:-8] + digits)

    def test_a_live_job_keeps_its_folder(self):
        first = self.run_job("--standalone", self.script(
            "while [ ! -e go ]; do sleep 0.01; done; [ -d $MUSTER_RUN_DIR ] || exit 9\n", "wait.sh"))
        self.until_event(first, "generation_running")
        kept, entry = self.folders(), self.entries()
        dead, pids = self.started()
        self.kill_both(dead)
        self.assertEqual((len(self.folders()), len(self.entries())), (2, 2))
        self.next_start()
        self.gone(pids)
        self.assertEqual((self.folders(), self.entries()), (kept, entry))
        open(self.path("go"), "w", encoding="utf-8").close()
        self.assertEqual(first.code(), 0, first.err)
        self.nothing_left(first, [])

    def test_a_live_job_of_another_pid_namespace_keeps_its_folder(self):
        unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        if subprocess.run([*unshare, "true"], check=False, capture_output=True).returncode != 0:
            raise unittest.SkipTest("no right to make a pid namespace")
        script = self.script("touch inside\nwhile [ ! -e go ]; do sleep 0.01; done\n")
        job = Process(self, [*unshare, MUSTER, "run", "--standalone", script])
        until(lambda: os.path.exists(self.path("inside")), "the worker")
        kept, entry = self.folders(), self.entries()
        self.assertEqual((len(kept), len(entry)), (1, 1))
        self.next_start()
        self.assertEqual((self.folders(), self.entries()), (kept, entry))
        status = self.muster("status")
        self.assertEqual(status.code(), 0, status.err)
        open(self.path("go"), "w", encoding="utf-8").close()
        self.assertEqual(job.code(), 0, job.err)
        self.nothing_left(job, [])

    def test_what_is_not_a_job_folder_of_this_user_stays(self):
        dead, pids = self.started()
        self.kill_both(dead)
        (folder,) = self.folders()
        treasure = self.path("treasure")
        os.mkdir(treasure)
        open(os.path.join(treasure, "gold"), "w", encoding="utf-8").close()
        link, plain = self.name_like(folder, "0000000a"), self.name_like(folder, "0000000b")
        foreign, other = self.name_like(folder, "0000000c"), self.name_like(folder, "no-hex-x")
        os.symlink(treasure, link)
        os.symlink(treasure, os.path.join(self.scratch, folder, "way-out"))
        open(plain, "w", encoding="utf-8").close()
        os.mkdir(other)
        expected = [link, plain, other]
        if os.getuid() == 0:
            os.mkdir(foreign)
            os.chown(foreign, 65534, 65534)
            expected.append(foreign)
        self.next_start()
        self.gone(pids)
        self.assertEqual(self.folders(), sorted(os.path.basename(path) for path in expected))
        self.assertEqual(os.listdir(treasure), ["gold"])
        for path in expected:
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.remove(path)

    def test_folders_without_rights_and_half_written_entries_go(self):
        dead, pids = self.started()
        (folder,) = self.folders()
        deep = os.path.join(self.scratch, folder, "w", "g0-w0", "a", "b")
        os.makedirs(deep)
        open(os.path.join(deep, "file"), "w", encoding="utf-8").close()
        os.chmod(os.path.dirname(deep), 0)
        self.kill_both(dead)
        live = os.path.join(self.path("state"), "muster", ".live")
        open(os.path.join(live, "12-34.json.new"), "w", encoding="utf-8").close()
        open(os.path.join(live, "notes.txt"), "w", encoding="utf-8").close()
        job = self.next_start()
        self.gone(pids)
        self.assertEqual((self.folders(), self.entries()), ([], ["notes.txt"]), job.err)
        os.remove(os.path.join(live, "notes.txt"))

    def test_many_start_at_once_among_the_dead(self):
        for name in ("one.sh", "two.sh"):
            dead, _ = self.started(name)
            self.kill_both(dead)
            for rank in range(2):
                os.remove(self.path(f"daemon.{rank}"))
        script = self.script("[ -d $MUSTER_RUN_DIR ]\n", "look.sh")
        jobs = [self.run_job("--standalone", script) for _ in range(8)]
        for job in jobs:
            self.assertEqual(job.code(), 0, job.err)
        # Whoever came second may have found it locked by whoever came first.
        self.assertEqual((self.folders(), self.entries()), ([], []))


if __name__ == "__main__":
    main()
