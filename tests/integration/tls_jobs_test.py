#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""With TLS, nodes and operators talk only to those for whom the same authority vouches."""
import os
import shutil
import signal
import socket
import unittest

import certificates
from harness import main, until
from two_nodes import TwoNodes


@unittest.skipIf(certificates.missing(), certificates.missing())
class Tls(TwoNodes):
    def setUp(self):
        super().setUp()
        self.authority = certificates.Authority(self.path("tls"))
        self.own = self.authority.options("own")
        self.endpoint = f"127.0.0.2:{self.port}"

    def operator(self, command, *options, **more):
        return self.muster(command, "--rendezvous", self.endpoint, *options, **more)

    def refused(self, process, *words):
        self.assertEqual(process.code(), 2, process.err)
        for word in words:
            self.assertIn(word, process.err)

    def end(self, server):
        server.signal(signal.SIGTERM)
        self.assertEqual(server.code(), 0, server.err)


class Jobs(Tls):
    def test_a_job_runs_restarts_and_takes_orders(self):
        server = self.server(*self.own)
        variables = dict(zip(("MUSTER_TLS_CERT", "MUSTER_TLS_KEY", "MUSTER_TLS_CA"),
                             self.own[1::2]))
        nodes = [self.node(0, *self.own, "--max-restarts", "1"),
                 self.node(1, "--max-restarts", "1", environment=variables)]
        self.until_event(nodes[0], "generation_running", generation=0)
        os.kill(self.pids(nodes[0], 0)[0], signal.SIGKILL)
        self.until_event(nodes[1], "generation_running", generation=1)
        shown = self.operator("status", environment=variables)
        self.assertEqual(shown.code(), 0, shown.err)
        self.assertIn("job", shown.out)
        # Who is vouched for may give orders, without a token.
        stop = self.operator("stop", *self.own)
        self.assertEqual(stop.code(), 0, stop.err)
        self.assertEqual([node.code() for node in nodes], [143, 143])
        self.end(server)

    def test_a_server_inside_a_node(self):
        host = self.node(0, *self.own)
        node = self.node(1, *self.own)
        self.until_event(node, "generation_running")
        self.assertEqual(self.muster("status").code(), 0)  # by the control socket
        self.let_go(0)
        self.assertEqual([host.code(), node.code()], [0, 0], host.err + node.err)

    def test_a_token_is_asked_for_as_well(self):
        token = self.path("token")
        with open(token, "w", encoding="ascii") as file:
            file.write("0123456789abcdef\n")
        server = self.server(*self.own, "--token-file", token)
        self.refused(self.operator("status", *self.own), "this server wants a token")
        self.assertEqual(self.operator("status", *self.own, "--token-file", token).code(), 0)
        self.end(server)

    def test_a_server_that_is_started_again_is_found_again(self):
        server = self.server(*self.own)
        nodes = [self.node(rank, *self.own) for rank in (0, 1)]
        self.until_event(nodes[0], "generation_running")
        server.signal(signal.SIGKILL)
        server.code()
        server = self.server(*self.own)
        for node in nodes:
            self.until_event(node, "server_recovered")
        self.let_go(0)
        self.assertEqual([node.code() for node in nodes], [0, 0])
        self.end(server)

    def test_certificates_that_change_are_read_anew(self):
        folder = self.path("mounted")
        os.makedirs(folder)
        copies = [shutil.copy(path, folder) for path in self.own[1::2]]
        options = ("--tls-cert", copies[0], "--tls-key", copies[1], "--tls-ca", copies[2])
        server = self.server(*options)
        other = certificates.Authority(self.path("tls2"), "successor")
        theirs = other.options("own")
        self.refused(self.operator("status", *theirs), "certificate")
        # One after another, as files are: what does not fit together is not used.
        shutil.copy(theirs[1], copies[0])
        self.assertEqual(self.operator("status", *self.own).code(), 0)
        until(lambda: "TLS goes on with the certificates that it had: " in server.err, "a word")
        for path, copy in zip(theirs[3::2], copies[1:]):
            shutil.copy(path, copy)
        shown = self.operator("status", *theirs)
        self.assertEqual(shown.code(), 0, shown.err)
        self.refused(self.operator("status", *self.own), "certificate")
        self.end(server)


class Strangers(Tls):
    def test_a_node_of_another_authority_is_told_at_once(self):
        server = self.server(*self.own)
        other = certificates.Authority(self.path("other"), "other")
        for name, options, words in (
                ("whom the server does not trust", other.options("node", ca=self.authority.ca),
                 "does not take the certificate of this node (--tls-cert): tlsv1 alert unknown ca"),
                ("who does not trust the server", self.authority.options("node", ca=other.ca),
                 "its certificate is not taken here: self-signed certificate in certificate chain"),
                ("whose certificate is not for clients",
                 self.authority.options("node", use="serverAuth"),
                 "does not take the certificate of this node (--tls-cert): ")):
            with self.subTest(name):
                self.refused(self.node(0, *self.PATIENT, *options), f"{self.endpoint}: {words}")
                self.refused(self.operator("status", *options), f"{self.endpoint}: {words}")
        self.assertIn("refused a connection from 127.0.0.1: its certificate is not taken here: "
                      "unable to get local issuer certificate", server.err)
        self.end(server)

    def test_a_server_whose_certificate_is_for_another_name(self):
        wrong = self.authority.options("wrong", names="IP:127.0.0.9,DNS:elsewhere")
        words = ("its certificate is not taken here: IP address mismatch: it is for "
                 "IP Address:127.0.0.9, DNS:elsewhere")
        server = self.server(*wrong)
        self.refused(self.node(0, *self.PATIENT, *self.own), f"{self.endpoint}: {words}")
        self.end(server)
        # The node that would host it cannot reach itself by that name.
        self.refused(self.node(0, *self.PATIENT, *wrong), words)

    def test_a_node_without_tls_and_a_server_without(self):
        server = self.server(*self.own)
        plain = self.node(0, "--join-timeout", "3s")
        self.assertEqual(plain.code(), 75, plain.err)
        self.assertIn(f"{self.endpoint} wants TLS (--tls-cert, --tls-key, --tls-ca)", plain.err)
        asked = self.operator("status")
        self.assertEqual(asked.code(), 75, asked.err)
        self.assertIn("wants TLS", asked.err)
        self.end(server)
        server = self.server()
        secure = self.node(0, "--join-timeout", "3s", *self.own)
        self.assertEqual(secure.code(), 75, secure.err)
        self.assertIn(f"{self.endpoint}: answers, but not in TLS", secure.err)
        self.end(server)

    def test_whoever_connects_and_talks_nonsense_or_nothing_holds_up_nobody(self):
        server = self.server(*self.own)
        silent = [socket.create_connection(("127.0.0.2", self.port)) for _ in range(50)]
        half = [socket.create_connection(("127.0.0.2", self.port)) for _ in range(50)]
        for connection in half:
            connection.sendall(b"\x16\x03\x01\x02\x00\x01")
        with socket.create_connection(("127.0.0.2", self.port)) as web:
            web.sendall(b"GET / HTTP/1.1\r\n\r\n")
            self.assertEqual(web.recv(64), b"\x15\x03\x01\x00\x02\x02\x46")
        nodes = [self.node(rank, *self.own) for rank in (0, 1)]
        self.until_event(nodes[0], "generation_running")
        self.let_go(0)
        self.assertEqual([node.code() for node in nodes], [0, 0])
        for connection in silent + half:
            connection.close()
        self.end(server)

    def test_files_that_cannot_be_used_are_2_before_anything_starts(self):
        cert, key, ca = self.own[1::2]
        other = self.authority.issue("another")
        locked, old, empty = (self.path(name) for name in ("locked", "old", "empty"))
        certificates.openssl("ec", "-in", key, "-aes128", "-passout", "pass:x", "-out", locked)
        open(empty, "w", encoding="ascii").close()
        expired = self.authority.issue("expired", days="-1")
        for files, words in (
                ((cert, key, None), "--tls-ca is missing"),
                ((cert, other[1], ca), f"is not the key of the certificate in {cert}"),
                ((cert, locked, ca), "wants a passphrase; give a key without one"),
                ((cert, cert, ca), f"--tls-key: {cert}: no private key in PEM"),
                ((key, key, ca), f"--tls-cert: {key}: no certificate in PEM"),
                ((cert, key, empty), f"--tls-ca: {empty}: no certificates in PEM"),
                ((cert, key, old), f"--tls-ca: {old}: No such file or directory"),
                ((cert, key, self.folder), f"--tls-ca: {self.folder}: is a directory"),
                ((*expired, ca), f"--tls-cert: {expired[0]}: the certificate has expired, on ")):
            options = [word for flag, path in zip(("--tls-cert", "--tls-key", "--tls-ca"), files)
                       if path for word in (flag, path)]
            with self.subTest(words):
                self.refused(self.node(0, *options), words)
                self.refused(self.operator("status", *options), words)
                self.refused(self.muster("rendezvous", "--listen", self.endpoint, "--state-dir",
                                         self.path("never"), *options), words)


if __name__ == "__main__":
    main()
