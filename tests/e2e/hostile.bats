#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Peers whose texts have escape sequences, newlines and characters that forge what is shown. Nothing of that comes to
# standard output, standard error, the log, the document or metrics.
# check.sh: address

load usual

# end VERSION listen|PORT: an end of another protocol version with a hostile name of its own. listen: a server with its port in
# the file "port", which takes the place of this shell.
end() {
	[[ $2 == listen ]] && local as=exec
	${as-} python3 - "$@" <<'P'
import os, socket, struct, sys
version, where = int(sys.argv[1]), sys.argv[2]
evil = "1\033[31m\033]0;t\007\n0:0:0 ERROR x: forged\r\u009b0m\u202eexe\u2066\u200b"
raw = evil.encode()[:48] + b"\xff\xc0\xaf\x9b\xe2\x80"
hello = b"DUALRAIL" + struct.pack(">HHB", version, 1 + len(raw) + 60, len(raw)) + raw + bytes(32 + 16) + (
    b"\0" if where == "listen" else b"\1") + bytes(11)
if where != "listen":
    c = socket.create_connection(("127.0.0.1", int(where)))
    c.sendall(hello)
    c.shutdown(socket.SHUT_WR)
    while c.recv(4096):
        pass
    sys.exit()
s = socket.create_server(("127.0.0.1", 0))
with open("port.new", "w") as f:
    print(s.getsockname()[1], file=f)
os.rename("port.new", "port")
while True:
    c = s.accept()[0]
    c.sendall(hello)
    c.shutdown(socket.SHUT_WR)
    try:
        while c.recv(4096):
            pass
    except ConnectionError:
        pass
P
}

# shows FILE...: lines of UTF-8 that a terminal shows as they are; a document's texts, too.
shows() {
	python3 - "$@" <<'P'
import json, sys, unicodedata
def check(name, text):
    for ch in text:
        assert ch in "\n\t" or unicodedata.category(ch) not in ("Cc", "Cf", "Zl", "Zp", "Cs", "Cn"), (name, ch, text)
def walk(name, v):
    if isinstance(v, dict):
        for k in v:
            walk(name, k)
            walk(name, v[k])
    elif isinstance(v, list):
        for x in v:
            walk(name, x)
    elif isinstance(v, str):
        assert "\n" not in v and "\t" not in v, (name, v)
        check(name, v)
for name in sys.argv[1:]:
    text = open(name, encoding="utf-8").read()
    check(name, text)
    assert "\n0:0:0 ERROR" not in text, name
    if name.endswith(".json"):
        walk(name, json.loads(text))
    elif name.endswith(".log"):
        for line in text.splitlines():
            walk(name, json.loads(line))
P
}

# listener COMMAND...: starts a server that writes its port to the file "port"; sets port.
listener() {
	rm -f port
	start peer "$@"
	wait_for test -s port
	port=$(cat port)
}

# meet: a client meets that server, in each of its forms of output.
meet() {
	run timeout "$WAIT_S" "$DUALRAIL" client 127.0.0.1 --port "$port" "${SMALL[@]}" --json=c.json --prom c.prom --csv c.csv
	echo "$status $output"
	[ "$status" -eq 3 ]
	printf '%s\n' "$output" >text
	shows text c.json c.prom c.csv
	! timeout "$WAIT_S" "$DUALRAIL" client 127.0.0.1 --port "$port" "${SMALL[@]}" --log-json -v -q >text 2>text.log
	grep -q forged text.log
	shows text
	shows text.log
	run timeout "$WAIT_S" "$DUALRAIL" doctor 127.0.0.1 --port "$port" --json=d.json
	printf '%s\n' "$output" >text
	shows text d.json
}

@test "a server that refuses with a hostile text, and one of another version: clients show what is harmless of it" {
	listener "$DR_BUILD/tests/hostile/hostile_main" port
	meet
	holds c.json '.errors[0].text | contains("refused 1?[31m?]0;t??0:0:0 ERROR x: forged??0m?exe??")'
	listener end 60000 listen
	meet
	holds c.json '.errors[0].text | contains("peer 60000 (dualrail 1?[31m?]0;t??0:0:0 ERROR x: forged??0m?")'
}

@test "a client of another version with a hostile name of it: a server shows what is harmless of it" {
	local log
	for log in '' --log-json; do
		# shellcheck disable=SC2086
		start_server -v $log
		wait_for end 60000 "$port"
		wait_for grep -q 'protocol versions differ: .*peer 60000 (dualrail 1?\[31m?\]0;t??0:0:0 ERROR x: forged??0m?' server.err
		stop server
		cp server.err server.log
		if [[ $log ]]; then shows server.log; else shows server.err; fi
	done
}

@test "a server on a host with a hostile name: the client shows what is harmless of it" {
	unshare -u true 2>/dev/null || skip "a host name of its own needs root"
	free_port
	start server unshare -u python3 -c 'import os, socket, sys
socket.sethostname(b"rack\x1b[31m\r\xc2\x9b0m\xe2\x80\xaeexe\xe2\x80\x8b")
os.execv(sys.argv[1], sys.argv[1:])' "$DUALRAIL" server -g 0-1 --port "$port" -1
	gives 0 client -D 100ms --json=c.json --csv c.csv --prom c.prom
	ends "$server" 0
	printf '%s\n' "$output" >text
	holds c.json '.host.peer.name == "rack?[31m??0m?exe?"'
	shows text c.json c.csv c.prom
}
