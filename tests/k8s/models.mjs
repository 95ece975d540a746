// SPDX-License-Identifier: Apache-2.0
// Writes models.json: the fields of the Kubernetes kinds that k8s/ uses, their types, and which of them are required.
//
//   npm install @kubernetes/client-node@2.0.1; node tests/k8s/models.mjs node_modules/@kubernetes/client-node >tests/k8s/models.json
//
// Source: the models of the npm package, which Kubernetes generates from its OpenAPI document (2.0.1: release 1.36).
// The types stand in the .js files, which fields are required in the .d.ts files. tests/k8s/check.py reads the result.
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const ROOTS = ["V1Job", "V1JobTemplateSpec", "V1Service", "V1ConfigMap", "V1Secret", "V1PersistentVolumeClaim", "V1ServiceAccount", "V1Namespace",
	"V1ResourceClaimTemplate", "V1DeviceClass"];
// No manifest sets these: check.py says of one that does that the field is unknown.
const LEFT_OUT = new Set(["status", "managedFields", "ownerReferences", "ephemeralContainers", "windowsOptions", "awsElasticBlockStore",
	"azureDisk", "azureFile", "cephfs", "cinder", "clusterTrustBundle", "csi", "fc", "flexVolume", "flocker", "gcePersistentDisk", "gitRepo",
	"glusterfs", "iscsi", "nfs", "photonPersistentDisk", "podCertificate", "portworxVolume", "quobyte", "rbd", "scaleIO", "storageos",
	"vsphereVolume"]);
const folder = resolve(process.argv[2], "dist/gen/models");
const models = await import(pathToFileURL(resolve(folder, "all.js")));
const found = {};

function named(type) {
	return type.replace(/^Array<(.*)>$/, "$1").replace(/^\{ \[key: string\]: (.*); \}$/, "$1");
}

function add(name) {
	if (found[name] || !models[name]?.attributeTypeMap) return;
	const optional = new Set();
	for (const [, field] of readFileSync(resolve(folder, name + ".d.ts"), "utf8").matchAll(/^    '(\w+)'\?:/gm)) optional.add(field);
	found[name] = {};
	for (const { name: property, baseName, type } of models[name].attributeTypeMap) {
		if (LEFT_OUT.has(baseName)) continue;
		const short = type.replace(/^Array<(.*)>$/, "[$1]").replace(/^\{ \[key: string\]: (.*); \}$/, "{$1}");
		found[name][baseName] = short + (optional.has(property) ? "" : "!");
		let inner = type;
		while (named(inner) !== inner) inner = named(inner);
		add(inner);
	}
}

ROOTS.forEach(add);
const lines = Object.keys(found).sort().map((name) => JSON.stringify(name) + ": " + JSON.stringify(found[name]));
console.log("{\n" + lines.join(",\n") + "\n}");
