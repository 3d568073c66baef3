#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--http and --metrics-addr: what probes and Prometheus are told of a node and of a server."""
import http.client
import os
import re
import signal
import socket

from harness import free_port, main, until
from two_nodes import TwoNodes


class Http(TwoNodes):
    def setUp(self):
        super().setUp()
        self.at = free_port()

    def ask(self, path, method="GET", port=None):
        """(status, body); None: nobody listens."""
        connection = http.client.HTTPConnection("127.0.0.1", port or self.at, timeout=30)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except ConnectionRefusedError:
            return None
        finally:
            connection.close()

    def until_answer(self, path, status, words="", **options):
        def answered():
            found = self.ask(path, **options)
            return found if found and found[0] == status and words in found[1] else None
        return until(answered, f"{status} {words} from {path}")

    def metrics(self, port=None):
        """By name with its labels."""
        status, text = self.ask("/metrics", port=port)
        self.assertEqual(status, 200)
        found = {}
        for line in text.splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                found[name] = float(value)
        return found

    def until_metric(self, name, value, port=None):
        until(lambda: self.metrics(port).get(name) == value, f"{name} {value}")


class OfANode(Http):
    def test_a_node_is_ready_when_its_workers_run(self):
        node = self.node(0, "--http", f"127.0.0.1:{self.at}", "--max-restarts", "1")
        self.until_answer("/readyz", 503, "joined; the job is not formed yet")
        self.assertEqual(self.ask("/livez"), (200, "alive\n"))
        other = self.node(1, "--max-restarts", "1")
        self.until_answer("/readyz", 200, "ready")
        self.assertEqual(self.metrics()["muster_workers"], 2)
        os.kill(self.pids(node, 0)[0], signal.SIGKILL)
        self.until_metric("muster_generation", 1)
        self.until_answer("/readyz", 200, "ready")
        seen = self.metrics()
        for name, value in (("muster_restarts_total", 1), ("muster_max_restarts", 1),
                            ("muster_recoveries_total", 1), ("muster_world_size", 4),
                            ('muster_generation_failures_total{kind="signal"}', 1),
                            ('muster_worker_exits_total{how="signal"}', 1),
                            ('muster_worker_exits_total{how="torn_down"}', 1),
                            # It hosts the server: the job as that sees it is there too.
                            ('muster_job_world_size{job="job"}', 4),
                            ('muster_job_nodes{job="job",role="member",connected="true"}', 2)):
            self.assertEqual(seen.get(name), value, name)
        self.let_go(1)
        self.assertEqual([node.code(), other.code()], [0, 0])
        self.assertIsNone(self.ask("/livez"))

    def test_before_there_is_a_server(self):
        node = self.run_job("--nnodes", "2", "--rdzv-endpoint", f"127.0.0.2:{self.port}",
                            "--rdzv-conf", "is_host=0", "--http", str(self.at), "/bin/true")
        self.until_answer("/readyz", 503, f"looking for the server at 127.0.0.2:{self.port}")
        self.assertEqual(self.ask("/livez"), (200, "alive\n"))
        node.signal(signal.SIGTERM)
        self.assertEqual(node.code(), 143)

    def test_metrics_alone_at_an_address_of_their_own(self):
        node = self.node(0, "--metrics-addr", "127.0.0.1:0", "--http", f":{self.at}", nnodes="1")
        pattern = re.compile(r"--metrics-addr listens on port (\d+)")
        port = int(until(lambda: pattern.search(node.err), "the port").group(1))
        self.until_metric("muster_workers", 2, port)
        self.assertEqual(self.ask("/livez", port=port), (404, "there is only /metrics\n"))
        self.assertEqual(self.ask("/livez")[0], 200)
        # One port for both is one door.
        node.signal(signal.SIGTERM)
        node.code()
        same = self.node(0, "--metrics-addr", f":{self.at}", "--http", f":{self.at}", nnodes="1")
        self.until_answer("/readyz", 200)
        same.signal(signal.SIGTERM)
        same.code()

    def test_whoever_asks_for_something_else_or_nothing(self):
        node = self.node(0, "--http", f":{self.at}", nnodes="1")
        self.until_answer("/readyz", 200)
        self.assertEqual(self.ask("/"), (404, "there is only /livez /metrics /readyz\n"))
        self.assertEqual(self.ask("/livez?x=1"), (200, "alive\n"))
        self.assertEqual(self.ask("/metrics", "HEAD"), (200, ""))
        for method in ("POST", "DELETE"):
            self.assertEqual(self.ask("/livez", method)[0], 405)
        for bytes_sent in (b"\x16\x03\x01\x02\x00", b"nonsense\r\n\r\n",
                           b"GET /livez HTTP/1.1\r\nX: " + b"a" * 20000,
                           b"POST /livez HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"):
            with socket.create_connection(("127.0.0.1", self.at)) as odd:
                odd.sendall(bytes_sent)
                odd.settimeout(30)
                try:
                    self.assertIn(odd.recv(4096)[:12], (b"HTTP/1.1 400", b""))
                except ConnectionResetError:
                    pass
        # More than it serves at a time, silent or slow: the job and later askers do not mind.
        idle = [socket.create_connection(("127.0.0.1", self.at)) for _ in range(100)]
        for connection in idle[::2]:
            connection.sendall(b"GET /livez HT")
        self.until_closed(idle)
        self.assertEqual(self.ask("/livez"), (200, "alive\n"))
        self.let_go(0)
        self.assertEqual(node.code(), 0, node.err)

    def until_closed(self, connections):
        for connection in connections:
            connection.settimeout(60)
            try:
                connection.recv(1)
            except ConnectionResetError:
                pass
            connection.close()

    def test_an_address_that_cannot_be_had_is_2(self):
        with socket.create_server(("127.0.0.1", self.at)):
            for flag in ("--http", "--metrics-addr"):
                node = self.node(0, flag, f"127.0.0.1:{self.at}", nnodes="1")
                self.assertEqual(node.code(), 2, node.err)
                self.assertIn(f"muster: {flag} 127.0.0.1:{self.at}: 127.0.0.1 port {self.at}: "
                              "Address already in use", node.err)
                self.assertEqual(self.events(node), [])
            server = self.muster("rendezvous", "--listen", "127.0.0.2:0", "--state-dir",
                                 self.path("server"), "--http", f"127.0.0.1:{self.at}")
            self.assertEqual(server.code(), 2, server.err)
        for value in ("h0", "h0:", ":65536", "a b:1", ":"):
            node = self.node(0, environment={"MUSTER_HTTP": value}, nnodes="1")
            self.assertEqual(node.code(), 2, node.err)
            self.assertIn(f"MUSTER_HTTP: '{value}' ", node.err)


class OfAServer(Http):
    def test_a_server_of_its_own_shows_all_its_jobs(self):
        server = self.server("--http", f":{self.at}")
        self.until_answer("/readyz", 200)
        jobs = [self.run_job("--nnodes", "1", "--rdzv-id", name, "--rdzv-endpoint",
                             f"127.0.0.2:{self.port}", self.worker) for name in ("one", "two")]
        for name in ("one", "two"):
            self.until_metric('muster_job_running{job="%s"}' % name, 1)
        self.assertEqual(self.metrics()['muster_jobs{state="live"}'], 2)
        self.let_go(0)
        self.assertEqual([job.code() for job in jobs], [0, 0])
        self.until_metric('muster_job_outcome{job="one",outcome="succeeded"}', 1)
        server.signal(signal.SIGTERM)
        self.assertEqual(server.code(), 0, server.err)
        self.assertIsNone(self.ask("/livez"))


if __name__ == "__main__":
    main()
