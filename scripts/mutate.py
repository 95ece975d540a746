#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants bugs in copies of the tree and runs the tests that should find them.

  scripts/mutate.py [-n COUNT] [--seed N] [--minutes M] [--jobs N] [--verbose] [--strict] FOLDER...
  scripts/mutate.py --patches DIR [--jobs N] [NAME...]

The first form changes one place of a production file of FOLDER at random and runs FOLDER's tests (TESTS below), until one
fails. The COUNT mutants (1) have the seeds N, N + 1 and so on (default: fresh ones). What does not compile, gives the same
object or was planted before is drawn again. A survivor is printed with the seed that repeats it, and counts as skipped;
with --strict as failed. A timeout, ten seconds more than five times the time of the unchanged tree, kills a mutant; if that
takes longer now, the test has as much more. After M minutes no further mutant begins, and the seed to go on with is printed.

The second form applies each patch of DIR, or those whose names begin with NAME. One of the tests that the patch names
(`# Killed by: TEST, TEST`) has to fail; a patch that does not apply, a crash or a timeout (110 s later) is a failure.

A test that fails on the unchanged tree is left out and counts as failed. A mutant may signal any process, so each test has
a PID namespace of its own (as root, or where the kernel lets users make one). Environment: B, the copies are made in
B/mutate (build); and what make and the compiler read (CC, PKG_CONFIG_PATH, CPATH, LIBRARY_PATH, LD_LIBRARY_PATH).
"""
import argparse, collections, filecmp, glob, os, random, re, shlex, shutil, signal, subprocess, sys, threading, time
from concurrent.futures import ThreadPoolExecutor

# Per folder, globs of its tests without ".c"; variables may stand before, arguments behind. FILES: what tests load.
SIM = "SEED=1 SEEDS=300 SHRINK=0 tests/sim/sim_test"
SEARCH = [f"tests/exhaustive/exhaustive_main kind=stream parts=1 {scope}" for scope in (
    "faults=1 cold=1 lazy=1", "faults=2 prompt=1", "clock=1 idle=1 faults=1 may=2")]
TESTS = {
    "channel": ["channel/*_test", SIM, *SEARCH, "tests/conformance/conformance_test tcp*", "tests/fakeverbs/failback_test"],
    "detect": ["detect/*_test", "channel/*_test", SIM],
    "window": ["window/*_test", SIM],
    "transport": ["transport/**/*_test", "tests/conformance/*_test", "tests/fakeverbs/*_test", SIM,
                  "tests/plugins/*_test"],
    "bootstrap": ["bootstrap/*_test"],
    "plugin": ["plugin/*_test",
               "NCCL_SOCKET_IFNAME=lo tests/plugin/contract_main --versions 11 b/libnccl-net-ha.so"],
}
FILES = ["b/tests/fakeverbs/ibverbs_plugin.so", "b/tests/fakecuda/cuda_plugin.so"]
MAKE = ["env", "-u", "B", "-u", "MAKEFLAGS", "-u", "MAKELEVEL", "-u", "MFLAGS", "make", "-s", "B=b", "CFLAGS=-O2 -g0"]
ISOLATED = ["unshare", *([] if os.geteuid() == 0 else ["-r"]), "-pf", "--kill-child", "--mount-proc",
            "sh", "-c", 'ulimit -c 0; ulimit -f 2000000; "$@"; exit $?', "sh"]
START = time.monotonic()
DRAWS = 300  # of one seed: then nothing new is left
COLUMNS = ["killed", "timeout", "survived", "none left"]

# Not changed: texts for people, and checks whose absence is no bug.
QUIET = re.compile(r"\b(dr_(d?assert|err_set|error|warn|info|debug|log\w*|say|complain|\w*_name)|assert|static_assert"
                   r"|\w*printf|strerror)\(")
BLANK = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|^[ \t]*#(?:\\\n|[^\n])*", re.S | re.M)
WAKE = re.compile(r"(?:\w+_)?(arm|wake|notify|kick|signal|nudge|poke|due|touch)(?:_\w+)?\(")
KEYWORD = r"(?:return|if|for|while|else|do|switch|case|default|goto|sizeof)\b"
DECLARATION = re.compile(r"(?:const|static|struct|unsigned|enum|union)\b|\w+\s+\**\s*\w+\s*(?:\[|=|;|,)")
OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">", "&&": "||", "||": "&&"}


def closing(text, at):
    """The place behind the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] in "([{") - (text[i] in ")]}")
        if depth == 0:
            return i + 1
    return len(text)


def masked(text):
    """The text with comments, strings, directives and QUIET calls replaced by as many other characters."""
    text = BLANK.sub(lambda m: re.sub(r"[^\n]", "_" if m[0][0] in "\"'" else " ", m[0]), text)
    for m in QUIET.finditer(text):
        end = closing(text, m.end() - 1)
        text = text[:m.start()] + re.sub(r"[^\n]", "_", text[m.start():end]) + text[end:]
    return text


def functions(text):
    """(body, its place, how to leave it) of each function."""
    at = 0
    while (at := text.find("{", at)) >= 0:
        end, head = closing(text, at), text[:at].rstrip()
        if head.endswith(")") and not re.search(r"validate\([^()]*\)$", head):  # which only asserts
            void = re.match(r"(?:\w+\s+)*?void\s+\w+\(", re.split(r"[;}]", head)[-1].strip())
            yield text[at + 1:end - 1], at + 1, "return;" if void else "return 0;"
        at = end


def places(src):
    """(operator, first, last place, what may stand there instead) of all that can change; the number of lines stays."""
    for body, at, leave in functions(masked(src)):
        def found(pattern, group=0, flags=0):
            return [(m, at + m.start(group), at + m.end(group)) for m in re.finditer(pattern, body, flags)]

        def declared(m):
            return DECLARATION.match(body[body.rfind("\n", 0, m.start()) + 1:].lstrip())
        for m, a, b in found(r"(?<![<>=!+*/%&|^-])(?:[!=<>]=|[<>])(?![<>=])|&&|\|\|"):
            yield "and, or" if m[0] in ("&&", "||") else "comparison", a, b, [OPPOSITE[m[0]]]
            if m[0][0] in "<>":
                yield "boundary", a, b, [m[0][0] if "=" in m[0] else m[0] + "="]
        for m, a, b in found(r"(?<![\w.])(0[xX][0-9a-fA-F]+|\d+)([uUlL]*)(?![\w.])"):
            n = int(m[1], 8 if re.fullmatch(r"0[0-7]+", m[1]) else 0)
            if not (body[m.start() - 1] == "[" and declared(m)):
                yield "constant", a, b, [f"{k}{m[2]}" for k in sorted({n + 1, abs(n - 1), 2 * n, 0} - {n})]
        for m, a, b in found(r"^\t+((?!%s)[a-z+-][^;{}]*;)[ \t]*$" % KEYWORD, 1, re.M):
            lines, s = "\n" * m[1].count("\n"), m[1]
            if s.count("(") == s.count(")") and re.search(r"[=(]|[+-]{2}|^break|^continue", s) and not DECLARATION.match(s):
                yield "missing wake-up" if WAKE.match(s) else "deleted statement", a, b, [";" + lines]
                yield "early return", a, b, [leave + lines]
        for m, _, b in found(r"(?<=[(,])(?=\s*([^(),;{}]+),\s*([^(),;{}]+)[,)])"):
            one, two = (src[at + m.start(g):at + m.end(g)] for g in (1, 2))
            if one != two and not re.search(r"\bDR_M(AX|IN)\($", body[:m.start()]):
                yield "swapped arguments", at + m.start(1), at + m.end(2), [two + src[at + m.end(1):at + m.start(2)] + one]
        for m, a, b in found(r"(?<=[\w\])])\[([^\[\]]+)\]", 1):
            if not declared(m):
                yield "wrong index", a, b, [f"({src[a:b]}) + 1", f"({src[a:b]}) ^ 1"] + ["0"] * (src[a:b] != "0")
        for m, _, a in found(r"\b(if|while) (?=\()"):
            b = at + closing(body, a - at)
            either = [f"(0 && {src[a:b]})", f"(1 || {src[a:b]})"] if m[1] == "if" else []
            yield "negated condition", a, b, [f"(!{src[a:b]})"] + either


def drawn(folder):
    """A function of a seed that gives its mutants: (number of the draw, path, old text, new text, what was changed)."""
    paths, by_operator = sorted(glob.glob(f"{folder}/**/*.c", recursive=True)), collections.defaultdict(list)
    texts = {path: open(path).read() for path in paths if not re.search(r"_(test|main|plugin|fuzz)\.c$", path)}
    for path, text in texts.items():
        for op, *place in places(text):
            by_operator[op].append((path, *place))

    def draws(seed):
        rng = random.Random(f"{folder} {seed}")
        for number in range(DRAWS):
            op = rng.choice(sorted(by_operator))
            path, a, b, news = rng.choice(by_operator[op])
            old = texts[path]
            yield number, path, old, old[:a] + rng.choice(news) + old[b:], f"{path}:{old.count(chr(10), 0, a) + 1} {op}"
    return draws


def expand(entries):
    """The commands of entries of TESTS."""
    parts = [re.match(r"((?:\w+=\S+ )*)(\S+)(.*)", entry).groups() for entry in entries]
    return [f"{env}b/{s[:-2]}{args}" for env, p, args in parts for s in sorted(glob.glob(f"{p}.c", recursive=True))]


def built(*tests):
    return [w for t in tests for w in shlex.split(t) if w.startswith("b/")]


class Hunt:
    """A built tree, copies of it by hard links, and what is known of the tests ({folder or patch: its tests})."""

    def __init__(self, o, tests):
        self.o, self.tests, self.work = o, tests, os.path.abspath(os.environ.get("B", "build")) + "/mutate"
        self.tree, every = f"{self.work}/tree", list(dict.fromkeys(sum(tests.values(), [])))
        self.seen, self.times, self.left, self.count = set(), {}, [], collections.Counter()
        os.makedirs(self.tree, exist_ok=True)  # its objects stay for the next time
        subprocess.run(f"""find {self.tree} -mindepth 1 -maxdepth 1 ! -name b -exec rm -rf {{}} + && mkdir {self.tree}/tmp &&
            cp -a $(ls | grep -vxE "build|dist") {self.tree}""", shell=True, check=True)
        if subprocess.run([*MAKE, f"-j{o.jobs}", *built(*every), *FILES], cwd=self.tree).returncode:
            sys.exit("the tree as it is does not build")
        self.each(self.unchanged, sorted(every, key=lambda t: "tests/" not in t))
        print(f"the tree as it is: {len(self.times)} of {len(every)} tests pass", flush=True)

    def each(self, do, items):
        """Each thread has a copy of its own."""
        with ThreadPoolExecutor(self.o.jobs) as pool:
            list(pool.map(lambda item: do(self.work + "/" + threading.current_thread().name.split("_")[1], item), items))

    def fresh(self, copy, changed=()):
        """Makes the copy anew, with these sources as files of its own, and without their objects."""
        shutil.rmtree(copy, ignore_errors=True)
        subprocess.run(["cp", "-al", self.tree, copy], check=True)
        for path in changed:
            os.unlink(f"{copy}/{path}")
            shutil.copy(f"{self.tree}/{path}", f"{copy}/{path}")
            for end in "od":
                os.unlink(f"{copy}/b/{path[:-1]}{end}")

    def make(self, copy, *targets):
        """Whether the targets are built, without a warning that other compilers treat as an error."""
        p = subprocess.run([*MAKE, *targets], cwd=copy, stdin=subprocess.DEVNULL, text=True, capture_output=True)
        return p.returncode == 0 and not re.search(r"\[-W(int-conversion|incompatible-pointer-types)", p.stderr)

    def run(self, copy, test, limit):
        """The exit status of a test; None if it was stopped."""
        words = shlex.split(test)
        at = next(i for i, w in enumerate(words) if "=" not in w)
        env = dict(os.environ, TMPDIR=f"{copy}/tmp", **dict(w.split("=", 1) for w in words[:at]))
        with subprocess.Popen([*ISOLATED, *words[at:]], cwd=copy, env=env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True) as p:
            try:
                return p.wait(limit)
            except subprocess.TimeoutExpired:
                os.killpg(p.pid, signal.SIGKILL)

    def unchanged(self, _, test):
        start, rc = time.monotonic(), self.run(self.tree, test, 900)
        self.times[test] = time.monotonic() - start
        if rc not in (0, 77):
            del self.times[test]
            self.count["failed"] += 1
            print(f"FAIL  {test}  (on the unchanged tree: status {rc})", flush=True)

    def first_to_fail(self, copy, tests):
        """(test, status) of the first one that fails. The second make builds all others: it takes longer than most tests."""
        spare = 120 if self.o.patches else 10  # a patch has to be found, not to hang
        for i, test in enumerate(tests):
            if i >= 2 or self.make(copy, *built(*tests[i:] if i else tests[:1])):
                rc, start = self.run(copy, test, spare + 5 * self.times[test]), time.monotonic()
                if rc is None and self.run(self.tree, test, 900) in (0, 77):  # it hangs, or the machine is slower now
                    now = time.monotonic() - start
                    rc = self.run(copy, test, spare + 5 * now) if now > 2 * self.times[test] else None
                if rc not in (0, 77):
                    return test, rc
        return None, 0

    def mutant(self, copy, item):
        folder, draws, seed, only = item
        if time.monotonic() > self.o.minutes * 60 + START:
            return self.left.append(seed)
        for number, path, old, new, what in draws(seed):
            if (path, new) not in self.seen and only in ("", str(number)):
                self.seen.add((path, new))
                self.fresh(copy, [path])
                with open(f"{copy}/{path}", "w") as f:
                    f.write(new)
                if self.make(copy, o := f"b/{path[:-1]}o") and not filecmp.cmp(f"{copy}/{o}", f"{self.tree}/{o}", False):
                    break
        else:
            self.count[folder, "none left"] += 1
            return
        # The tests of this file first, then the quickest.
        shared = {t: len(os.path.commonprefix([os.path.basename(path), os.path.basename(built(t)[0])])) for t in self.times}
        test, rc = self.first_to_fail(copy, sorted(self.times.keys() & self.tests[folder], key=lambda t: (
            -shared[t] if shared[t] > 3 else 0, self.times[t])))
        verdict = "survived" if test is None else "timeout" if rc is None else "killed"
        self.count[folder, verdict] += 1
        if test is None:
            print(f"SKIP  {what}  (survived; again: scripts/mutate.py --seed {seed}.{number} {folder})",
                  *(f"      -{a}\n      +{b}" for a, b in zip(old.split("\n"), new.split("\n")) if a != b),
                  sep="\n", flush=True)
        elif self.o.verbose:
            print(f"{verdict}  {seed}.{number} {what}  ({test})", flush=True)

    def patch(self, copy, file):
        text, rc = open(file).read(), 0
        paths = re.findall(r"^\+\+\+ b/(\S+)", text, re.M)
        self.fresh(copy, paths)
        patch = ["patch", "-p1", "-F0", "-s", "-N", "--no-backup-if-mismatch"]
        applied = not subprocess.run(patch, cwd=copy, input=text, text=True, capture_output=True).returncode
        if applied := applied and self.make(copy, *(f"b/{path[:-1]}o" for path in paths)):
            test, rc = self.first_to_fail(copy, [t for t in self.tests[file] if t in self.times])
        good = rc and rc <= 128 + signal.SIGABRT
        self.count["killed" if good else "failed"] += 1
        why = f"by {test}" if good else f"not found: status {rc}" if applied else "does not apply or compile"
        print(f"{'PASS' if good else 'FAIL'}  {os.path.basename(file)[:-6]}  ({why})", flush=True)


def main():
    o = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    o.add_argument("-n", type=int, default=1)
    o.add_argument("--seed", default=str(random.SystemRandom().randrange(10**8)))
    o.add_argument("--minutes", type=float, default=1e9)
    o.add_argument("--jobs", type=int, default=os.cpu_count())
    o.add_argument("--verbose", action="store_true")
    o.add_argument("--strict", action="store_true")
    o.add_argument("--patches")
    o.add_argument("names", nargs="*")
    o = o.parse_args()
    os.chdir(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if o.patches:
        files = sorted(f for n in o.names or [""] for f in glob.glob(f"{o.patches}/{n}*.patch"))
        hunt = Hunt(o, {f: expand(re.search(r"# Killed by: (.*)", open(f).read())[1].split(", ")) for f in files})
        hunt.each(hunt.patch, files)
        killed, survived = hunt.count["killed"], 0
    else:
        draws, (seed, _, only) = {f: drawn(f) for f in o.names}, o.seed.partition(".")
        hunt = Hunt(o, {f: expand(TESTS[f]) for f in o.names})
        hunt.each(hunt.mutant, [(f, draws[f], int(seed) + i, only) for i in range(o.n) for f in o.names])
        for row in [["folder", *COLUMNS], *([f, *(hunt.count[f, c] for c in COLUMNS)] for f in o.names)]:
            print(f"{row[0]:<12}", *(f"{v:>9}" for v in row[1:]))
        if hunt.left:
            print(f"the time is over; go on with --seed {min(hunt.left)} -n {max(hunt.left) - min(hunt.left) + 1}")
        killed, timeout, survived, _ = (sum(hunt.count[f, c] for f in o.names) for c in COLUMNS)
        killed += timeout
    failed = hunt.count["failed"] + (survived if o.strict else 0)
    print(f"{killed} passed, {failed} failed, {0 if o.strict else survived} skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
