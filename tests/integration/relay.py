# SPDX-License-Identifier: Apache-2.0
"""A TCP relay in front of a server that can fall silent, in either direction, without closing
anything, and break every connection with a reset, once or for good."""
import select
import socket
import struct
import threading

from harness import until

UP, DOWN = "up", "down"  # towards the server, and back


class Relay:
    def __init__(self, address, server):
        self.server = server
        self.held = frozenset()
        self.refusing = False
        self.resetting = False
        self.ending = False
        self.lines = []  # [(client, server, {direction: bytes on the way})]
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(address)
        self.listener.listen()
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def hold(self, *directions):
        """Nothing passes any more, also not what is on the way, nor of new connections."""
        self.held = frozenset(directions)

    def release(self):
        self.held = frozenset()

    def reset(self, refuse=False):
        """Breaks all connections; with `refuse` those to come, too."""
        self.refusing = refuse
        self.resetting = True
        until(lambda: not self.resetting, "the connections to break")

    def close(self):
        self.ending = True
        self.thread.join()

    def serve(self):
        while not self.ending:
            self.turn()
        for line in list(self.lines):
            self.cut(line)
        self.listener.close()

    def turn(self):
        if self.resetting:
            for line in list(self.lines):
                self.cut(line)
            self.resetting = False
        held = self.held
        reading, writing = {self.listener: None}, {}
        for line in self.lines:
            for direction, source, target in ((UP, line[0], line[1]), (DOWN, line[1], line[0])):
                if direction in held:
                    continue
                if line[2][direction]:
                    writing[target] = (line, direction)
                else:
                    reading[source] = (line, direction)
        readable, writable, _ = select.select(reading, writing, [], 0.01)
        for ready in readable:
            if ready is self.listener:
                self.accept()
            else:
                self.move(*reading[ready], lambda line, way, s=ready: self.take(line, way, s))
        for ready in writable:
            self.move(*writing[ready], lambda line, way, s=ready: self.give(line, way, s))

    def move(self, line, direction, step):
        if line not in self.lines or direction in self.held:
            return
        try:
            step(line, direction)
        except OSError:
            self.cut(line)

    def take(self, line, direction, source):
        line[2][direction] = source.recv(65536)
        if not line[2][direction]:
            self.cut(line)

    @staticmethod
    def give(line, direction, target):
        sent = target.send(line[2][direction])
        line[2][direction] = line[2][direction][sent:]

    def accept(self):
        client, _ = self.listener.accept()
        line = (client, socket.socket(), {UP: b"", DOWN: b""})
        self.lines.append(line)
        try:
            if self.refusing:
                raise ConnectionRefusedError
            line[1].connect(self.server)
            for end in line[:2]:
                end.setblocking(False)
        except OSError:
            self.cut(line)

    def cut(self, line):
        self.lines.remove(line)
        for end in line[:2]:
            # Closed with a reset, not with a farewell.
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.close()
