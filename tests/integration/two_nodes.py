# SPDX-License-Identifier: Apache-2.0
"""Two nodes on loopback addresses, each its own `muster run`, with a server of either kind."""
import signal

from harness import MusterCase, free_port, until

# Generation 0 runs until told otherwise; later ones end well once everybody is there.
HOLD = ("echo $RANK $WORLD_SIZE $GROUP_RANK $MUSTER_GENERATION $MUSTER_RESTART_REASON "
        "$TORCHELASTIC_RESTART_COUNT $MASTER_ADDR $MASTER_PORT >> seen.$MUSTER_NODE.$LOCAL_RANK\n"
        "trap 'exit 1' TERM\nwhile [ ! -e go.$MUSTER_GENERATION ]; do sleep 0.01; done\n")


class TwoNodes(MusterCase):
    """Node names n0, n1 at 127.0.0.2 and .3; the job is called job."""

    def setUp(self):
        super().setUp()
        self.port = free_port()
        self.worker = self.script(HOLD)

    def node(self, rank, *arguments, nnodes="2", program=None, host="127.0.0.2", **options):
        """The same line on both nodes but for --node-rank and --advertise-addr."""
        return self.run_job("--nnodes", nnodes, "--nproc-per-node", "2", "--rdzv-id", "job",
                            "--rdzv-endpoint", f"{host}:{self.port}", "--node-name", f"n{rank}",
                            "--node-rank", str(rank), "--advertise-addr", f"127.0.0.{2 + rank}",
                            *arguments, program or self.worker, **options)

    def server(self, *arguments):
        server = self.muster("rendezvous", "--listen", f"127.0.0.2:{self.port}",
                             "--state-dir", self.path("server"), *arguments)
        until(lambda: str(self.port) in server.out + server.err, "the server's line")
        return server

    def let_go(self, generation):
        open(self.path(f"go.{generation}"), "w", encoding="utf-8").close()

    def pids(self, job, generation):
        return [event["pid"] for event in self.events(job, "worker_started", generation=generation)]

    def formed(self, job, generation):
        return self.until_event(job, "generation_formed", generation=generation)[0]

    def seen(self, node, local_rank=0):
        with open(self.path(f"seen.n{node}.{local_rank}"), encoding="utf-8") as file:
            return [line.split() for line in file]


class OwnServer(TwoNodes):
    """A server of its own, and members of job `job` with names of their own."""

    def setUp(self):
        super().setUp()
        self.own = self.server()

    def tearDown(self):
        self.own.signal(signal.SIGTERM)
        self.own.code()
        super().tearDown()

    def member(self, name, nnodes, *arguments, program=None):
        return self.run_job("--nnodes", nnodes, "--rdzv-id", "job", "--rdzv-endpoint",
                            f"127.0.0.2:{self.port}", "--node-name", name, "--advertise-addr",
                            "127.0.0.2", "--last-call", "0s", *arguments, program or self.worker)
