#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the SPDX 2.3 document of built packages: scripts/packages/sbom.py -o FILE --commit ID PACKAGE.deb|PACKAGE.rpm...

Each package has its files with SHA-1 (which the format requires) and SHA-256, and its dependencies with the versions
that this machine has, which are those that it was built with. SOURCE_DATE_EPOCH is the time of the document.
https://spdx.github.io/spdx-spec/v2.3/
"""
import argparse
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import uuid

LICENSE = "Apache-2.0"
# The program writes it into its pages; orchestrator/checks/report/README.md.
UPLOT = "orchestrator/checks/report/uPlot.iife.min.js"
PROGRAM = "./usr/bin/dualrail"


def output(*argv):
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def attempt(*argv):
    """Standard output, or "" where the command fails or does not exist."""
    try:
        return subprocess.run(argv, capture_output=True, text=True).stdout
    except FileNotFoundError:
        return ""


class Deb:
    """A Debian package: fields, files, and the packages that it needs or can use."""

    kind = "deb"

    def __init__(self, path):
        self.path = path
        field = lambda f: output("dpkg-deb", "-f", path, f).strip()
        self.name, self.version, self.arch = field("Package"), field("Version"), field("Architecture")
        self.needs = self.relations(field("Pre-Depends") + "," + field("Depends"))
        self.uses = self.relations(field("Recommends") + "," + field("Suggests"))

    @staticmethod
    def relations(text):
        """(names of the alternatives, the relation as it is written) of each."""
        each = [r.strip() for r in text.replace("\n", " ").split(",") if r.strip()]
        return [([re.split(r"[ (:]", a.strip())[0] for a in r.split("|")], r) for r in each]

    def files(self):
        data = subprocess.run(["dpkg-deb", "--fsys-tarfile", self.path], check=True, capture_output=True).stdout
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            for member in tar:
                if member.isreg():
                    yield member.name, tar.extractfile(member).read()
                elif member.islnk():
                    yield member.name, tar.extractfile(member.linkname).read()

    @staticmethod
    def installed(names):
        """Name and version of the first that is installed, or the first name and None."""
        for name in names:
            line = attempt("dpkg-query", "-W", "-f", "${Version} ${db:Status-Status}\n", name).split("\n")[0].split()
            if line[1:] == ["installed"]:
                return name, line[0]
        return names[0], None


class Rpm:
    """An RPM package. A library that no installed RPM package provides is looked for among the Debian packages."""

    kind = "rpm"

    def __init__(self, path):
        self.path = path
        query = lambda f: output("rpm", "-qp", "--qf", f, path)
        self.name, self.arch = query("%{NAME}"), query("%{ARCH}")
        self.version = query("%{VERSION}-%{RELEASE}")
        self.needs = self.relations(output("rpm", "-qp", "--requires", path))
        self.uses = self.relations(output("rpm", "-qp", "--recommends", "--suggests", path))

    @staticmethod
    def relations(text):
        each = [r.strip() for r in text.splitlines() if r.strip() and not r.startswith(("rpmlib(", "/", "rtld("))]
        # libc.so.6(GLIBC_2.34)(64bit) is the same library as libc.so.6()(64bit).
        names = {}
        for r in each:
            names.setdefault(re.match(r"pkgconfig\([^)]*\)|[^ (]+(?=\()|[^ ]+", r).group(), r)
        return [([n], r) for n, r in names.items()]

    def files(self):
        with tempfile.TemporaryDirectory() as top:
            cpio = subprocess.run(["rpm2cpio", self.path], check=True, capture_output=True).stdout
            subprocess.run(["cpio", "-idm", "--quiet", "--no-absolute-filenames"], input=cpio, cwd=top, check=True)
            for folder, _, names in os.walk(top):
                for name in names:
                    path = os.path.join(folder, name)
                    if not os.path.islink(path):
                        with open(path, "rb") as f:
                            yield "./" + os.path.relpath(path, top), f.read()

    @staticmethod
    def installed(names):
        name = names[0]
        if name.startswith("pkgconfig("):
            return name, attempt("pkg-config", "--modversion", name[10:-1]).strip() or None
        for what in (name, name + "()(64bit)"):
            line = attempt("rpm", "-q", "--qf", "%{NAME} %{VERSION}-%{RELEASE}\n", "--whatprovides", what).split("\n")[0]
            if len(line.split()) == 2:
                return tuple(line.split())
        at = re.search(r"^\s*%s \(.*=> (.*)$" % re.escape(name), attempt("/sbin/ldconfig", "-p"), re.M)
        path = os.path.realpath(at.group(1)) if at else ""
        # dpkg knows the path that the package has, which may be that before /lib became a link to /usr/lib.
        for one in (path, path.removeprefix("/usr")) if at else ():
            owner = attempt("dpkg-query", "-S", one).split(":")[0]
            if owner:
                return Deb.installed([owner])
        return name, None


def checksums(data):
    return [
        {"algorithm": "SHA1", "checksumValue": hashlib.sha1(data).hexdigest()},
        {"algorithm": "SHA256", "checksumValue": hashlib.sha256(data).hexdigest()},
    ]


def identifier(*parts):
    return "SPDXRef-" + "-".join(re.sub(r"[^A-Za-z0-9.-]", "-", p) for p in parts)


def file_type(name, data):
    if data[:4] == b"\x7fELF":
        return "BINARY"
    if data[:8] == b"!<arch>\n" or data[:2] == b"\x1f\x8b":
        return "ARCHIVE"
    if name.endswith((".h", ".c")):
        return "SOURCE"
    if name.endswith(".png"):
        return "IMAGE"
    if "/share/doc/" in name or "/man/" in name:
        return "DOCUMENTATION"
    return "TEXT"


def licenses_of(name):
    return [LICENSE, "MIT"] if name in (PROGRAM, "./usr/share/doc/dualrail/copyright") else [LICENSE]


def file_element(package, name, data):
    licenses = licenses_of(name)
    return {
        "SPDXID": identifier("File", package.name, hashlib.sha256(name.encode()).hexdigest()[:16]),
        "fileName": name,
        "fileTypes": [file_type(name, data)],
        "checksums": checksums(data),
        "licenseConcluded": " AND ".join(licenses),
        "licenseInfoInFiles": licenses,
        "copyrightText": "NOASSERTION",
    }


def verification_code(files):
    """Of the sorted SHA-1 values of the files: 7.9 of the specification."""
    sums = sorted(c["checksumValue"] for f in files for c in f["checksums"] if c["algorithm"] == "SHA1")
    return hashlib.sha1("".join(sums).encode()).hexdigest()


def package_element(package, files, commit):
    with open(package.path, "rb") as f:
        data = f.read()
    licenses = sorted({one for f in files for one in f["licenseInfoInFiles"]})
    return {
        "SPDXID": identifier("Package", package.name),
        "name": package.name,
        "versionInfo": package.version,
        "packageFileName": os.path.basename(package.path),
        "supplier": "NOASSERTION",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": True,
        "packageVerificationCode": {"packageVerificationCodeValue": verification_code(files)},
        "checksums": checksums(data),
        "sourceInfo": f"commit {commit}",
        "licenseConcluded": " AND ".join(licenses),
        "licenseInfoFromFiles": licenses,
        "licenseDeclared": " AND ".join(licenses),
        "copyrightText": "NOASSERTION",
    }


def foreign_element(name, version, license_="NOASSERTION", **more):
    element = {
        "SPDXID": identifier("Dependency", name),
        "name": name,
        "supplier": "NOASSERTION",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": license_,
        "licenseDeclared": license_,
        "copyrightText": "NOASSERTION",
        **more,
    }
    if version:
        element["versionInfo"] = version
    return element


def relation(a, kind, b):
    return {"spdxElementId": a, "relationshipType": kind, "relatedSpdxElement": b}


def add_dependencies(package, ours, packages, relations):
    """Adds to packages (by identifier) those that are not ours, and to relations."""
    mine = identifier("Package", package.name)
    for wanted, needed in ((package.needs, True), (package.uses, False)):
        for names, text in wanted:
            own = [n for n in names if n in ours]
            if own:
                other = identifier("Package", own[0])
            else:
                name, version = package.installed(names)
                element = foreign_element(name, version)
                other = element["SPDXID"]
                packages.setdefault(other, element)
            kind = (mine, "DEPENDS_ON", other) if needed else (other, "OPTIONAL_DEPENDENCY_OF", mine)
            entry = relation(*kind)
            if needed or not own:
                entry["comment"] = text
            if other != mine and entry not in relations:
                relations.append(entry)


def add_uplot(packages, relations):
    with open(UPLOT, encoding="utf-8") as f:
        version = re.search(r"uPlot \(v([0-9.]+)\)", f.readline()).group(1)
    element = foreign_element("uPlot", version, "MIT", homepage="https://github.com/leeoniya/uPlot")
    element["copyrightText"] = "Copyright (c) 2022 Leon Sorokin"
    packages[element["SPDXID"]] = element
    relations.append(relation(identifier("Package", "dualrail"), "CONTAINS", element["SPDXID"]))


def document(paths, commit):
    ours = [(Rpm if p.endswith(".rpm") else Deb)(p) for p in paths]
    packages, files, relations = {}, [], []
    for package in ours:
        own = [file_element(package, *f) for f in sorted(package.files())]
        element = package_element(package, own, commit)
        packages[element["SPDXID"]] = element
        files += own
        relations.append(relation("SPDXRef-DOCUMENT", "DESCRIBES", element["SPDXID"]))
        relations += [relation(element["SPDXID"], "CONTAINS", f["SPDXID"]) for f in own]
        if any(f["fileName"] == PROGRAM for f in own):
            add_uplot(packages, relations)
    for package in ours:
        add_dependencies(package, [p.name for p in ours], packages, relations)
    first = ours[0]
    name = f"dualrail-{first.version}-{first.arch}-{first.kind}"
    sums = "".join(p["checksums"][1]["checksumValue"] for p in packages.values() if "checksums" in p)
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        "documentNamespace": f"https://spdx.org/spdxdocs/{name}-{uuid.uuid5(uuid.NAMESPACE_URL, sums)}",
        "creationInfo": {
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))),
            "creators": ["Tool: scripts/packages/sbom.py"],
        },
        "packages": list(packages.values()),
        "files": files,
        "relationships": relations,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", dest="out", required=True)
    parser.add_argument("--commit", required=True)
    parser.add_argument("packages", nargs="+")
    args = parser.parse_args()
    doc = document(sorted(args.packages), args.commit)
    with open(args.out, "w", encoding="utf-8") as f:
        json.dump(doc, f, indent=1, ensure_ascii=False)
        f.write("\n")


if __name__ == "__main__":
    sys.exit(main())
