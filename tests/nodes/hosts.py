# SPDX-License-Identifier: Apache-2.0
"""Hosts that a test makes: network namespaces on a bridge, with names and addresses of their own.

A host is a network namespace with one link, `eth0`, to a bridge that has a namespace of its own, so
that nothing of it is seen on the machine. What runs on a host has its host name, its hosts file and
its run directories; with `init` it also has a PID namespace in which it is process 1. Links are
broken by nftables on the host that they belong to.

All of it has the maker's pid in its name: what a test that crashed has left is removed by the next
that makes hosts. Needs root, iproute2 and nftables; `missing()` says what is not there.
"""
import os
import re
import shutil
import signal
import subprocess
import time

NETWORK = "10.77.0"
BRIDGE = f"{NETWORK}.1"
NAMES = re.compile(r"^muster-(\d+)\.(\d+)-\w+$")


def missing():
    """Why hosts cannot be made here; None: they can."""
    if os.geteuid() != 0:
        return "test hosts (network namespaces) need root"
    for program, package in (("ip", "iproute2"), ("nft", "nftables"), ("unshare", "util-linux")):
        if shutil.which(program) is None:
            return f"test hosts need {program} (Debian's {package})"
    tried = subprocess.run(["unshare", "--net", "--uts", "--pid", "--fork", "--mount", "sh", "-c",
                            "ip link add v0 type veth peer name v1 && ip link add b0 type bridge && "
                            "nft add table inet t"], capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else "no test hosts: " + tried.stderr.strip()


def run(*words, check=True):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def start_ticks(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rsplit(")", 1)[1].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return None


def namespaces():
    return [line.split()[0] for line in run("ip", "netns", "list").splitlines() if line]


def remove(namespace):
    """With all that runs in it."""
    deadline = time.monotonic() + 10
    while pids := run("ip", "netns", "pids", namespace, check=False).split():
        for pid in pids:
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass
        if time.monotonic() > deadline:
            raise AssertionError(f"processes {pids} of {namespace} do not end")
        time.sleep(0.01)
    run("ip", "netns", "del", namespace, check=False)
    shutil.rmtree(f"/etc/netns/{namespace}", ignore_errors=True)


def sweep():
    """Removes what makers that are dead have left."""
    found = set(namespaces())
    if os.path.isdir("/etc/netns"):
        found.update(os.listdir("/etc/netns"))
    for namespace in found:
        maker = NAMES.match(namespace)
        if maker and start_ticks(maker.group(1)) != maker.group(2):
            remove(namespace)


class Host:
    def __init__(self, hosts, index):
        self.hosts = hosts
        self.name = f"h{index}"
        self.address = f"{NETWORK}.{10 + index}"
        self.namespace = f"{hosts.prefix}-{self.name}"
        self.folder = os.path.join(hosts.folder, self.name)
        os.makedirs(os.path.join(self.folder, "tmp"))
        run("ip", "netns", "add", self.namespace)
        run("ip", "-n", hosts.hub, "link", "add", f"p{index}", "type", "veth", "peer", "name",
            "eth0", "netns", self.namespace)
        run("ip", "-n", hosts.hub, "link", "set", f"p{index}", "master", "br0", "up")
        run("ip", "-n", self.namespace, "link", "set", "lo", "up")
        run("ip", "-n", self.namespace, "link", "set", "eth0", "up")
        run("ip", "-n", self.namespace, "addr", "add", f"{self.address}/24", "dev", "eth0")
        run("ip", "-n", self.namespace, "route", "add", "default", "via", BRIDGE)

    def environment(self):
        """Its own home, state and run directories; its file system is the machine's."""
        return {"HOME": self.folder, "TMPDIR": os.path.join(self.folder, "tmp"),
                "XDG_RUNTIME_DIR": os.path.join(self.folder, "tmp"),
                "XDG_STATE_HOME": os.path.join(self.folder, "state")}

    def words(self, *words, init=False):
        """The command that runs `words` here. A signal to its process reaches `words`, unless it
        is `init`: then it reaches unshare, whose only child is `words`."""
        spaces = ["--uts"] + (["--pid", "--fork", "--kill-child", "--mount-proc"] if init else [])
        return ["ip", "netns", "exec", self.namespace, "unshare", *spaces, "sh", "-c",
                'hostname "$0"; exec "$@"', self.name, *words]

    def pids(self):
        return [int(pid) for pid in run("ip", "netns", "pids", self.namespace).split()]

    def signal(self, number):
        """To everything that runs here, at once as far as that goes."""
        for pid in sorted(self.pids(), reverse=True):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def kill(self):
        """As a power failure: nothing of it says a word any more, nor will. What dies first must
        not be noticed by what dies last: all stand still meanwhile, and parents die after their
        children, for the kernel continues what is stopped when its session's leader dies."""
        self.cut()
        self.freeze()
        while self.pids():
            self.signal(signal.SIGKILL)
            time.sleep(0.005)

    def freeze(self):
        self.signal(signal.SIGSTOP)

    def thaw(self):
        self.signal(signal.SIGCONT)

    # ---- the link

    def nft(self, text):
        subprocess.run(["ip", "netns", "exec", self.namespace, "nft", "-f", "-"], check=True,
                       input=text, text=True)

    def drop(self, inbound="", outbound=""):
        """Packets that these matches of nftables take are dropped; nothing else is any more."""
        rules = {"input": None if inbound is None else f'iifname "eth0" {inbound} drop',
                 "output": None if outbound is None else f'oifname "eth0" {outbound} drop'}
        chains = "".join(f"chain {hook}ward {{ type filter hook {hook} priority 0; {rule}; }}\n"
                         for hook, rule in rules.items() if rule)
        self.heal()
        self.nft(f"table inet cut {{\n{chains}}}\n")

    def cut(self, direction="both", peer=None):
        """`direction`: in, out or both, as this host sees it; `peer`: the link to that one only."""
        match = (f"ip saddr {peer.address}", f"ip daddr {peer.address}") if peer else ("", "")
        self.drop(match[0] if direction != "out" else None, match[1] if direction != "in" else None)

    def lose(self, percent):
        """So many of a hundred packets that come in are lost."""
        self.drop(f"numgen random mod 100 < {percent}", None)

    def heal(self):
        self.nft("table inet cut\ndelete table inet cut\n")


class Hosts:
    """`folder`: where their run directories go; the caller removes it."""

    def __init__(self, count, folder):
        sweep()
        self.folder = folder
        self.prefix = f"muster-{os.getpid()}.{start_ticks(os.getpid())}"
        self.hub = f"{self.prefix}-hub"
        self.dns = None
        self.all = []
        try:
            run("ip", "netns", "add", self.hub)
            run("ip", "-n", self.hub, "link", "set", "lo", "up")
            run("ip", "-n", self.hub, "link", "add", "br0", "type", "bridge")
            run("ip", "-n", self.hub, "addr", "add", f"{BRIDGE}/24", "dev", "br0")
            run("ip", "-n", self.hub, "link", "set", "br0", "up")
            for index in range(count):
                self.all.append(Host(self, index))
            self.name({host.name: host.address for host in self.all})
        except BaseException:
            self.close()
            raise

    def __getitem__(self, index):
        return self.all[index]

    def __iter__(self):
        return iter(self.all)

    def name(self, addresses, resolver=None):
        """The hosts file of every host: name to address. Programs that run see the new one."""
        text = "127.0.0.1 localhost\n" + "".join(f"{address} {name}\n"
                                                 for name, address in addresses.items())
        for host in self.all:
            folder = f"/etc/netns/{host.namespace}"
            os.makedirs(folder, exist_ok=True)
            for file_name, content in (
                    ("hosts", text), ("resolv.conf", f"nameserver {resolver}\n" if resolver else ""),
                    ("nsswitch.conf", "hosts: files dns\n")):
                # In place: it is mounted over the machine's file in what runs already.
                with open(os.path.join(folder, file_name), "w", encoding="ascii") as file:
                    file.write(content)

    def close(self):
        if self.dns:
            self.dns.close()
        for namespace in [host.namespace for host in self.all] + [self.hub]:
            remove(namespace)
        for namespace in namespaces():
            if namespace.startswith(self.prefix + "-"):
                remove(namespace)


class Dns:
    """A name server on the bridge for names that come late, change or go (Debian's dnsmasq)."""

    DOMAIN = "pods.test"

    @staticmethod
    def missing():
        return None if shutil.which("dnsmasq") else "no dnsmasq (Debian's dnsmasq-base)"

    def __init__(self, hosts):
        self.file = os.path.join(hosts.folder, "dns.hosts")
        self.addresses = {}
        self.write()
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", hosts.hub, "dnsmasq", "--keep-in-foreground", "--no-resolv",
             "--no-hosts", f"--addn-hosts={self.file}", f"--local=/{self.DOMAIN}/",
             "--bind-interfaces", f"--listen-address={BRIDGE}", "--local-ttl=0", "--user=root",
             "--pid-file="], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        hosts.dns = self
        hosts.name({}, resolver=BRIDGE)

    def write(self):
        with open(self.file, "w", encoding="ascii") as file:
            for name, address in self.addresses.items():
                file.write(f"{address} {name}.{self.DOMAIN}\n")

    def set(self, name, address):
        """None: there is no such name, which is what it answers then."""
        self.addresses.pop(name, None)
        if address:
            self.addresses[name] = address
        self.write()
        self.process.send_signal(signal.SIGHUP)

    def close(self):
        self.process.terminate()
        self.process.wait()
