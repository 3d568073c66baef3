#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bad input: one clear line that names it, the right code, nothing left running."""
import json
import os
import socket

from harness import MUSTER, MusterCase, Process, free_port, main


class BadInput(MusterCase):
    def refused(self, *arguments, word, code=2, environment=None, command="run"):
        process = self.muster(command, *arguments, environment=environment)
        self.assertEqual(process.code(), code, process.err)
        lines = process.err.strip().splitlines()
        self.assertTrue(lines and lines[-1].startswith("muster: "), process.err)
        self.assertEqual(len(lines), 1, process.err)
        self.assertIn(word, process.err)

    def test_unknown_flags_name_the_nearest(self):
        self.refused("--max-restart-count", "3", "/bin/true", word="--max-restarts")
        self.refused("--standalon3", "/bin/true", word="--standalone")

    def test_prefixes_of_torchruns_flags_only(self):
        job = self.muster("run", "--standalone", "--nproc", "2", "/bin/true")
        self.assertEqual(job.code(), 0, job.err)
        self.refused("--standalone", "--stop-gr", "2", "/bin/true", word="--stop-gr")
        self.refused("--nn", "/bin/true", word="--nnodes")  # takes /bin/true for its value

    def test_values(self):
        self.refused("--standalone", "--nproc-per-node", "many", "/bin/true", word="--nproc-per-node")
        self.refused("--standalone", "--nproc-per-node", "0", "/bin/true", word="--nproc-per-node")
        self.refused("--nnodes", "3:2", "--rdzv-endpoint", "127.0.0.1:1", "/bin/true", word="--nnodes")
        self.refused("--standalone", "--stop-grace", "soon", "/bin/true", word="--stop-grace")
        self.refused("--standalone", "--max-restarts", "-1", "/bin/true", word="--max-restarts")
        self.refused("--standalone", "--rdzv-conf", "no_such_key=1", "/bin/true", word="no_such_key")
        self.refused("--standalone", "--rdzv-backend", "etcd-v2", "/bin/true", word="etcd")
        self.refused("--standalone", "--console", "loud", "/bin/true", word="loud")
        self.refused("--standalone", "--max-restarts", word="--max-restarts")

    def test_how_long_an_outcome_is_kept(self):
        for value in ("soon", "-1s", "1d"):
            self.refused("--listen", "127.0.0.1:0", "--state-dir", self.path("state"),
                         f"--outcome-kept={value}", command="rendezvous", word="--outcome-kept")
        self.assertFalse(os.path.exists(self.path("state")))

    def test_log_files_that_cannot_be(self):
        in_the_way = self.path("file")
        open(in_the_way, "w", encoding="utf-8").close()
        logs = self.path("logs")
        os.mkdir(logs)
        open(os.path.join(logs, "taken"), "w", encoding="utf-8").close()
        for path in (in_the_way, os.path.join(in_the_way, "below"), "/proc/nowhere/logs"):
            for flags in ([], ["-r", "3"], ["-t", "0:1"]):
                self.refused("--standalone", "--log-dir", path, *flags, "/bin/true",
                             word=f"--log-dir: cannot create {path}")
        self.refused("--rdzv-id", "taken", "--rdzv-endpoint", f"127.0.0.1:{free_port()}",
                     "--log-dir", logs, "/bin/true", word=f"--log-dir: cannot write in {logs}/taken")
        state = {"XDG_STATE_HOME": in_the_way}
        self.refused("--standalone", "-r", "3", "/bin/true", word="--log-dir", environment=state)
        job = self.muster("run", "--standalone", "/bin/true", environment=state)
        self.assertEqual((job.code(), job.err), (0, ""))
        job = self.muster("run", "--standalone", "-r", "3", "--log-dir", "/dev/null", "/bin/true",
                          environment=state)
        self.assertEqual(job.code(), 0, job.err)

    def test_no_program(self):
        self.refused("--standalone", word="program")

    def test_more_than_one_node_without_an_endpoint(self):
        self.refused("--nnodes", "2", "/bin/true", word="--rdzv-endpoint")
        self.refused("--nnodes", "2", "--rdzv-endpoint", "127.0.0.1:0", "/bin/true", word="port")

    def test_variables(self):
        self.refused("/bin/true", word="PET_NNODES", environment={"PET_NNODES": "lots"})
        self.refused("/bin/true", word="PET_STANDALONE", environment={"PET_STANDALONE": "maybe"})
        self.refused("/bin/true", word="PET_RDZV_ENDPOINT", environment={"PET_RDZV_ENDPOINT": ":::"})
        self.refused("--standalone", "/bin/true", word="MUSTER_STOP_GRACE",
                     environment={"MUSTER_STOP_GRACE": "x"})

    def test_mistyped_variables_are_named_and_the_job_runs(self):
        job = self.muster("run", "--standalone", "/bin/true", environment={
            "MUSTER_MAX_RESTART": "3", "PET_NNODE": "2", "MUSTER_TEST_ROUNDS": "1"})
        self.assertEqual(job.code(), 0, job.err)
        self.assertEqual(job.err.splitlines(), [
            "muster: MUSTER_MAX_RESTART is ignored: it is no option; did you mean MUSTER_MAX_RESTARTS?",
            "muster: PET_NNODE is ignored: torchrun has no such variable; did you mean PET_NNODES?"])

    def test_unknown_command(self):
        self.refused(word="status", command="statsu")
        self.refused(word="muster run train.py", command="train.py")
        self.refused(word="muster run --standalone", command="--standalone")

    def test_surplus_arguments(self):
        for words in (("version", "extra"), ("--version", "extra"), ("status", "extra"),
                      ("stop", "extra"), ("chaos", "check", "[]", "extra"),
                      ("rendezvous", "extra", "--listen", ":0", "--state-dir", "s"),
                      ("help", "run", "extra")):
            self.refused(*words[1:], command=words[0], word="'extra'")

    def test_operating_what_is_not_there(self):
        port = free_port()
        for command in ("status", "stop"):
            self.refused("--rendezvous", f"127.0.0.1:{port}", command=command, code=75,
                         word=f"muster: --rendezvous 127.0.0.1:{port}: Connection refused")
            for address in (":5", "a:b:c:d", "h:port", "http://h:1"):
                self.refused("--rendezvous", address, command=command, word=f"muster: --rendezvous: '{address}'")
            self.refused("--job", "nosuch", command=command, word="muster: --job nosuch: no live job")
            self.refused(command=command, word="muster: no live job")

    def test_maps_of_local_ranks_that_are_not_there(self):
        for flag, name in (("-t", "--tee"), ("-r", "--redirects")):
            self.refused("--standalone", "--nproc-per-node", "2", flag, "99:3", "/bin/true",
                         word=f"{name}: there is no local rank 99 among 2")
        job = self.muster("run", "--standalone", "--nproc-per-node", "2", "-t", "0:1,4:3", "/bin/true")
        self.assertEqual(job.code(), 0, job.err)  # as under torchrun
        self.assertIn("--tee: there is no local rank 4 among 2 on this node: ignored", job.err)

    def test_a_directory_with_nothing_to_run(self):
        os.mkdir(self.path("package"))
        self.refused("--standalone", "package", word="without __main__.py", code=126)

    def test_files_that_cannot_be_used(self):
        os.mkdir(self.path("dir"))
        os.mkfifo(self.path("fifo"))
        os.symlink("loop", self.path("loop"))
        with open(self.path("file"), "wb") as file:
            file.write(b"\x7fELF\0\xff")
        written = ("dir", "missing/x", "fifo", "loop", "file/x", "missing/{run}", "x" * 5000)
        for flag, paths in (("--events", written), ("--server-events", written),
                            ("--chaos", ("dir", "missing", "fifo", "loop", "file", "/dev/zero"))):
            for path in paths:
                self.refused("--standalone", flag, path, "/bin/true", word=f"muster: {flag}: ")
        self.refused("--standalone", "/bin/true", word="muster: MUSTER_EVENTS: dir: Is a directory",
                     environment={"MUSTER_EVENTS": "dir"})

    def test_a_plan_from_a_pipe(self):
        plan = '[{"do":"kill","when":{"after":"1h"},"on":{"rank":0}}]'
        script = self.script(f"exec '{MUSTER}' chaos check /dev/stdin <<'end'\n{plan}\nend\n")
        shown = Process(self, [script])
        self.assertEqual(shown.code(), 0, shown.err)
        self.assertIn("SIGKILL to rank 0", shown.out)

    def test_values_no_flag_takes(self):
        counts = ("", "-1", "99999999999999999999", "1e400", "nan", "1x", " 1", "0x10", "1,2,,",
                  "a\nb", "x" * 100000)
        for flag in ("--nnodes", "--nproc-per-node", "--max-restarts", "--max-node-losses",
                     "--max-no-progress", "--grow", "--grow-interval", "--spares",
                     "--quarantine", "--fence",
                     "--stop-grace", "--stop-budget", "--restart-backoff", "--join-timeout",
                     "--heartbeat", "--node-timeout", "--server-grace", "--master-port",
                     "--master-port-range", "--stop-signal", "--console", "--exit-code", "--stdin",
                     "--tee", "--redirects", "--log-level"):
            for value in counts:
                self.refused("--standalone", f"{flag}={value}", "/bin/true", word=flag)
                self.assertLess(len(self.processes[-1].err), 2200)

    def test_a_plan_that_is_no_json_is_named_by_line_and_column(self):
        with open(self.path("plan.json"), "w", encoding="utf-8") as file:
            file.write('{\n  "faults": [\n    {"do": "kill",}\n  ]\n}\n')
        self.refused("--standalone", "--chaos", "plan.json", "/bin/true",
                     word="--chaos: plan.json:3:19: a ',' too many before '}'")
        self.refused("check", "plan.json", command="chaos", word="plan.json:3:19: a ',' too many")

    def test_gpus_where_there_are_none(self):
        self.refused("--standalone", "--nproc-per-node", "gpu", "/bin/true", word="gpu",
                     environment={"CUDA_VISIBLE_DEVICES": ""})

    def test_precedence_and_print_config(self):
        shown = self.muster("run", "--standalone", "--max-restarts", "4", "--print-config", "/bin/true",
                            environment={"PET_NPROC_PER_NODE": "3", "MUSTER_STOP_GRACE": "7s",
                                         "PET_MAX_RESTARTS": "9"})
        self.assertEqual(shown.code(), 0, shown.err)
        json.loads(shown.out)
        for word in ("PET_NPROC_PER_NODE", "MUSTER_STOP_GRACE", "flag", "default"):
            self.assertIn(word, shown.out)

    def test_print_config_gives_computed_defaults_and_warns(self):
        shown = self.muster("run", "--standalone", "--stop-budget", "2s", "--print-config",
                            environment={"XDG_STATE_HOME": self.path("state")})
        self.assertEqual(shown.code(), 0, shown.err)
        options = json.loads(shown.out)["options"]
        for name, value in (("log-dir", self.path("state/muster")), ("advertise-addr", "127.0.0.1"),
                            ("node-name", socket.gethostname())):
            self.assertEqual(options[name], {"value": value, "source": "default"})
        self.assertEqual(len(shown.err.splitlines()), 1, shown.err)
        self.assertIn("--stop-budget 2s", shown.err)

    def test_a_node_alone_owns_every_loopback_address(self):
        job = self.muster("run", "--nnodes", "1", "--rdzv-endpoint", f"127.0.0.1:{free_port()}",
                          "--advertise-addr", "127.0.0.7", "--join-timeout", "60s", "/bin/true")
        self.assertEqual(job.code(), 0, job.err)

    def test_help_teaches(self):
        for arguments in (("--help",), ("run", "--help"), ("rendezvous", "--help"),
                          ("status", "--help"), ("stop", "--help"), ("chaos", "--help")):
            shown = self.muster(*arguments)
            self.assertEqual(shown.code(), 0, shown.err)
            self.assertGreater(len(shown.out), 100)
        self.assertEqual(self.muster("version").code(), 0)

    def test_a_port_held_by_something_else_is_75_at_the_join_timeout(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = other.getsockname()[1]
            job = self.muster("run", "--nnodes", "2", "--rdzv-endpoint", f"127.0.0.1:{port}",
                              "--rdzv-id", "x", "--join-timeout", "1500ms", "/bin/true")
            self.assertEqual(job.code(), 75, job.err)
            self.assertIn(f"{port}", job.err)

    def test_an_endpoint_nobody_answers_is_75(self):
        port = free_port()
        job = self.muster("run", "--nnodes", "2", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-conf",
                          "is_host=0", "--rdzv-id", "x", "--join-timeout", "500ms", "/bin/true")
        self.assertEqual(job.code(), 75, job.err)
        self.assertIn(f"127.0.0.1:{port}", job.err)

    def test_a_name_that_does_not_resolve_is_75(self):
        job = self.muster("run", "--nnodes", "2", "--rdzv-endpoint", "no-such-host.invalid:29400",
                          "--rdzv-id", "x", "--join-timeout", "500ms", "/bin/true")
        self.assertEqual(job.code(), 75, job.err)
        self.assertIn("no-such-host.invalid", job.err)


if __name__ == "__main__":
    main()
