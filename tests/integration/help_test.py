#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every command's --help: it fits a terminal, and has use, example and exit codes."""
import os

from harness import BIN, MUSTER, MusterCase, Process, main

COMMANDS = ("run", "rendezvous", "status", "stop", "scale", "drain", "restart", "chaos")


class Help(MusterCase):
    def help_of(self, *words):
        asked = Process(self, [*words])
        self.assertEqual(asked.code(), 0, asked.err)
        self.assertEqual(asked.err, "")
        for line in asked.out.splitlines():
            self.assertLessEqual(len(line), 80, line)
        return asked.out

    def test_each_command(self):
        for command in COMMANDS:
            with self.subTest(command):
                text = self.help_of(MUSTER, command, "--help")
                self.assertEqual(text, self.help_of(MUSTER, command, "-h"))
                self.assertTrue(text.startswith(f"Usage: muster {command} "), text)
                self.assertIn("\nExample", text)
                self.assertIn("\nExit codes: 0 ", text)

    def test_the_small_ones(self):
        for command in ("completion", "manual", "version"):
            self.assertTrue(self.help_of(MUSTER, command, "--help"))

    def test_muster_itself_names_every_command(self):
        text = self.help_of(MUSTER, "--help")
        for command in (*COMMANDS, "completion", "manual", "version"):
            self.assertIn(f"\n  {command} ", text)

    def test_the_training_program(self):
        for words in ((), ("bench-collectives",)):
            text = self.help_of(os.path.join(BIN, "muster-train"), *words, "--help")
            self.assertIn("xit codes: 0 ", text)

    def test_a_wrong_command_or_flag_is_2_and_names_the_nearest(self):
        for words, nearest in ((("stat",), "status"), (("run", "--max-restrats", "1"),
                                                       "--max-restarts"),
                               (("status", "--rendezvos", "h:1"), "--rendezvous"),
                               (("rendezvous", "--statedir", "x"), "--state-dir")):
            asked = self.muster(*words)
            self.assertEqual(asked.code(), 2)
            self.assertEqual(len(asked.err.splitlines()), 1, asked.err)
            self.assertIn(nearest, asked.err)


if __name__ == "__main__":
    main()
