# SPDX-License-Identifier: Apache-2.0
"""Two network namespaces with veth rails and a control link, and a run of dualrail between them.

The process that makes a Lab moves into node a (the client's side) for good; node b is the server's.
Node a has .1, node b .2 in 10.90.<rail>.0/24; the control link is 10.90.255.0/24. Rails are shaped, so
that there is always data in flight and the processors are not what limits.
"""
import ctypes
import json
import os
import shutil
import signal
import subprocess
import time

CONTROL = "10.90.255.2"
CLONE_NEWNET = 0x40000000
TCP_LISTEN = "0A"
PORT = 20000
VALIDATE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "validate.py")


class Skip(Exception):
    """What the machine lacks; no fault of ours."""


def now():
    return time.monotonic_ns()


def sh(*words, text=None, check=True):
    r = subprocess.run(words, input=text, capture_output=True, text=True)
    if check and r.returncode:
        raise RuntimeError("%s: %s" % (" ".join(words), (r.stderr or r.stdout).strip()))
    return r


def require(tools):
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    if os.geteuid() != 0:
        raise Skip("needs root, for network namespaces")
    for tool in tools:
        if not shutil.which(tool):
            raise Skip("%s is not installed" % tool)


def enter(netns):
    """The calling thread, and what it starts from here on."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open("/var/run/netns/" + netns, os.O_RDONLY)
    try:
        if libc.setns(fd, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns " + netns)
    finally:
        os.close(fd)


def sockets(pid):
    """TCP sockets of a process's namespace, as /proc words them: local address, remote, state, queues .."""
    out = []
    for name in ("tcp", "tcp6"):
        try:
            with open("/proc/%s/net/%s" % (pid, name)) as f:
                out += [line.split() for line in f.readlines()[1:]]
        except OSError:
            pass
    return out


class Lab:
    def __init__(self, name, rate="500mbit", rails=2, mtu=1500):
        self.ns = {"client": name + "a", "server": name + "b"}
        self.rails, self.rate, self.tables = rails, rate, 0
        self.shaped = rate != "none"
        try:
            for ns in self.ns.values():
                sh("ip", "netns", "add", ns)
        except RuntimeError as e:
            self.destroy()
            raise Skip("network namespaces cannot be made here (%s)" % e)
        try:
            for i in range(rails):
                self._link("rail%d" % i, "10.90.%d" % i, mtu)
            self._link("ctl0", "10.90.255", mtu)
            try:
                for i in range(rails if self.shaped else 0):
                    for side in self.ns:
                        self.shape(side, i, rate, "add")
            except RuntimeError as e:
                raise Skip("no token bucket here, see --rate none (%s)" % e)
            self._await_carrier()
        except BaseException:
            self.destroy()
            raise
        enter(self.ns["client"])

    def _link(self, dev, net, mtu):
        a, b = self.ns["client"], self.ns["server"]
        sh("ip", "link", "add", dev, "mtu", str(mtu), "netns", a, "type", "veth", "peer", "name", dev,
           "mtu", str(mtu), "netns", b)
        for ns, host in ((a, 1), (b, 2)):
            sh("ip", "-n", ns, "addr", "add", "%s.%d/24" % (net, host), "dev", dev)
            sh("ip", "-n", ns, "link", "set", dev, "up")
            sh("ip", "-n", ns, "link", "set", "lo", "up")

    def _await_carrier(self):
        end = time.monotonic() + 10
        for ns in self.ns.values():
            while "NO-CARRIER" in sh("ip", "-n", ns, "-o", "link").stdout:
                if time.monotonic() > end:
                    raise RuntimeError("the veth pairs have no carrier")
                time.sleep(0.02)

    def destroy(self):
        for ns in self.ns.values():
            for pid in sh("ip", "netns", "pids", ns, check=False).stdout.split():
                if int(pid) != os.getpid():  # whatever else is in there was started here
                    try:
                        os.kill(int(pid), signal.SIGKILL)
                    except OSError:
                        pass
            sh("ip", "netns", "del", ns, check=False)

    # ---- faults of the world outside ----

    def link(self, side, dev, state):
        sh("ip", "-n", self.ns[side], "link", "set", dev, state)

    def shape(self, side, rail, rate, verb="change"):
        # The queue holds all that the windows allow, so that it is shaping and not loss.
        sh("tc", "-n", self.ns[side], "qdisc", verb, "dev", "rail%d" % rail, "root", "handle", "1:", "tbf",
           "rate", rate, "burst", "128kb", "limit", "4mb")

    def nft(self, side, text):
        return sh("ip", "netns", "exec", self.ns[side], "nft", "-f", "-", text=text).stdout

    def filter_on(self, side, dev, rule):
        """A rule at the ingress hook of a device; what to give to filter_off."""
        self.tables += 1
        name = "t%d" % self.tables
        self.nft(side, "table netdev %s { chain c { type filter hook ingress device %s priority 0; %s; }; }\n"
                 % (name, dev, rule))
        return side, name

    def filter_off(self, handle):
        """Packets that the rule counted."""
        side, name = handle
        out = sh("ip", "netns", "exec", self.ns[side], "nft", "list", "table", "netdev", name).stdout.split()
        self.nft(side, "delete table netdev %s\n" % name)
        return sum(int(out[i + 1]) for i, w in enumerate(out) if w == "packets")

    def restore(self):
        """As new, whatever a run left behind."""
        for side in self.ns:
            self.nft(side, "flush ruleset\n")
            for dev in ["ctl0"] + ["rail%d" % i for i in range(self.rails)]:
                self.link(side, dev, "up")
            for i in range(self.rails if self.shaped else 0):
                self.shape(side, i, self.rate)
        self._await_carrier()

    # ---- what can be seen from outside ----

    @staticmethod
    def counters(pid="self"):
        """{device: (rx bytes, rx packets, tx bytes, tx packets)} of a process's namespace."""
        out = {}
        with open("/proc/%s/net/dev" % pid) as f:
            for line in f.readlines()[2:]:
                dev, rest = line.split(":")
                v = rest.split()
                out[dev.strip()] = (int(v[0]), int(v[1]), int(v[8]), int(v[9]))
        return out

    def sent(self):
        c = self.counters()
        return sum(c["rail%d" % i][2] for i in range(self.rails))

    def unacknowledged(self, rail=None):
        """Bytes that node a's sockets hold for the rails and that node b has not acknowledged."""
        n = 0
        for v in sockets("self"):
            addr = bytes.fromhex(v[1].split(":")[0][-8:])[::-1]  # of a mapped one the IPv4 part
            if addr[:2] == bytes((10, 90)) and addr[2] < 255 and rail in (None, addr[2]):
                n += int(v[4].split(":")[0], 16)
        return n


class Run:
    """One server for one client, and that client."""

    def __init__(self, lab, dualrail, folder, client, server=(), one_off=True):
        self.lab, self.folder, self.dualrail = lab, folder, dualrail
        os.makedirs(folder, exist_ok=True)
        self.files = {side: os.path.join(folder, side + ".json") for side in lab.ns}
        for f in self.files.values():
            if os.path.exists(f):
                os.remove(f)
        self.log = {side: open(os.path.join(folder, side + ".log"), "w") for side in lab.ns}
        self.server_args, self.client_args = list(server), list(client)
        self.one_off = one_off
        self.proc = {}
        self.status = {"client": None, "server": None}

    def start_server(self):
        args = ["ip", "netns", "exec", self.lab.ns["server"], self.dualrail, "server", "-q"]
        args += ["-1"] if self.one_off else []
        args += ["--json=" + self.files["server"], *self.server_args]
        p = self.proc["server"] = subprocess.Popen(
            args, stdin=subprocess.DEVNULL, stdout=self.log["server"], stderr=subprocess.STDOUT)
        end = time.monotonic() + 30
        while not self._listens(p.pid):
            if p.poll() is not None or time.monotonic() > end:
                raise RuntimeError("the server does not listen: see %s" % self.folder)
            time.sleep(0.01)

    @staticmethod
    def _listens(pid):
        port = ":%04X" % PORT
        return any(v[3] == TCP_LISTEN and v[1].endswith(port) for v in sockets(pid))

    def start_client(self):
        args = [self.dualrail, "client", CONTROL, "-q", "-i", "0", "--json=" + self.files["client"]]
        self.proc["client"] = subprocess.Popen(
            args + self.client_args, stdin=subprocess.DEVNULL, stdout=self.log["client"],
            stderr=subprocess.STDOUT)

    def alive(self, side="client"):
        return self.proc[side].poll() is None

    def kill(self, side, sig):
        self.proc[side].send_signal(sig)

    def wait(self, side, deadline):
        """Exit status (negative: signal), None when it did not end by then."""
        try:
            self.status[side] = self.proc[side].wait(max(0.01, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass
        return self.status[side]

    def flows(self, seconds, least=1):
        """Until `least` further bytes went out on the rails; False: the client ended, or time is up."""
        end, was = time.monotonic() + seconds, self.lab.sent()
        while self.lab.sent() - was < least:
            if not self.alive() or time.monotonic() > end:
                return False
            time.sleep(0.01)
        return True

    def document(self, side):
        try:
            with open(self.files[side]) as f:
                document = json.load(f)
        except (OSError, ValueError):
            return None
        found = subprocess.run([VALIDATE, self.dualrail, self.files[side]], capture_output=True, text=True)
        if found.returncode:
            raise SystemExit(found.stdout + found.stderr)
        return document

    def stop(self):
        for p in self.proc.values():
            if p.poll() is None:
                p.send_signal(signal.SIGCONT)
                p.kill()
            p.wait()
        for f in self.log.values():
            f.close()
