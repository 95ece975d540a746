# SPDX-License-Identifier: Apache-2.0
# Writes the manual pages of section 3 from the public header: a page for each function, from the comment above its
# declaration, and libdualrail.3, from the comment at the head and the declarations of types.
#
#   awk -v dir=DIR -v version=VERSION -v example=FILE.c -f scripts/man3.awk library/dualrail.h
function plain(text) {
	gsub(/\\/, "\\e", text)
	gsub(/-/, "\\-", text)
	sub(/^[.']/, "\\\\\\&&", text)
	return text
}
function page(name, what) {
	file = dir "/" name ".3"
	printf ".TH %s 3 \"\" \"dualrail %s\" \"libdualrail\"\n.SH NAME\n%s \\- %s\n", toupper(name), version, name, plain(what) >file
	printf ".SH LIBRARY\nlibdualrail (\\-ldualrail; pkg\\-config: dualrail)\n" >file
	names[++n_names] = name
}
# Lines of code, as they are.
function code(text,    i, n, line) {
	print ".nf" >file
	n = split(text, line, "\n")
	for (i = 1; i <= n; i++)
		print plain(line[i]) >file
	print ".fi" >file
}
# Paragraphs are divided by empty lines.
function prose(text,    i, n, line) {
	n = split(text, line, "\n")
	for (i = 1; i <= n; i++)
		print line[i] == "" ? ".PP" : plain(line[i]) >file
}
function finish(other) {
	printf ".SH SEE ALSO\n%s\n", other >file
	close(file)
}
# "Opens an endpoint and starts its thread." -> "opens an endpoint and starts its thread"
function brief(text) {
	gsub(/\n/, " ", text)
	if (match(text, /[.;:]( |$)/))
		text = substr(text, 1, RSTART - 1)
	return tolower(substr(text, 1, 1)) substr(text, 2)
}
function func_page(decl, text,    name) {
	match(decl, /dualrail_[a-z_]+\(/)
	name = substr(decl, RSTART, RLENGTH - 1)
	if (text == "")
		text = previous
	page(name, brief(text))
	print ".SH SYNOPSIS\n.B #include <dualrail.h>\n.PP" >file
	code(decl)
	print ".SH DESCRIPTION" >file
	prose(text)
	print ".SH ERRORS\nA function that returns int returns 0, or a count, or a negative errno. Threads, and how long buffers\nare in use:" >file
	print ".BR libdualrail (3)." >file
	finish(".BR libdualrail (3),\n.BR dualrail (1)")
	previous = text
}
/^#|^extern "C"|^}$/ && !in_decl { next }
/^\/\*/ && !in_decl { in_comment = 1; comment = "" }
in_comment {
	line = $0
	sub(/^[ \t]*\/\*[ \t]?/, "", line)
	sub(/^[ \t]*\*\/.*/, "", line)
	sub(/^ \* ?/, "", line)
	sub(/[ \t]*\*\/.*$/, "", line)
	comment = comment == "" ? line : comment "\n" line
	if (/\*\//) {
		in_comment = 0
		sub(/\n$/, "", comment)
		if (comment ~ /^SPDX/)
			comment = ""
		else if (head == "") {
			head = comment
			comment = ""
		}
	}
	next
}
/^$/ && !in_decl { next }
{
	decl = in_decl ? decl "\n" $0 : $0
	in_decl = !(/;([ \t]*\/\*.*)?$/ && !(decl ~ /\{/)) && !/^};/
	if (in_decl)
		next
	if (decl ~ /dualrail_[a-z_]+\(/)
		func_page(decl, comment)
	else
		types = types (comment == "" ? "" : "/* " comment " */\n") decl "\n\n"
	comment = ""
}
END {
	n = n_names
	page("libdualrail", "blocks of memory between processes over two or more NICs")
	print ".SH SYNOPSIS\n.B #include <dualrail.h>\n.SH DESCRIPTION" >file
	prose(head)
	print ".SH TYPES" >file
	code(types)
	print ".SH EXAMPLE" >file
	while ((getline line <example) > 0)
		text = text == "" ? line : text "\n" line
	code(text)
	for (i = 1; i <= n; i++)
		list = list ".BR " names[i] " (3),\n"
	finish(list ".BR dualrail (1)")
}
