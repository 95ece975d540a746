# SPDX-License-Identifier: Apache-2.0
# Reports the words of scripts/lint-words.txt, the first input file, in the files behind it.
# Prints "FILE:LINE: text".

BEGIN {
	FS = "\t"
}

FNR == NR {
	if ($0 !~ /^#/ && NF > 1) {
		pattern[++n] = "(^|[^a-z])(" $1 ")([^a-z]|$)"
		instead[n] = $2
		where[n] = $3
	}
	next
}

{
	line = tolower($0)
	for (i = 1; i <= n; i++)
		if (line ~ pattern[i] && FILENAME ~ where[i]) {
			match(line, pattern[i])
			text = substr($0, RSTART, RLENGTH)
			gsub(/^[^A-Za-z]|[^A-Za-z]$/, "", text)
			printf "%s:%d: \"%s\": write %s\n", FILENAME, FNR, text, instead[i]
		}
}
