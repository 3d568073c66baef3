# SPDX-License-Identifier: Apache-2.0
"""All cores taken for a minute, every setting at its default: nobody is declared lost."""
import os
import signal
import time

from harness import Process, main, until
from two_nodes import TwoNodes

SATURATED_S = 60
# Of all time; what a kernel needs to hand the cores round.
MOST_IDLE = 0.05


def processor_times():
    """(idle, all) of all cores since boot, in clock ticks."""
    with open("/proc/stat", encoding="ascii") as file:
        fields = [int(field) for field in file.readline().split()[1:9]]
    return fields[3] + fields[4], sum(fields)


class Saturation(TwoNodes):
    def test_no_false_loss(self):
        server = self.server()
        nodes = [self.node(rank) for rank in (0, 1)]
        for node in nodes:
            self.until_event(node, "generation_running", generation=0)
        for _ in range(2 * (os.cpu_count() or 1)):
            Process(self, ["/bin/sh", "-c", "while :; do :; done"])
        idle, all_before = processor_times()
        end = time.monotonic() + SATURATED_S
        # It may be over early only by what must not happen.
        until(lambda: time.monotonic() >= end or self.disturbed(nodes), "a minute to pass",
              SATURATED_S + 60)
        idle_after, all_after = processor_times()
        self.assertEqual(self.disturbed(nodes), [])
        self.assertLess((idle_after - idle) / (all_after - all_before), MOST_IDLE)
        self.let_go(0)
        for node in nodes:
            self.assertEqual(node.code(), 0, node.err)
            self.assertEqual(self.events(node, "job_finished")[0]["restarts_used"], 0)
            self.assertEqual(len(self.events(node, "generation_formed")), 1)
        server.signal(signal.SIGTERM)
        server.code()

    def disturbed(self, nodes):
        return [event for node in nodes for name in ("node_left", "generation_failed", "job_finished")
                for event in self.events(node, name)]


if __name__ == "__main__":
    main()
