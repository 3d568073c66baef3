#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Completion in a real bash, and the manual page through groff."""
import shlex
import shutil
import subprocess

from harness import MUSTER, MusterCase, main

# What bash would offer for the words given, the last being completed.
ASK = """
source <("$1" completion bash)
shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_muster
printf '%s\\n' "${COMPREPLY[@]}"
"""


class ShellCompletion(MusterCase):
    def printed(self, *arguments):
        job = self.muster(*arguments)
        self.assertEqual(job.code(), 0, job.err)
        return job.out

    def offered(self, *words):
        done = subprocess.run(["bash", "-c", ASK, "bash", MUSTER, "muster", *words],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              cwd=self.folder, check=False)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_commands_flags_and_values(self):
        with open(self.path("train.py"), "w", encoding="ascii"):
            pass
        self.assertEqual(self.offered("ru"), ["run"])
        self.assertEqual(self.offered("run", "--max-re"), ["--max-restarts"])
        self.assertEqual(self.offered("run", "--nproc-per-node", ""), ["auto", "gpu", "cpu"])
        self.assertEqual(self.offered("run", "--fence", "st"), ["strict"])
        self.assertEqual(self.offered("run", "--log-dir", "tr"), ["train.py"])
        self.assertEqual(self.offered("run", "--node-rank", ""), [])
        self.assertIn("train.py", self.offered("run", "--standalone", "tr"))

    def test_behind_the_program_are_its_own_words(self):
        with open(self.path("train.py"), "w", encoding="ascii"):
            pass
        for before in (["--standalone"], ["--nnodes", "2"], ["--standalone", "--"]):
            self.assertEqual(self.offered("run", *before, "train.py", "--max-re"), [])
            self.assertEqual(self.offered("run", *before, "train.py", "tr"), ["train.py"])

    def test_the_script_of_zsh_is_one(self):
        script = self.printed("completion", "zsh")
        self.assertTrue(script.startswith("#compdef muster\n"))
        self.assertIn("'--max-restarts[", script)
        self.assertIn(":N|auto|gpu|cpu:(auto gpu cpu)'", script)
        flags = [line for line in script.splitlines() if line.startswith("    '--")]
        self.assertTrue([flag for flag in flags if "'\\''" in flag], "a help with an apostrophe")
        for flag in flags:
            self.assertEqual(len(shlex.split(flag.removesuffix("\\"))), 1, flag)
        if shutil.which("zsh") is None:
            self.skipTest("zsh is not installed: read, not run")
        done = subprocess.run(["zsh", "-n"], input=script, capture_output=True, text=True,
                              check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_the_manual_has_every_flag(self):
        page = self.printed("manual")
        if shutil.which("groff") is None:
            self.skipTest("groff is not installed")
        done = subprocess.run(["groff", "-man", "-Tascii", "-ww", "-P-cbou"], input=page,
                              capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for line in self.printed("run", "--help").splitlines():
            if line.startswith("  --"):
                self.assertIn(line.split()[0], done.stdout)
        self.assertIn("PET_MAX_RESTARTS", done.stdout)

    def test_what_is_not_there_is_refused(self):
        for arguments, line in ((["completion", "fish"], "no script for 'fish'"),
                                (["completion"], "for which shell"),
                                (["manual", "run"], "run")):
            job = self.muster(*arguments)
            self.assertEqual(job.code(), 2)
            self.assertIn(line, job.err)


if __name__ == "__main__":
    main()
