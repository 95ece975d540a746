# SPDX-License-Identifier: Apache-2.0
# Rules on C text; `rule` (awk -v) is one of
#   calls        banned calls (each message names what to use), function length, layers
#   folders      the order of the folders inside orchestrator/, private headers
#   parameters   at most six parameters per function
# Input: C files. Comments and strings are blanked before the rules look, so that prose may name a
# call. A line whose comment holds "lint-ok: REASON" is excused from the banned calls, and a function with
# such a comment between its name and its body from the number of parameters.
# Prints "FILE:LINE: text".

function say(text) {
	printf "%s:%d: %s\n", FILENAME, FNR, text
}

function ban(pattern, exempt, text) {
	if (FILENAME !~ exempt && code ~ ("(^|[^A-Za-z0-9_.>])(" pattern ")[ ]*\\("))
		say(text)
}

# Blanks comments (which may span lines: in_comment) and the inside of literals.
function strip(s,    out, two) {
	out = ""
	while (s != "") {
		two = substr(s, 1, 2)
		if (in_comment) {
			if (!match(s, /\*\//))
				return out
			s = substr(s, RSTART + 2)
			in_comment = 0
		} else if (two == "/*") {
			in_comment = 1
			s = substr(s, 3)
		} else if (two == "//") {
			return out
		} else if (match(s, /^"([^"\\]|\\.)*"/) || match(s, /^'([^'\\]|\\.)*'/)) {
			out = out substr(s, 1, 1) substr(s, 1, 1)
			s = substr(s, RLENGTH + 1)
		} else {
			out = out substr(s, 1, 1)
			s = substr(s, 2)
		}
	}
	return out
}

# 0 base, 1 its users, 2 channel, 3 programs; -1: not of ours.
function rank(module) {
	if (module == "base")
		return 0
	if (module ~ /^(detect|window|bootstrap|gpu|topology|transport)$/)
		return 1
	if (module == "channel")
		return 2
	return module ~ /^(library|orchestrator|plugin)$/ ? 3 : -1
}

# Inside orchestrator/: a folder, or main.c itself.
function folder(path) {
	sub(/^orchestrator\//, "", path)
	sub(/\/.*/, "", path)
	return path
}

function folder_rank(f) {
	if (f == "figures")
		return 0
	if (f ~ /^(options|output)$/)
		return 1
	if (f ~ /^(plan|fault|engine)$/)
		return 2
	if (f == "session")
		return 3
	if (f ~ /^(fleet|checks|demo)$/)
		return 4
	return f == "main.c" ? 5 : -1
}

function check_folders(name,    from, to) {
	from = folder(FILENAME)
	to = folder(name)
	if (folder_rank(from) < 0)
		say("orchestrator/" from " is no folder of the order in scripts/lint.awk: add it there and to docs/ARCHITECTURE.md")
	else if (folder_rank(to) > folder_rank(from))
		say("orchestrator/" from "/ is below orchestrator/" to "/: move what both need down, or pass it in")
	else if (folder_rank(to) == folder_rank(from) && to != from)
		say("orchestrator/" from "/ and orchestrator/" to "/ are siblings: move what both need down, or pass it in")
}

function check_private(name,    dir) {
	if (name ~ /(_impl|\/internal)\.h$/)
		say("\"" name "\": a private header ends in _priv.h")
	dir = name
	sub(/[^\/]*$/, "", dir)
	if (name ~ /_priv\.h$/ && FILENAME !~ ("^" dir "[^/]*$"))
		say("\"" name "\" is private to " dir ": declare what others need in a public header of that folder")
}

function check_include(name,    from, to, kind) {
	from = FILENAME
	sub(/\/.*/, "", from)
	to = name
	sub(/\/.*/, "", to)
	if (name !~ /\//)
		say("include \"" name "\" by its path from the root")
	if (is_test)
		return
	if (rank(to) < 0 && name ~ /\//)
		say("\"" name "\" is of no layer; tests' headers are for tests")
	else if (rank(to) > rank(from))
		say(from "/ is below " to "/: move what both need down, or pass it in")
	else if (rank(to) == rank(from) && to != from)
		say(from "/ and " to "/ are siblings: what both need belongs in base/, or is passed in")
	if (name ~ /^transport\/[^\/]+\// && FILENAME != "transport/registry.c") {
		kind = name
		sub(/\/[^\/]*$/, "/", kind)
		if (index(FILENAME, kind) != 1)
			say("only " kind " and transport/registry.c know \"" name "\"; use transport/path.h and transport/kind.h")
	}
}

function check_calls() {
	ban("malloc|calloc|realloc|free|strdup|strndup|v?asprintf", "^base/mem\\.c$|(^|/)tests/|_test\\.c$",
		"use dr_calloc, dr_realloc, dr_strdup, dr_free (base/mem.h); memory of another library: say so with lint-ok")
	ban("printf|fprintf|vprintf|vfprintf|puts|fputs|putchar|fputc|putc|perror",
		"^orchestrator/|^tests/|^scripts/|_test\\.c$|^base/(log|opts|opts_print|opts_man|opts_complete)\\.c$|^plugin/stats\\.c$",
		"use dr_error, dr_warn, dr_info, dr_debug (base/log.h)")
	ban("exit|quick_exit|abort", "(^|/)main\\.c$|_main\\.c$|^base/assert\\.c$",
		"return an error; only main exits (a child right after fork: _exit)")
	ban("sleep|usleep|nanosleep|clock_nanosleep|thrd_sleep", "^scripts/lab/tsc\\.c$",
		"wait for the condition, with a deadline (base/poller.h)")
	ban("clock_gettime|gettimeofday|time|clock", "^base/|^scripts/", "use dr_now_ns, dr_wall_ns (base/clock.h)")
	ban("rand|srand|random|srandom|drand48|rand_r", "^$", "use dr_rng_u64 with a seed, dr_random_bytes")
	ban("strcpy|stpcpy|strcat|sprintf|vsprintf|gets", "^$", "use snprintf with the size of the buffer")
	ban("atoi|atol|atoll|atof", "^$", "use dr_parse_u64, dr_parse_double (base/units.h)")
	ban("strtok", "^$", "use strsep or strcspn")
	ban("creat|mkostemp|mkstemp|rename|renameat|renameat2|freopen", "^base/file\\.c$|^scripts/|(^|/)tests/|_test\\.c$",
		"use dr_file_write (base/file.h)")
	if (code ~ /(^|[^A-Za-z0-9_])volatile([^A-Za-z0-9_]|$)/ && code !~ /asm(__)?[ ]+(__)?volatile/)
		say("volatile orders nothing: use C11 atomics (also in signal handlers)")
}

# Parameters of the function whose head, up to the line before its body, is given.
function parameters(head,    i, c, depth, n) {
	for (i = index(head, "("); i <= length(head); i++) {
		c = substr(head, i, 1)
		if (c == "(")
			depth++
		else if (c == ")" && --depth == 0)
			break
		else if (c == "," && depth == 1)
			n++
	}
	return n + 1
}

FNR == 1 {
	in_comment = 0
	body = 0
	head = ""
	is_test = FILENAME ~ /^tests\/|_(test|harness|testkit)\.[ch]$|\/testkit\.h$|_main\.c$/
}

{
	excused = $0 ~ /lint-ok: [^ ]/
	if (!in_comment && match($0, /^#[ ]*include[ ]+"[^"]+"/)) {
		name = substr($0, RSTART, RLENGTH)
		gsub(/^[^"]*"|"$/, "", name)
		if (rule == "calls")
			check_include(name)
		else if (rule == "folders" && !is_test) {
			check_private(name)
			if (FILENAME ~ /^orchestrator\// && name ~ /^orchestrator\//)
				check_folders(name)
		}
	}
	code = strip($0)
	# tests/gpu/nccl/ and docs/examples/ have programs of their own.
	if (rule == "calls" && !excused && FILENAME !~ /^(tests\/gpu\/nccl|docs\/examples)\//)
		check_calls()
	if (length($0) && code ~ /^\{/) {
		body = FNR
		# plugin/abi.c and net.c have the functions that NCCL calls.
		if (rule == "parameters" && !is_test && !head_excused && FILENAME !~ /^plugin\/(abi|net)\.c$/ && parameters(head) > 6)
			say("this function has " parameters(head) " parameters, 6 is the limit: pass a struct")
	}
	head = code ~ /^#|[;}]$/ ? "" : head code
	head_excused = head != "" && (head_excused || excused)
	if (code ~ /^\}/ && body) {
		if (rule == "calls" && FNR - body - 1 > 80)
			say("this function has " (FNR - body - 1) " lines, 80 is the limit: split it")
		body = 0
	}
}
