# SPDX-License-Identifier: Apache-2.0
"""Gives every form of an option that texts name to the program's own parser.

forms.py DUALRAIL FILE.md...

The texts are the help of every command, the man page and the files: of these the command lines of dualrail and
run_p2p.sh in fenced blocks, and code spans that begin with them or with an option ("--rails: ..." is a message). A form without a command has to be
taken by some command. A value that is a placeholder (with a capital letter, "...", "$") may be refused, and so may an
option that is named without its value. Prints the forms that are refused, or their number; status 1: some are.
"""
import re
import shlex
import subprocess
import sys

COMMANDS = "server client demo topo doctor preflight sweep compare report plugin".split()
COMMAND = re.compile(r"\b(?:dualrail|run_p2p\.sh) +((?:%s|-)[^\n]*)" % "|".join(c + r"\b" for c in COMMANDS))
# Options of other programs: perftest and iperf3 in a comparison, and k8s/deploy.sh.
FOREIGN = {"docs/COMPARE.md": r"-[a-zA-Z]|--tolerance", "k8s/README.md": r"--(?:world-size|gpus-per-node|overlay|set|claim)"}
UNKNOWN = ("unknown option", "is not for", "is not expected", "is not a command")


def cut(line):
    """The words of a command line up to the first operator of the shell."""
    line = re.split(r"[|;&>#\\)]|2>", line)[0]
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


def markdown(text):
    for k, block in enumerate(re.split(r"(?m)^ *```.*$", text)):
        for piece in block.split("\n") if k % 2 else re.findall(r"`([^`]+)`", block):
            command = COMMAND.search(piece.replace("\n", " "))
            if command:
                yield cut(command[1])
            elif not k % 2 and re.match(r"(--[a-z][a-z-]*(?![a-z-]*:)|-[a-zA-Z]( |$)|-vv)", piece):
                yield cut(piece)


def table(text):
    """Options of help, or of the man page without its marks."""
    for both in re.findall(r"(?m)^(?:  )?(?:(-.), |    )?(--[a-z]\S*)", text):
        yield from ([form] for form in both if form)
    yield from ([form] for form in re.findall(r"\((-v+)\)", text))


def run(program, *args):
    return subprocess.run([program, *args], stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def refused(program, args, optional):
    """None: some command takes them; else why not. optional: the value of the last one may be left out."""
    own, why = args[0] in COMMANDS, ""
    for command in args[:1] if own else COMMANDS:
        end = run(program, command, "--help", *args[own:])
        placeholder = re.search(r"[A-Z$]|\.\.\.", " ".join(args[own:])) or (not optional and "needs a" in end.stdout)
        known = not any(u in end.stdout for u in UNKNOWN)
        if end.returncode == 0 or (placeholder and known):
            return None
        if known or not why:
            why = end.stdout.strip()
    return why


def main():
    program, *files = sys.argv[1:]
    forms = {}

    def add(where, found):
        for args in found:
            options = [re.split(r"[\[=]", a)[0] for a in args if a.startswith("-")]
            if not options or re.fullmatch(FOREIGN.get(where, "(?!)"), options[0]):
                continue
            if args[-1].endswith("]"):
                forms[(*args[:-1], args[-1].split("[=")[0])] = (where, True)
            forms.setdefault(tuple(re.sub(r"\[=(.*)\]", r"=\1", a) for a in args), (where, False))

    for command in COMMANDS:
        add(command + " --help-all", ([command, *f] for f in table(run(program, command, "--help-all").stdout)))
    add("man page", table(re.sub(r"\\f.|\\", "", run(program, "--man").stdout)))
    for name in files:
        with open(name, encoding="utf-8") as f:
            add(name, markdown(f.read()))
    why = {form: refused(program, form, optional) for form, (where, optional) in forms.items()}
    for form, text in why.items():
        if text:
            print(f"{forms[form][0]}: {' '.join(form)}: {text}")
    if any(why.values()):
        sys.exit(1)
    print(len(forms), "forms")


main()
