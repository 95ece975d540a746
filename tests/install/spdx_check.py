#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks an SPDX 2.3 document against the rules of the specification and against the packages that it describes:
tests/install/spdx_check.py DOCUMENT FOLDER, where FOLDER/NAME holds the unpacked files of the package with that file name,
and FOLDER/packages the packages. Numbers are sections of https://spdx.github.io/spdx-spec/v2.3/. Prints each breach;
exit status 1 if there is one. It shares no code with scripts/packages/sbom.py."""
import hashlib
import json
import os
import re
import sys
from datetime import datetime

LICENSES = {"Apache-2.0", "MIT"}
FILE_TYPES = set("SOURCE BINARY ARCHIVE APPLICATION AUDIO IMAGE TEXT VIDEO DOCUMENTATION SPDX OTHER".split())
# Of section 11.1, those that a document of packages can have.
RELATIONS = set("DESCRIBES CONTAINS DEPENDS_ON OPTIONAL_DEPENDENCY_OF".split())
DIGITS = {"SHA1": 40, "SHA256": 64}
# What each element may have, and must have; 6 to 11.
FIELDS = {
    "document": ("spdxVersion dataLicense SPDXID name documentNamespace creationInfo", "packages files relationships"),
    "package": (
        "SPDXID name downloadLocation filesAnalyzed supplier licenseConcluded licenseDeclared copyrightText",
        "versionInfo packageFileName packageVerificationCode checksums sourceInfo licenseInfoFromFiles homepage",
    ),
    "file": ("SPDXID fileName checksums licenseConcluded licenseInfoInFiles copyrightText", "fileTypes"),
    "relationship": ("spdxElementId relationshipType relatedSpdxElement", "comment"),
}
FIELD_SECTION = {"document": "6", "package": "7", "file": "8", "relationship": "11"}
breaches = []


def rule(holds, section, text):
    if not holds:
        breaches.append(f"{section}: {text}")
    return holds


def fields(kind, element, where):
    must, may = (set(names.split()) for names in FIELDS[kind])
    rule(must <= set(element), FIELD_SECTION[kind], f"{where} has no {', '.join(sorted(must - set(element)))}")
    rule(set(element) <= must | may, FIELD_SECTION[kind], f"{where} has {', '.join(sorted(set(element) - must - may))}")


def check_fields(doc):
    fields("document", doc, "the document")
    for kind in ("package", "file", "relationship"):
        for element in doc.get(kind + "s", []):
            fields(kind, element, element.get("name") or element.get("fileName") or f"a {kind}")


def license_expression(text, section, where):
    """Annex D: identifiers of the license list, joined by AND; or NOASSERTION, NONE."""
    rule(text in ("NOASSERTION", "NONE") or set(text.split(" AND ")) <= LICENSES, section, f"{where}: licence {text!r}")


def checksums(element, section, where):
    """8.4, 7.10: algorithm and value; SHA1 is mandatory for files, SHA256 is wanted here."""
    found = {c["algorithm"]: c["checksumValue"] for c in element.get("checksums", [])}
    rule({"SHA1", "SHA256"} <= set(found), section, f"{where}: checksums {sorted(found)}")
    for algorithm, value in found.items():
        rule(re.fullmatch("[0-9a-f]{%d}" % DIGITS.get(algorithm, 0), value), section, f"{where}: {algorithm} {value}")
    return found


def digest(path, algorithm):
    with open(path, "rb") as f:
        return hashlib.new(algorithm.lower(), f.read()).hexdigest()


def check_document(doc):
    rule(doc["spdxVersion"] == "SPDX-2.3", "6.1", doc["spdxVersion"])
    rule(doc["dataLicense"] == "CC0-1.0", "6.2", doc["dataLicense"])
    rule(doc["SPDXID"] == "SPDXRef-DOCUMENT", "6.3", doc["SPDXID"])
    rule(re.fullmatch(r"https://[a-z0-9.-]+/[^#\s]+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", doc["documentNamespace"]), "6.5", doc["documentNamespace"])
    creation = doc["creationInfo"]
    rule(creation.get("creators"), "6.8", "no creator")
    for one in creation.get("creators", []):
        rule(re.match(r"(Tool|Person|Organization): \S", one), "6.8", one)
    try:
        datetime.strptime(creation.get("created", ""), "%Y-%m-%dT%H:%M:%SZ")
    except ValueError as e:
        rule(False, "6.9", e)


def check_identifiers(doc):
    """3.2 of each element: SPDXRef- and letters, digits, dots and hyphens, once in the document."""
    seen = set()
    for element in [doc] + doc["packages"] + doc["files"]:
        name = element["SPDXID"]
        rule(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", name), "7.2", f"identifier {name!r}")
        rule(name not in seen, "7.2", f"identifier {name} twice")
        seen.add(name)
    return seen


def check_relations(doc, known):
    for r in doc["relationships"]:
        text = " ".join((r["spdxElementId"], r["relationshipType"], r["relatedSpdxElement"]))
        rule(r["relationshipType"] in RELATIONS, "11.1", text)
        rule({r["spdxElementId"], r["relatedSpdxElement"]} <= known, "11.1", f"unknown element: {text}")
    contained = [r["relatedSpdxElement"] for r in doc["relationships"] if r["relationshipType"] == "CONTAINS"]
    for f in doc["files"]:
        rule(contained.count(f["SPDXID"]) == 1, "11.1", f"{f['fileName']} is in {contained.count(f['SPDXID'])} packages")


def related(doc, element, kind):
    return {r["relatedSpdxElement"] for r in doc["relationships"] if (r["spdxElementId"], r["relationshipType"]) == (element, kind)}


def check_file(f):
    rule(f["fileName"].startswith("./"), "8.1", f["fileName"])
    rule(set(f.get("fileTypes", [])) <= FILE_TYPES, "8.3", f["fileName"])
    checksums(f, "8.4", f["fileName"])
    license_expression(f["licenseConcluded"], "8.5", f["fileName"])
    rule(f["licenseInfoInFiles"], "8.6", f["fileName"])
    for one in f["licenseInfoInFiles"]:
        license_expression(one, "8.6", f["fileName"])


def on_disk(top):
    """The files below a folder, as a document names them; links are none."""
    return {
        "./" + os.path.relpath(os.path.join(folder, name), top)
        for folder, _, names in os.walk(top)
        for name in names
        if not os.path.islink(os.path.join(folder, name))
    }


def check_shipped(doc, package, folder):
    """The package and its files are those on disk, and the verification code is theirs (7.9)."""
    name = package["packageFileName"]
    inside = related(doc, package["SPDXID"], "CONTAINS")
    own = {f["fileName"]: checksums(f, "8.4", f["fileName"]) for f in doc["files"] if f["SPDXID"] in inside}
    for algorithm, value in checksums(package, "7.10", name).items():
        rule(digest(os.path.join(folder, "packages", name), algorithm) == value, "7.10", f"{name}: {algorithm}")
    present = on_disk(os.path.join(folder, name))
    rule(present == set(own), "8.1", f"{name}: not in both document and package: {sorted(present ^ set(own))[:5]}")
    for path in present & set(own):
        for algorithm, value in own[path].items():
            rule(digest(os.path.join(folder, name, path), algorithm) == value, "8.4", f"{name}: {path}: {algorithm}")
    code = hashlib.sha1("".join(sorted(c.get("SHA1", "") for c in own.values())).encode()).hexdigest()
    rule(package["packageVerificationCode"] == {"packageVerificationCodeValue": code}, "7.9", name)
    rule(package.get("licenseInfoFromFiles"), "7.14", name)
    rule(package.get("versionInfo"), "7.3", f"{name} has no version")


def check_packages(doc, folder):
    described = related(doc, "SPDXRef-DOCUMENT", "DESCRIBES")
    for package in doc["packages"]:
        name = package["name"]
        for field, section in (("licenseConcluded", "7.13"), ("licenseDeclared", "7.15")):
            license_expression(package[field], section, name)
        rule(package["supplier"] == "NOASSERTION" or re.match("(Person|Organization): ", package["supplier"]), "7.5", name)
        rule(re.match(r"NOASSERTION$|NONE$|[a-z+]+://", package["downloadLocation"]), "7.7", name)
        rule(package["filesAnalyzed"] == (package["SPDXID"] in described), "7.8", name)
        if package["filesAnalyzed"]:
            check_shipped(doc, package, folder)
        else:
            rule("packageVerificationCode" not in package, "7.9", f"{name}: no files are known")
            rule("licenseInfoFromFiles" not in package, "7.14", f"{name}: no files are known")
    files = {p["packageFileName"] for p in doc["packages"] if p["SPDXID"] in described}
    rule(files == set(os.listdir(os.path.join(folder, "packages"))), "11.1", f"packages described: {sorted(files)}")
    for package in doc["packages"]:
        if package["SPDXID"] in described:
            for needed in related(doc, package["SPDXID"], "DEPENDS_ON"):
                other = [p for p in doc["packages"] if p["SPDXID"] == needed]
                rule(other and other[0].get("versionInfo"), "7.3", f"{needed}, which {package['name']} needs, has no version")


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        doc = json.load(f)
    check_fields(doc)
    if not breaches:
        check_document(doc)
        check_relations(doc, check_identifiers(doc))
        for f in doc["files"]:
            check_file(f)
        check_packages(doc, sys.argv[2])
    print("\n".join(breaches) or f"{len(doc['packages'])} packages, {len(doc['files'])} files: valid")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
