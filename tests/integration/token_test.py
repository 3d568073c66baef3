#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A server with a token talks to nobody over the network who does not show it."""
import os
import signal

from harness import main
from two_nodes import TwoNodes


class Token(TwoNodes):
    def setUp(self):
        super().setUp()
        self.token = self.secret("token", "0123456789abcdef\n")
        self.other = self.secret("other", "not-the-token\n")
        self.endpoint = f"127.0.0.2:{self.port}"

    def secret(self, name, text):
        path = self.path(name)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
            file.write(text)
        return path

    def test_a_job_whose_nodes_and_operators_have_it_runs_restarts_and_is_stopped(self):
        server = self.server("--token-file", self.token)
        nodes = [self.node(0, "--token-file", self.token, "--max-restarts", "1"),
                 self.node(1, "--max-restarts", "1",
                           environment={"MUSTER_TOKEN_FILE": self.token})]
        self.until_event(nodes[0], "generation_running", generation=0)
        os.kill(self.pids(nodes[0], 0)[0], signal.SIGKILL)
        self.until_event(nodes[1], "generation_running", generation=1)
        for command in ("status", "stop"):
            for option, words in (((), "this server wants a token (--token-file)"),
                                  (("--token-file", self.other),
                                   "the token is not the one of this server (--token-file)")):
                asked = self.muster(command, "--rendezvous", self.endpoint, *option)
                self.assertEqual(asked.code(), 2, asked.err)
                self.assertIn(f"--rendezvous {self.endpoint}: {words}", asked.err)
        shown = self.muster("status", "--rendezvous", self.endpoint,
                            environment={"MUSTER_TOKEN_FILE": self.token})
        self.assertEqual(shown.code(), 0, shown.err)
        self.assertIn("job", shown.out)
        # An order over the network is what the token is for.
        stop = self.muster("stop", "--rendezvous", self.endpoint, "--token-file", self.token)
        self.assertEqual(stop.code(), 0, stop.err)
        self.assertEqual([node.code() for node in nodes], [143, 143])
        server.signal(signal.SIGTERM)
        self.assertEqual(server.code(), 0, server.err)
        everything = server.err + server.out + "".join(node.err + node.out for node in nodes)
        self.assertNotIn("0123456789abcdef", everything)

    def test_an_agent_without_it_is_told_so_at_once(self):
        server = self.server("--token-file", self.token)
        for option, words in (((), "this server wants a token (--token-file)"),
                              (("--token-file", self.other),
                               "the token is not the one of this server (--token-file)")):
            node = self.node(0, *self.PATIENT, *option)
            self.assertEqual(node.code(), 2, node.err)
            self.assertIn(f"{self.endpoint}: {words}", node.err)
        server.signal(signal.SIGTERM)
        server.code()

    def test_a_server_inside_a_node_asks_for_it_too(self):
        host = self.node(0, "--token-file", self.token)
        self.until_event(host, "node_joined")
        stranger = self.node(1, *self.PATIENT)
        self.assertEqual(stranger.code(), 2, stranger.err)
        self.assertIn("this server wants a token", stranger.err)
        node = self.node(1, "--token-file", self.token)
        self.until_event(node, "generation_running")
        # The control socket is this user's own: no token there.
        self.assertEqual(self.muster("status").code(), 0)
        self.let_go(0)
        self.assertEqual([host.code(), node.code()], [0, 0], host.err + node.err)

    def test_a_file_that_holds_none_is_2_before_anything_starts(self):
        for text, words in (("", "is empty"), ("two words\n", "no blanks")):
            wrong = self.secret("wrong" + str(len(text)), text)
            for name, process in (
                    ("--token-file", self.node(0, "--token-file", wrong)),
                    ("MUSTER_TOKEN_FILE",
                     self.node(0, environment={"MUSTER_TOKEN_FILE": wrong})),
                    ("--token-file", self.muster("rendezvous", "--listen", self.endpoint,
                                                 "--state-dir", self.path("server"),
                                                 "--token-file", wrong)),
                    ("--token-file", self.muster("status", "--rendezvous", self.endpoint,
                                                 "--token-file", wrong))):
                with self.subTest(name=name, text=text):
                    self.assertEqual(process.code(), 2, process.err)
                    self.assertIn(f"{name}: {wrong}: {words}"[:40], process.err)
                    self.assertIn(words, process.err)


if __name__ == "__main__":
    main()
