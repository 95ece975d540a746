#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What the program says about itself: help, man page, completion scripts. All are made from the option table.

COMMANDS=(server client demo topo doctor preflight sweep compare plugin report)

# bats file_tags=one-thread
load usual

# options_of COMMAND: the long options in its help.
options_of() {
	"$DUALRAIL" "$1" --help-all | grep -oE '^  (-.,|   ) --[a-z-]+' | grep -oE '[a-z-]+$' | sed 's/^--//' | sort
}

# takes COMMAND NAME: the parser of the command knows the option. Its value may be refused: that message starts
# with the option.
takes() {
	run "$DUALRAIL" "$1" "--$2=1" --help
	[[ $status == 0 || $output == "dualrail: --$2: "* ]]
}

# bats test_tags=nightly
@test "the help of each command lists the options that the command takes, and no other" {
	local command name all
	for command in "${COMMANDS[@]}"; do options_of "$command" >"$command.options"; done
	all=$(sort -u ./*.options)
	(($(wc -l <<<"$all") > 60))
	for command in "${COMMANDS[@]}"; do
		for name in $all; do
			if grep -qx -e "$name" "$command.options"; then
				takes "$command" "$name" || { echo "$command refuses --$name: $output" && return 1; }
			else
				! takes "$command" "$name" || { echo "$command takes --$name" && return 1; }
				[ "$status" -eq 1 ]
			fi
		done
	done
	takes demo links
	if takes client links; then return 1; fi
}

@test "help fits into 80 columns and ends with examples that the parser takes" {
	local command line args
	for command in "" "${COMMANDS[@]}"; do
		# shellcheck disable=SC2086
		"$DUALRAIL" $command --help-all >help.txt
		if grep -nE '^.{81,}' help.txt; then return 1; fi
		grep -A 100 '^Examples:$' help.txt >examples.txt
		if grep -vE '^(Examples:|  [A-Z].*:|    dualrail .*)$' examples.txt; then return 1; fi
		while read -r line; do
			read -ra args <<<"$line"
			[[ ${args[1]} == completion ]] && continue
			[[ -z $command || ${args[1]} == "$command" ]]
			"$DUALRAIL" "${args[1]}" --help "${args[@]:2}" >/dev/null
		done < <(grep '^    dualrail ' examples.txt)
		grep -q '^    dualrail ' examples.txt
	done
	[ "$("$DUALRAIL" help demo)" = "$("$DUALRAIL" demo --help)" ]
	run -1 "$DUALRAIL" help nonsense
	one_line
}

@test "--help is one screen: 40 lines, a line for each option" {
	local command
	for command in "" "${COMMANDS[@]}"; do
		# shellcheck disable=SC2086
		"$DUALRAIL" $command --help >help.txt
		if grep -nE '^.{81,}' help.txt; then return 1; fi
		(($(wc -l <help.txt) <= 40)) || { echo "$command: $(wc -l <help.txt) lines" && return 1; }
		[[ ! $command ]] || ! grep -E '^ {20,}' help.txt
		[[ ! $command ]] || grep -q -e '--help-all' help.txt
	done
	[[ $("$DUALRAIL" client --help) == *"  -N, --channels N"*"(8)"* ]]
	[[ $("$DUALRAIL" demo --help) == *"  -N, --channels N"*"(2)"* ]]
}

@test "each command has its own defaults, in its help and in its runs" {
	# The help of one option, on one line.
	of() { "$DUALRAIL" "$1" --help-all | grep -A 5 -e "--$2 " | tr -s '\n ' ' '; }
	[[ $(of client channels) == *"(default: 8)"* ]]
	[[ $(of demo channels) == *"(default: 2)"* ]]
	[[ $(of doctor connect-timeout) == *"default: 5s)"* ]]
	[[ $(of client connect-timeout) == *"default: 30s)"* ]]
	run -0 "$DUALRAIL" demo --dry-run -v
	[[ $output == *"test=bw,lat,failover"*"channels=2"*"duration=3s"*"hold-down=300ms"* ]]
	run "$DUALRAIL" doctor -q -v
	[[ $output == *"connect-timeout=5s"* ]]
}

# bats test_tags=nightly
@test "a default of the demo does not exclude options that replace it" {
	run -0 "$DUALRAIL" demo -n 5 --dry-run
	run -0 "$DUALRAIL" demo --test bw -b 1K -e 1M --dry-run
	run -1 "$DUALRAIL" demo -n 5 -D 3 --dry-run
}

@test "the man page has all sections, is found by apropos and has no warnings" {
	local name
	"$DUALRAIL" --man >dualrail.1
	[[ $(grep '^\.SH' dualrail.1 | tr '\n' ' ') == ".SH NAME .SH SYNOPSIS .SH DESCRIPTION .SH COMMANDS .SH OPTIONS \
.SH EXIT STATUS .SH ENVIRONMENT .SH FILES .SH METRICS .SH EXAMPLES .SH SEE ALSO " ]]
	[[ $(head -n 1 dualrail.1) == ".TH DUALRAIL 1 "* ]]
	for name in $(for c in "${COMMANDS[@]}"; do options_of "$c"; done | sort -u); do
		grep -qF -e "\\fB\\-\\-${name//-/\\-}\\fR" dualrail.1
	done
	# The same exit statuses as in README, with every reason of status 3.
	local readme=$BATS_TEST_DIRNAME/../../README.md
	[ "$(sed -n '/^\.SH EXIT/,/^\.SH ENV/s/^\\fB\([0-9].*\)\\fR$/\1/p' dualrail.1 | tr -d '\134' | xargs)" = \
		"$(sed -n '/^### Exit status/,/^## /s/^| \([0-9][^ ]*\) |.*/\1/p' "$readme" | xargs)" ]
	for name in $("$DUALRAIL" schema result | jq -r '.. | .reason? | objects | .. | .enum? | arrays[] | strings'); do
		grep -q "^| 3 |.*\`$name\`" "$readme"
		sed -n '/^\.SH EXIT/,/^\.SH ENV/p' dualrail.1 | grep -qw "$name"
		grep -q "^| \`$name\` |" "$BATS_TEST_DIRNAME/../../docs/READING.md"
	done
	[ "$name" = local ]
	command -v lexgrog man >/dev/null || skip "man-db is not installed: lexgrog and man check the page"
	lexgrog dualrail.1
	man --warnings -l dualrail.1 >page.txt 2>warnings.txt
	cat warnings.txt
	[ ! -s warnings.txt ]
	grep -q 'DUALRAIL(1)' page.txt
}

@test "the parser takes every form of an option that help, man page, README and docs name" {
	local forms=$BATS_TEST_DIRNAME/../forms.py
	# shellcheck disable=SC2016
	run -0 env -C "$DR_ROOT" bash -c 'python3 -IS "$@" README.md SECURITY.md docs/*.md k8s/README.md' _ "$forms" "$DUALRAIL"
	[[ $output == *" forms" && ${output% forms} -gt 250 ]]
	cat >"$BATS_TEST_TMPDIR/x.md" <<-"END"
		`--rails LIST` and `-vv`
		```
		$ dualrail demo -g 0 --rails eth0 | tee f
		```
		`--matrix=maybe` `--railz` `dualrail client h -N` `--prom[=FILE]` `dualrail topo --data-ports 1-2`
	END
	run -1 python3 -IS "$forms" "$DUALRAIL" "$BATS_TEST_TMPDIR/x.md"
	[[ $(grep -oE '^[^ ]*x.md: [^:]*' <<<"$output" | sed 's/.*x.md: //') == $'--prom\ndemo -g 0 --rails eth0\n--matrix=maybe\n--railz\ntopo --data-ports 1-2' ]]
}

@test "each condition of docs/QUESTIONS.md has a test that reads what is printed from there" {
	run -0 "$BATS_TEST_DIRNAME/../questions.py" rows "$BATS_TEST_DIRNAME"/../{e2e,lab}/*.bats
	[[ $output == *" rows" && ${output% rows} -gt 30 ]]
}

@test "-v logs information, -vv also debug lines" {
	local run=("$DUALRAIL" demo -g 0 --memory host --test bw -D 0.1 -w 0)
	tells 0 " info " "${run[@]}" -v
	[[ $output != *" debug "* ]]
	tells 0 " debug " "${run[@]}" -vv
}

@test "--version is one line; with -v also commit, flags, transports and libraries" {
	run -0 "$DUALRAIL" --version
	one_line
	run -0 "$DUALRAIL" --version -v
	for line in '^dualrail [0-9.]+ ' '^commit: +([0-9a-f]{12}(-dirty)?|unknown)$' '^compiler: +[A-Za-z]+ .*[0-9]' '^flags: +.*-O' \
		'tcp: sockets' 'verbs: RoCE' '^built with: .*libmnl [0-9]' '^in use: .*jansson [0-9]+\.[0-9].*glibc [0-9]'; do
		grep -qE -e "$line" <<<"$output" || { echo "no $line in: $output" && return 1; }
	done
	local verbose=$output
	run "$DUALRAIL" client --version -v
	[ "$output" = "$verbose" ]
	run "$DUALRAIL" --version -vv
	[ "$output" = "$verbose" ]
}

@test "help of the commands without options: help COMMAND and COMMAND --help" {
	local command
	for command in help completion schema; do
		run -0 "$DUALRAIL" help "$command"
		[[ $output == "Usage: dualrail $command "* ]]
		local help=$output
		[[ $command == help ]] && continue
		run -0 "$DUALRAIL" "$command" --help
		[ "$output" = "$help" ]
	done
	[[ $("$DUALRAIL" help completion) == *"completion bash >>~/.bashrc"* ]]
}

@test "the help of --fault has the default of every key" {
	local help key
	help=$("$DUALRAIL" client --help-all | grep -A 12 -e '--fault SPEC' | tr -s '\n ' ' ')
	for key in path side at for repeat every gpu channel; do
		grep -qE -e "[ ,]$key=[^=]*default: |[ ,]$key=[^=]*\(the same\)" <<<"$help" || { echo "no default of $key: $help" && return 1; }
	done
	[[ $help == *"KIND[:KEY=VALUE[,KEY=VALUE]...]"* ]]
	# A kind alone is a complete specification.
	run -0 "$DUALRAIL" client 127.0.0.1 --test failover --allow-faults --fault close --dry-run
}

@test "completion: unknown or missing shell: status 1, one line" {
	for shell in csh ""; do
		run -1 "$DUALRAIL" completion ${shell:+"$shell"}
		one_line
	done
}

# completes "ANSWER..." WORD...: the bash function offers exactly these for the last word.
completes() {
	local want=$1
	shift
	COMP_WORDS=(dualrail "$@") COMP_CWORD=$#
	_dualrail
	mapfile -t COMPREPLY < <(printf '%s\n' "${COMPREPLY[@]}" | sort)
	[[ ${COMPREPLY[*]} == "$want" ]] || {
		echo "dualrail $*: ${COMPREPLY[*]}, not $want"
		return 1
	}
}

@test "completion in bash: commands, options, words and files" {
	"$DUALRAIL" completion bash >complete.bash
	# shellcheck disable=SC1091
	source ./complete.bash
	complete -p dualrail
	touch report.csv report.txt "with blank"
	completes "demo doctor" d
	completes "--help" --h
	completes "--poll" demo --pol
	completes "" topo --pol
	completes "--links" demo --lin
	completes "" client n1 --lin
	completes "adaptive busy" demo --poll ""
	completes "busy" demo --poll = b
	completes "nccl tcp verbs" client n1 --transport ""
	completes "bw,lat" client n1 --test bw,l
	completes "bw,failover bw,lat" client n1 --test bw,
	completes "lat,bw,failover" client n1 --test lat,bw,
	completes "link-down" client n1 --fault li
	completes "exec" client n1 --fault ex
	completes "$("$DUALRAIL" schema | sort | xargs)" schema ""
	completes "all nearest" demo --spread ""
	completes "report.csv report.txt" client n1 --csv rep
	completes "report.csv report.txt" client n1 --json = rep
	completes "" client n1 --json rep
	completes "with blank" client n1 --csv with
	[ "${#COMPREPLY[@]}" -eq 1 ]
	completes "" demo --size ""
	completes "report.csv report.txt" report rep
	completes "report.csv report.txt" plugin rep
	completes "report.csv report.txt" compare report.txt -- rep
	completes "lo" client n1 --rails l
	completes "lo" doctor --rails = l
	completes "off on" demo --verify = o
	for command in "${COMMANDS[@]}"; do
		COMP_WORDS=(dualrail "$command" --) COMP_CWORD=2
		_dualrail
		[ "$(printf '%s\n' "${COMPREPLY[@]#--}" | sort)" = "$(options_of "$command")" ]
	done
}

@test "no schema of a document changes unnoticed" {
	local name
	for name in $("$DUALRAIL" schema); do
		# What a key means may be said in other words.
		echo "$name $("$DUALRAIL" schema "$name" |
			jq -cS 'del(.. | objects | select(.description | type == "string") | .description)' | sha256sum | cut -c 1-12)"
	done >found
	# A key that is removed or changes its meaning changes the number in $id and in the document's "schema", too.
	diff - found <<-'END'
		result 310b11adc988
		stream 50032f4922ac
		log 18e893aa91b6
		doctor 07c89400c9b5
		topo 8401cfcaa557
		compare 20d25edfd06a
		preflight 31089f16eb03
		sweep 5a626b6a47bf
	END
}
