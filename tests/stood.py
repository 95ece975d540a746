#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stood.py PID: how long the machine kept the processes below PID from running; ms on the standard output when it is ended.

The sum over periods of PERIOD_S of the longest time that one of their threads waited for a processor, times the share of the
processor time that others used in the period. A period counts only if that is a fifth at least: what the processes do to each
other excuses none of them. Added is what this process, before which nobody goes, overslept: then the whole machine stood."""
import os
import signal
import sys
import time

PERIOD_S, SLEEP_S, FOREIGN_LEAST, OVERSLEPT_LEAST_S = 0.25, 0.005, 0.2, 0.005
PROC = "/proc"


def read(path):
    try:
        with open(path, "rb", buffering=0) as f:
            return f.read()
    except OSError:
        return b""


class Family:
    """Threads of the processes below `root`, also of those whose parent has ended since they were seen."""

    def __init__(self, root):
        self.root, self.known, self.threads = root, {root}, {}

    def sample(self):
        """Processor time of all since the last call, and the longest wait of one, in ns."""
        parents = {}
        for name in os.listdir(PROC):
            if name.isdigit() and (stat := read(f"{PROC}/{name}/stat")):
                parents[int(name)] = int(stat[stat.rindex(b")") + 4:].split(b" ", 1)[0])
        self.known &= parents.keys()
        found = True
        while found:
            found = {p for p, parent in parents.items() if parent in self.known and p not in self.known}
            self.known |= found
        ran = longest = 0
        now = {}
        for pid in self.known - {self.root, os.getpid()}:
            try:
                tasks = os.listdir(f"{PROC}/{pid}/task")
            except OSError:
                continue
            for task in tasks:
                if stat := read(f"{PROC}/{pid}/task/{task}/schedstat").split():
                    now[pid, task] = run, wait = int(stat[0]), int(stat[1])
                    before = self.threads.get((pid, task), (0, 0))
                    ran += run - before[0]
                    longest = max(longest, wait - before[1])
        self.threads = now
        return ran, longest


def used_ns():
    """Processor time of all processes, and what other machines of the host took; interrupts belong to nobody."""
    user, nice, system, _idle, _iowait, _irq, _softirq, steal = map(int, read(f"{PROC}/stat").split(None, 9)[1:9])
    return (user + nice + system + steal) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def excused(used, ran, waited):
    """Of the time that one waited, what others caused; used: by all, ran: by those that are watched."""
    others = max(used - ran, 0)
    return waited * others / used if others > FOREIGN_LEAST * used else 0


def main():
    ended, stood_s, family = [], 0.0, Family(int(sys.argv[1]))
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    alone = True
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        alone = False
    family.sample()
    used, due = used_ns(), time.monotonic() + PERIOD_S
    while not ended or due:
        before = time.monotonic()
        if not ended:
            time.sleep(SLEEP_S)
        now = time.monotonic()
        if alone and now - before - SLEEP_S > OVERSLEPT_LEAST_S:
            stood_s += now - before - SLEEP_S
        if now >= due or ended:
            ran, longest = family.sample()
            if family.root not in family.known:
                return  # it ended, and nobody asks any more
            before, used = used, used_ns()
            stood_s += excused(used - before, ran, longest) / 1e9
            due = 0 if ended else now + PERIOD_S
    print(round(stood_s * 1000))


if __name__ == "__main__":
    main()
