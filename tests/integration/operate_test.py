# SPDX-License-Identifier: Apache-2.0
"""Orders of an operator for a job that runs: scale, drain, restart; and what is refused."""
import json
import os
import signal

from harness import free_port, main, until
from two_nodes import OwnServer

# Two ranks that notice each other's end, as ranks in a collective do: rank 0 fails over it at once.
PEERS = """exec python3 -c '
import os, socket, sys, time
def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.01)
if os.environ["MUSTER_GENERATION"] != "0":
    wait_for("go.1")
    sys.exit(0)
stream = socket.socket(socket.AF_UNIX)
if os.environ["RANK"] == "0":
    stream.bind("peer.tmp")
    stream.listen(1)
    os.rename("peer.tmp", "peer")
    peer, _ = stream.accept()
    open("met", "w").close()
    peer.recv(1)
    os._exit(1)
wait_for("peer")
stream.connect("peer")
stream.recv(1)'
"""


class Operate(OwnServer):
    def running(self, names, nnodes, *arguments, **options):
        """Members in the order of their names, all in one generation; its number is returned too."""
        jobs = [self.member(name, nnodes, *arguments, **options) for name in names]
        def complete():
            formed = self.events(jobs[0], "generation_formed")
            return formed and [node["node"] for node in formed[-1]["nodes"]] == list(names)
        until(complete, f"a generation of {', '.join(names)}")
        generation = self.events(jobs[0], "generation_formed")[-1]["generation"]
        self.until_event(jobs[0], "generation_running", generation=generation)
        return jobs, generation

    def order(self, *words, code=0):
        asked = self.muster(*words, "--rendezvous", f"127.0.0.2:{self.port}", "--job", "job")
        self.assertEqual(asked.code(), code, asked.err)
        return asked.err

    def nodes(self, formed):
        return [node["node"] for node in formed["nodes"]]

    def test_scaled_down_and_up_again(self):
        (a, b), _ = self.running("ab", "2", "--grow", "never")
        self.assertIn("it goes on with 1 node instead of 2", self.order("scale", "1"))
        formed = self.formed(a, 1)
        self.assertEqual((self.nodes(formed), formed["reason"]), (["a"], "requested"))
        self.until_event(a, "generation_running", generation=1)
        status = self.muster("status", "--rendezvous", f"127.0.0.2:{self.port}", "--json")
        self.assertEqual(status.code(), 0, status.err)
        shown = json.loads(status.out)["jobs"][0]
        self.assertEqual((shown["min_nodes"], shown["max_nodes"]), (1, 1))
        self.assertEqual(self.order("scale", "1:2").count("it goes on with 2 nodes instead of 1"), 1)
        formed = self.formed(a, 2)
        self.assertEqual((self.nodes(formed), formed["reason"]), (["a", "b"], "requested"))
        self.let_go(2)
        for job in (a, b):
            self.assertEqual(job.code(), 0, job.err)
        finished = self.events(b, "job_finished")[0]
        self.assertEqual((finished["outcome"], finished["restarts_used"]), ("succeeded", 0))

    def test_a_drained_node_ends_143_and_the_spare_takes_its_place(self):
        (a, b), generation = self.running("ab", "2", "--max-restarts", "0")
        c = self.member("c", "2")
        self.until_event(c, "node_joined", node="c", role="spare")
        self.assertIn('node "b" is being drained', self.order("drain", "b"))
        self.assertEqual(b.code(), 143, b.err)
        self.assertIn("this node leaves the job: drained by user", b.err)
        self.assertEqual(self.events(b, "job_finished"), [])
        self.assertEqual(self.until_event(a, "node_left", node="b")[0]["reason"], "drained")
        formed = self.formed(a, generation + 1)
        self.assertEqual((self.nodes(formed), formed["reason"]), (["a", "c"], "node_left"))
        self.let_go(generation + 1)
        for job in (a, c):
            self.assertEqual(job.code(), 0, job.err)
        self.assertEqual(self.events(a, "job_finished")[0]["restarts_used"], 0)

    def test_a_restart_costs_nothing(self):
        (a,), _ = self.running("a", "1")
        self.assertIn("generation 0 is stopped and a new one is formed", self.order("restart"))
        self.assertEqual(self.formed(a, 1)["reason"], "requested")
        self.let_go(1)
        self.assertEqual(a.code(), 0, a.err)
        self.assertEqual(self.events(a, "job_finished")[0]["restarts_used"], 0)

    def peers(self):
        jobs, _ = self.running("ab", "1:2", "--last-call", "60s", "--max-restarts", "0",
                               program=self.script(PEERS))
        until(lambda: os.path.exists(self.path("met")), "both ranks to have met")
        return (*jobs, self.pids(jobs[0], 0)[0])

    def goes_on_for_nothing(self, a, reason):
        formed = self.formed(a, 1)
        self.assertEqual((self.nodes(formed), formed["reason"]), (["a"], reason))
        self.let_go(1)
        self.assertEqual(a.code(), 0, a.err)
        self.assertEqual(self.events(a, "generation_failed"), [])
        self.assertEqual(self.events(a, "job_finished")[0]["restarts_used"], 0)

    def test_a_rank_that_fails_over_a_drained_peer_costs_nothing(self):
        a, b, rank0 = self.peers()
        # Its agent hears of the stop only when the rank has failed.
        os.kill(a.agent(), signal.SIGSTOP)
        self.order("drain", "b")
        def ended():
            with open(f"/proc/{rank0}/stat", encoding="ascii") as file:
                return file.read().rpartition(")")[2].split()[0] == "Z"
        until(ended, "rank 0 to fail over its peer")
        os.kill(a.agent(), signal.SIGCONT)
        self.goes_on_for_nothing(a, "node_left")
        self.assertEqual(b.code(), 143, b.err)

    def test_a_rank_that_fails_over_a_leaving_peer_costs_nothing(self):
        a, b, rank0 = self.peers()
        # The server reads the failure and the leave together, in either order.
        self.own.signal(signal.SIGSTOP)
        b.signal(signal.SIGTERM)
        until(lambda: not os.path.exists(f"/proc/{rank0}"), "rank 0 to fail over its peer")
        self.own.signal(signal.SIGCONT)
        self.goes_on_for_nothing(a, "node_left")
        self.assertEqual(b.code(), 143, b.err)

    def test_what_is_refused_says_why(self):
        (a,), _ = self.running("a", "1")
        self.assertIn('has no node "nobody"', self.order("drain", "nobody", code=2))
        self.assertIn("is the last one of job", self.order("drain", "a", code=2))
        self.assertIn("drain needs NODE", self.order("drain", code=2))
        for words in ("0", "3:2", "x", "1:2:3", "1:", "-1"):
            self.assertIn("scale", self.order("scale", words, code=2))
        self.assertIn("no more than", self.order("scale", "1:99999999", code=2))
        self.let_go(0)
        self.assertEqual(a.code(), 0, a.err)
        self.assertIn('job "job" is over', self.order("restart", code=2))

    def test_the_node_that_hosts_the_server_is_not_drained(self):
        port = free_port()
        def node(name):
            return self.run_job("--nnodes", "2", "--rdzv-id", "hosted", "--rdzv-endpoint",
                                f"127.0.0.1:{port}", "--node-name", name, self.worker)
        a = node("a")
        self.until_event(a, "node_joined")
        b = node("b")
        self.until_event(a, "generation_running")
        asked = self.muster("drain", "a", "--rendezvous", f"127.0.0.1:{port}")
        self.assertEqual(asked.code(), 2, asked.err)
        self.assertIn('node "a" hosts the server of job "hosted"', asked.err)
        self.let_go(0)
        for job in (a, b):
            self.assertEqual(job.code(), 0, job.err)


if __name__ == "__main__":
    main()
