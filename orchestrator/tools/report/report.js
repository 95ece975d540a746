/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Charts of the report page. The page is complete without this file: each chart stands above a table that the program wrote.
 * All text of a document goes into the page by textContent or canvas, never as markup.
 */
(() => {
"use strict";
const phone = () => window.innerWidth < 640;
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const num = v => typeof v === "number" && isFinite(v);
const list = v => Array.isArray(v) ? v : [];
const sig = v => !num(v) ? "–" : v === 0 ? "0" : Math.abs(v) >= 1000 ? Math.round(v).toString() : v.toPrecision(3).replace(/\.0+$/, "");
const size = b => !num(b) ? "–" : b >= 1 << 20 && b % (1 << 20) === 0 ? b / (1 << 20) + " MiB" : b >= 1024 && b % 1024 === 0 ? b / 1024 + " KiB" : b + " B";
const time = us => !num(us) ? "–" : us < 1000 ? sig(us) + " µs" : us < 1e6 ? sig(us / 1000) + " ms" : sig(us / 1e6) + " s";
const el = (tag, text, cls) => {
	const e = document.createElement(tag);
	if (text !== undefined) e.textContent = text;
	if (cls) e.className = cls;
	return e;
};
/* Distinct in both themes, by hue and lightness; the first one is the accent. */
const series = i => [css("--accent"), "#d9730d", "#2f9e6e", "#b04ac2", "#8c8c1f", "#d1436f", "#4a9aa8", "#8a7460"][i % 8];
const redraws = [];

/* ---- uPlot ---- */
const axis = extra => Object.assign({ stroke: () => css("--soft"), grid: { stroke: () => css("--line"), width: 1 }, ticks: { stroke: () => css("--line"), width: 1 }, font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif", labelSize: 18 }, extra);

function plot(box, data, opts, height) {
	const width = () => Math.max(260, box.clientWidth);
	const u = new uPlot(Object.assign({ width: width(), height: height || (phone() ? 240 : 300), cursor: { drag: { x: true, y: false } } }, opts), data, box);
	redraws.push(resize => { if (resize) u.setSize({ width: width(), height: u.height }); else u.redraw(false); });
	return u;
}

/* Pan with the arrows, zoom with + and -, all with 0. */
function keys(box, u, min, max, text) {
	box.tabIndex = 0;
	box.setAttribute("role", "img");
	box.setAttribute("aria-label", text);
	box.addEventListener("keydown", e => {
		const s = u.scales.x, span = s.max - s.min;
		const move = { ArrowLeft: [-0.2, -0.2], ArrowRight: [0.2, 0.2], "+": [0.2, -0.2], "=": [0.2, -0.2], "-": [-0.35, 0.35] }[e.key];
		if (e.key === "0") u.setScale("x", { min, max });
		else if (move) u.setScale("x", { min: Math.max(min, s.min + move[0] * span), max: Math.min(max, s.max + move[1] * span) });
		else return;
		e.preventDefault();
	});
}

/* ---- the run over time ---- */

/* Seconds since the begin of the run. Intervals begin with the session, whose begin is not in the document: a measurement's
 * first interval begins just after its event. */
function clocks(doc) {
	const first = new Map();
	let session = null;
	for (const i of list(doc.intervals))
		if (num(i.start_us) && !first.has(i.phase)) first.set(i.phase, i.start_us / 1e6);
	for (const e of list(doc.events)) {
		const m = e.kind === "phase" && e.side === doc.side && /^(\d+):/.exec(e.text || "");
		if (m && first.has(+m[1])) session = Math.max(session === null ? -Infinity : session, (e.monotonic_ns - doc.start_monotonic_ns) / 1e9 - first.get(+m[1]));
	}
	const fault = list((doc.failover || {}).faults).find(f => num(f.clock_offset_us));
	const receiver = (list(doc.bandwidth)[0] || {}).direction === "to-client" ? "client" : "server";
	const other = fault ? (receiver === doc.side ? -1 : 1) * fault.clock_offset_us / 1e6 : 0;
	return { session: session || 0, at: (side, ns) => (ns - doc.start_monotonic_ns) / 1e9 - (side && side !== doc.side ? other : 0) };
}

function marks(doc, clock) {
	const undo = new Map(), out = [];
	for (const e of list(doc.events)) {
		const m = e.kind === "undo" && /^trial (\d+):/.exec(e.text || "");
		if (m && !undo.has(+m[1])) undo.set(+m[1], clock.at(e.side, e.monotonic_ns));
	}
	for (const f of list((doc.failover || {}).faults)) {
		if (!num(f.at_monotonic_ns)) continue;
		const t = clock.at(f.side, f.at_monotonic_ns), last = num(f.fault_after_us) ? t - f.fault_after_us / 1e6 : null, end = undo.get(f.trial);
		const sum = (...names) => num(last) && names.every(n => num(f[n])) ? last + names.reduce((s, n) => s + f[n], 0) / 1e6 : null;
		out.push({ trial: f.trial, f, steps: [
			["fault", t], ["last delivery", last], ["detected", sum("detect_us")],
			["switched", sum("detect_us", "fence_us", "handshake_us")], ["first delivery", num(last) && num(f.gap_us) ? last + f.gap_us / 1e6 : null],
			["fault undone", end === undefined ? null : end], ["failback", end !== undefined && num(f.failback_us) ? end + f.failback_us / 1e6 : null],
		].filter(s => num(s[1])) });
	}
	return out;
}

function timeline(box, doc) {
	const clock = clocks(doc), by = { "to-server": [], "to-client": [] };
	for (const i of list(doc.intervals))
		if (i.gpu === null && num(i.gbps) && num(i.start_us) && by[i.direction]) by[i.direction].push(i);
	const dirs = Object.keys(by).filter(d => by[d].length);
	if (!dirs.length) return false;
	const tables = dirs.map(d => {
		const x = [], y = [];
		let end = -1;
		for (const i of by[d]) {
			const a = clock.session + i.start_us / 1e6, b = a + i.duration_us / 1e6;
			if (end >= 0 && a - end > 0.001 + (b - a) / 2) { x.push(end, end + 1e-6); y.push(y[y.length - 1], null); }
			x.push(Math.max(a, end + 2e-6)); y.push(i.gbps); end = b;
		}
		x.push(end); y.push(y[y.length - 1]);
		return [x, y];
	});
	const data = uPlot.join(tables), min = 0, max = data[0][data[0].length - 1], trials = marks(doc, clock);
	const draw = u => {
		const c = u.ctx, top = u.bbox.top, bottom = top + u.bbox.height, right = u.bbox.left + u.bbox.width, pr = devicePixelRatio || 1;
		const span = u.scales.x.max - u.scales.x.min;
		c.save();
		c.beginPath(); c.rect(u.bbox.left, top - 16 * pr, u.bbox.width, u.bbox.height + 16 * pr); c.clip();
		c.textAlign = "left"; c.textBaseline = "alphabetic";
		c.font = 11 * pr + "px system-ui, sans-serif";
		let room = [-1e9, -1e9, -1e9, -1e9, -1e9, -1e9, -1e9];
		for (const t of trials) for (const [name, s] of t.steps) {
			const x = Math.round(u.valToPos(s, "x", true)), fault = name === "fault";
			if (x < u.bbox.left || x > right || (span > 5 && !fault)) continue;
			c.strokeStyle = fault ? css("--bad") : css("--soft"); c.lineWidth = pr; c.setLineDash(fault ? [] : [4 * pr, 3 * pr]);
			c.beginPath(); c.moveTo(x, top); c.lineTo(x, bottom); c.stroke();
			const text = span > 5 ? "" : fault ? t.f.kind + " " + t.trial : name, w = c.measureText(text).width;
			const k = room.findIndex(r => r + 6 * pr < x);
			if (!text || k < 0) continue;
			const left = Math.min(x + 3 * pr, right - w);
			room[k] = left + w; c.fillStyle = fault ? css("--bad") : css("--fg");
			c.fillText(text, left, top + (11 + 13 * k) * pr);
		}
		c.restore();
	};
	const tools = el("div", undefined, "tools"), pick = el("select"), all = el("button", "Whole run");
	all.type = "button";
	const u = plot(box, data, {
		scales: { x: { time: false, min, max }, y: { range: (u, a, b) => [0, (b || 1) * 1.25] } },
		axes: [axis({ label: "time since the begin of the run, s" }), axis({ label: "Gb/s", size: 56 })],
		series: [{ label: "s", value: (u, v) => num(v) ? v.toFixed(3) : "–" }, ...dirs.map((d, i) => ({ label: d + ", Gb/s", stroke: () => series(i), width: 1.5, fill: () => series(i) + "22", paths: uPlot.paths.stepped({ align: 1 }), points: { show: false }, value: (u, v) => sig(v) }))],
		hooks: { draw: [draw] },
	}, phone() ? 280 : 340);
	u.setScale("x", { min, max });
	all.addEventListener("click", () => u.setScale("x", { min, max }));
	keys(box, u, min, max, "Bandwidth over time. Arrow keys move, + and - zoom, 0 shows the whole run. The tables below have the figures.");
	if (trials.length) {
		const label = el("label", "Show trial ");
		pick.append(el("option", "all"));
		for (const t of trials) pick.append(el("option", t.trial + ": " + t.f.kind + " at the " + (t.f.side || "?") + ", gap " + time(t.f.gap_us)));
		pick.addEventListener("change", () => {
			const t = trials[pick.selectedIndex - 1];
			if (!t) return u.setScale("x", { min, max });
			const s = t.steps.map(x => x[1]), a = Math.min(...s), b = Math.max(...s), pad = Math.max(0.05, (b - a) * 0.25);
			u.setScale("x", { min: a - pad, max: b + pad });
		});
		label.append(pick); tools.append(label);
	}
	tools.append(all, el("span", "Drag to zoom, double-click for the whole run; keys: arrows, +, -, 0.", "hint"));
	box.before(tools);
	return true;
}

/* ---- latency ---- */
function sizes(doc) {
	const by = new Map();
	for (const l of list(doc.latency)) if (list(l.histogram).length) by.set(l.bytes, [...(by.get(l.bytes) || []), l]);
	return by;
}

function chooser(box, names, show) {
	if (names.length > 1) {
		const tools = el("div", undefined, "tools"), label = el("label", "Message "), pick = el("select");
		names.forEach(n => pick.append(el("option", n)));
		pick.addEventListener("change", () => show(pick.selectedIndex));
		label.append(pick); tools.append(label); box.before(tools);
	}
	show(0);
}

const logRange = (u, a, b) => [a * 0.9, (b > a ? b : a) * 1.1];
const logTicks = { splits: (u, i, a, b) => { const out = []; for (let e = Math.floor(Math.log10(a)); e <= Math.ceil(Math.log10(b)); e++) for (const m of b / a < 100 ? [1, 2, 5] : [1]) out.push(m * 10 ** e); return out.filter(v => v >= a * 0.999 && v <= b * 1.001); }, filter: (u, v) => v, values: (u, v) => v.map(x => x === null ? "" : time(x)) };

function histogram(box, doc) {
	const by = sizes(doc), all = [...by.keys()].sort((a, b) => a - b);
	if (!all.length) return false;
	chooser(box, all.map(size), k => {
		const bins = new Map();
		let total = 0;
		for (const l of by.get(all[k])) for (const b of l.histogram) { bins.set(b.from_us, [b.to_us, (bins.get(b.from_us) || [0, 0])[1] + b.count]); total += b.count; }
		const x = [], y = [];
		let end = 0;
		for (const from of [...bins.keys()].sort((a, b) => a - b)) {
			const [to, n] = bins.get(from);
			if (end && from > end * 1.001) { x.push(end); y.push(0); }
			x.push(from); y.push(100 * n / total); end = to;
		}
		x.push(end); y.push(0);
		box.replaceChildren();
		plot(box, [x, y], {
			scales: { x: { time: false, distr: 3, range: logRange }, y: { range: (u, a, b) => [0, b * 1.1 || 1] } },
			axes: [axis(Object.assign({ label: "round trip, logarithmic", space: 60 }, logTicks)), axis({ label: "% of the round trips", size: 56 })],
			series: [{ label: "from", value: (u, v) => time(v) }, { label: "share, %", stroke: () => series(0), fill: () => series(0) + "55", width: 1, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false }, value: (u, v) => sig(v) }],
		});
	});
	return true;
}

function percentiles(box, doc) {
	const by = sizes(doc), all = [...by.keys()].sort((a, b) => a - b);
	if (!all.length) return false;
	const ticks = [0, 0.301, 1, 2, 3, 4, 5], names = ["0", "50", "90", "99", "99.9", "99.99", "99.999"];
	chooser(box, all.map(size), k => {
		const rows = by.get(all[k]).slice(0, 8);
		const tables = rows.map(l => {
			const n = l.histogram.reduce((s, b) => s + b.count, 0), x = [], y = [];
			let sum = 0;
			for (const b of l.histogram) {
				x.push(-Math.log10(1 - sum / n)); y.push(b.from_us);
				sum += b.count;
			}
			x.push(Math.log10(n) + 0.05); y.push(num((l.rtt_us || {}).max) ? l.rtt_us.max : l.histogram[l.histogram.length - 1].to_us);
			return [x, y];
		});
		box.replaceChildren();
		plot(box, uPlot.join(tables), {
			scales: { x: { time: false }, y: { distr: 3, range: logRange } },
			axes: [axis({ label: "percentile", splits: u => ticks.filter(t => t <= u.scales.x.max), values: (u, v) => v.map(t => names[ticks.indexOf(t)] || "") }), axis(Object.assign({ label: "round trip, logarithmic", size: 70 }, logTicks))],
			series: [{ label: "percentile", value: (u, v) => num(v) ? (100 * (1 - 10 ** -v)).toPrecision(5) : "–" }, ...rows.map((l, i) => ({ label: "GPU " + l.gpu, stroke: () => series(i), width: 1.5, spanGaps: true, points: { show: false }, value: (u, v) => time(v) }))],
		});
	});
	return true;
}

/* ---- gaps ---- */
const kindOf = f => f.kind + " at the " + (f.side || "?") + (f.dir && f.dir !== "both" ? ", " + f.dir : "");

function gaps(box, doc) {
	const by = new Map();
	for (const f of list((doc.failover || {}).faults)) if (num(f.gap_us) && f.gap_us > 0) by.set(kindOf(f), [...(by.get(kindOf(f)) || []), f.gap_us]);
	const kinds = [...by.keys()].slice(0, 8);
	if (!kinds.length) return false;
	const tables = kinds.map(k => {
		const v = by.get(k).sort((a, b) => a - b), x = [], y = [];
		v.forEach((g, i) => { if (i && g <= x[x.length - 1]) y[y.length - 1] = 100 * (i + 1) / v.length; else { x.push(g); y.push(100 * (i + 1) / v.length); } });
		x.unshift(x[0] * 0.9999); y.unshift(0);
		return [x, y];
	});
	plot(box, uPlot.join(tables), {
		scales: { x: { time: false, distr: 3, range: logRange }, y: { range: [0, 105] } },
		axes: [axis(Object.assign({ label: "gap, logarithmic", space: 60 }, logTicks)), axis({ label: "% of the trials at most", size: 56 })],
		series: [{ label: "gap", value: (u, v) => time(v) }, ...kinds.map((k, i) => ({ label: k, stroke: () => series(i), width: 1.5, spanGaps: true, paths: uPlot.paths.stepped({ align: 1 }), points: { show: true, size: 5 }, value: (u, v) => sig(v) }))],
	});
	return true;
}

const PARTS = ["detect", "fence", "handshake", "replay", "first_delivery"];
function parts(box, doc) {
	const rows = list((doc.failover || {}).summary).filter(s => PARTS.some(p => s[p + "_us_median"] > 0));
	if (!rows.length) return false;
	const top = Math.max(...rows.map(s => PARTS.reduce((a, p) => a + (s[p + "_us_median"] || 0), 0)));
	const key = el("div", undefined, "key"), grid = el("div", undefined, "parts");
	PARTS.forEach((p, i) => { const s = el("span"), c = el("i"); c.style.background = series(i); s.append(c, p.replace("_", " ")); key.append(s); });
	for (const s of rows) {
		const bar = el("div", undefined, "bar");
		let sum = 0;
		PARTS.forEach((p, i) => {
			const v = s[p + "_us_median"], part = el("span");
			if (!(v > 0)) return;
			sum += v; part.style.background = series(i); part.style.width = 100 * v / top + "%"; part.title = p.replace("_", " ") + ": " + time(v); bar.append(part);
		});
		grid.append(el("span", kindOf(s)), bar, el("span", time(sum)));
	}
	box.append(key, grid);
	return true;
}

/* ---- heat map: our own canvas, one pixel a cell stretched, so that a million cells are one image ---- */
/*
 * rows, cols: names. value(r, c): a number or null. unit: behind a value. failed(r, c), if given: why there is no value, or undefined;
 * such cells have a colour of their own. Wheel, + and - zoom at the cell, dragging moves, arrows choose a cell, 0 shows all. The
 * chosen cell is told in words beside the map.
 */
function heatmap(box, { rows, cols, value, unit, rowTitle, colTitle, failed = () => undefined }) {
	const R = rows.length, C = cols.length, canvas = el("canvas"), told = el("p", "", "soft"), ctx = canvas.getContext("2d");
	const image = document.createElement("canvas"), values = new Float64Array(R * C);
	let lo = Infinity, hi = -Infinity, view = { r: 0, c: 0, h: R, w: C }, at = null, drag = null, pixels = null;
	for (let r = 0; r < R; r++) for (let c = 0; c < C; c++) {
		const v = value(r, c);
		values[r * C + c] = num(v) ? v : NaN;
		if (num(v)) { lo = Math.min(lo, v); hi = Math.max(hi, v); }
	}
	if (!(hi >= lo)) return false;
	const bad = new Set();
	for (let i = 0; i < values.length; i++) if (isNaN(values[i]) && failed(Math.floor(i / C), i % C) !== undefined) bad.add(i);
	lo = Math.min(lo, hi * 0.5); /* a scale that begins at the lowest cell would make noise look like a finding */
	image.width = C; image.height = R;
	const rgb = s => { const m = /^#(..)(..)(..)$/.exec(s) || [0, "00", "60", "c0"]; return [1, 2, 3].map(i => parseInt(m[i], 16)); };
	function paint() {
		const a = rgb(css("--panel")), b = rgb(css("--accent")), broken = rgb(css("--bad")), ic = image.getContext("2d"), px = ic.createImageData(C, R);
		for (let i = 0; i < values.length; i++) {
			const v = values[i], k = isNaN(v) ? 0 : 0.08 + 0.92 * (hi > lo ? (v - lo) / (hi - lo) : 1);
			for (let j = 0; j < 3; j++) px.data[4 * i + j] = bad.has(i) ? broken[j] : a[j] + (b[j] - a[j]) * k;
			px.data[4 * i + 3] = isNaN(v) && !bad.has(i) ? 0 : 255;
		}
		ic.putImageData(px, 0, 0);
		pixels = px.data;
	}
	const bright = i => { const p = 4 * i; return 0.299 * pixels[p] + 0.587 * pixels[p + 1] + 0.114 * pixels[p + 2] > 135; };
	let g = {};
	function layout() {
		const pr = devicePixelRatio || 1, longest = Math.min(16, Math.max(...rows.slice(0, 200).map(s => s.length)));
		const left = 18 + longest * 7, top = 40, width = Math.max(240, Math.min(box.clientWidth, left + C * 110, 1100));
		const cell = (width - left - 8) / C, height = top + Math.max(60, Math.min(R * Math.max(Math.min(cell, 34), 1), Math.max(360, width - left)));
		canvas.width = width * pr; canvas.height = height * pr; canvas.style.width = width + "px"; canvas.style.height = height + "px";
		ctx.setTransform(pr, 0, 0, pr, 0, 0);
		g = { left, top, w: width - left - 8, h: height - top - 2, width, height };
	}
	function draw() {
		const { left, top, w, h } = g, cw = w / view.w, ch = h / view.h;
		ctx.clearRect(0, 0, g.width, g.height);
		ctx.imageSmoothingEnabled = false;
		ctx.fillStyle = css("--line"); ctx.fillRect(left, top, w, h);
		ctx.drawImage(image, view.c, view.r, view.w, view.h, left, top, w, h);
		ctx.font = "12px system-ui, sans-serif"; ctx.fillStyle = css("--soft");
		ctx.textAlign = "left"; ctx.fillText(colTitle + " →", left, 12); ctx.fillText(rowTitle + " ↓", 0, top - 6);
		const stepC = Math.ceil(52 / cw), stepR = Math.ceil(15 / ch);
		ctx.textAlign = "center";
		for (let c = Math.ceil(view.c / stepC) * stepC; c < view.c + view.w; c += stepC) ctx.fillText(cols[c].slice(0, 14), left + (c + 0.5 - view.c) * cw, top - 6, stepC * cw - 4);
		ctx.textAlign = "right";
		for (let r = Math.ceil(view.r / stepR) * stepR; r < view.r + view.h; r += stepR) ctx.fillText(rows[r].slice(0, 16), left - 6, top + (r + 0.5 - view.r) * ch + 4);
		if (cw >= 40 && ch >= 15) {
			ctx.textAlign = "center";
			for (let r = Math.floor(view.r); r < view.r + view.h; r++) for (let c = Math.floor(view.c); c < view.c + view.w; c++) {
				const v = values[r * C + c];
				if (isNaN(v)) continue;
				ctx.fillStyle = bright(r * C + c) ? "#000" : "#fff";
				ctx.fillText(sig(v), left + (c + 0.5 - view.c) * cw, top + (r + 0.5 - view.r) * ch + 4, cw - 4);
			}
		}
		if (at) { ctx.strokeStyle = css("--bad"); ctx.lineWidth = 2; ctx.strokeRect(left + (at.c - view.c) * cw, top + (at.r - view.r) * ch, Math.max(cw, 3), Math.max(ch, 3)); }
	}
	const clamp = (v, a, b) => Math.max(a, Math.min(b, v));
	function choose(r, c) {
		at = { r: clamp(r, 0, R - 1), c: clamp(c, 0, C - 1) };
		const v = values[at.r * C + at.c];
		told.textContent = rows[at.r] + ", " + cols[at.c] + ": " + (isNaN(v) ? failed(at.r, at.c) || "not measured" : sig(v) + " " + unit);
		if (at.c < view.c || at.c >= view.c + view.w) view.c = clamp(Math.floor(at.c - view.w / 2), 0, C - view.w);
		if (at.r < view.r || at.r >= view.r + view.h) view.r = clamp(Math.floor(at.r - view.h / 2), 0, R - view.h);
		draw();
	}
	function zoom(f, r, c) {
		const w = clamp(Math.round(view.w * f), Math.min(C, 4), C), h = clamp(Math.round(view.h * f), Math.min(R, 4), R);
		view = { w, h, c: clamp(Math.round(c - (c - view.c) * w / view.w), 0, C - w), r: clamp(Math.round(r - (r - view.r) * h / view.h), 0, R - h) };
		draw();
	}
	const cellOf = e => { const b = canvas.getBoundingClientRect(); return { r: Math.floor(view.r + (e.clientY - b.top - g.top) / g.h * view.h), c: Math.floor(view.c + (e.clientX - b.left - g.left) / g.w * view.w) }; };
	canvas.addEventListener("pointermove", e => {
		const p = cellOf(e);
		if (drag) { view.c = clamp(view.c + drag.c - p.c, 0, C - view.w); view.r = clamp(view.r + drag.r - p.r, 0, R - view.h); draw(); } else if (p.r >= 0 && p.c >= 0 && p.r < R && p.c < C) choose(p.r, p.c);
	});
	canvas.addEventListener("pointerdown", e => { if (view.w < C || view.h < R) { drag = cellOf(e); canvas.setPointerCapture(e.pointerId); } });
	canvas.addEventListener("pointerup", () => { drag = null; });
	const big = R * C > 400;
	if (big) canvas.addEventListener("wheel", e => { const p = cellOf(e); e.preventDefault(); zoom(e.deltaY < 0 ? 0.7 : 1.4, p.r, p.c); }, { passive: false });
	canvas.tabIndex = 0;
	canvas.setAttribute("role", "img");
	canvas.setAttribute("aria-label", "Heat map, " + R + " × " + C + ". Arrow keys choose a cell, + and - zoom, 0 shows all. The table below has the figures.");
	told.setAttribute("role", "status");
	canvas.addEventListener("keydown", e => {
		const p = at || { r: 0, c: 0 }, move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[e.key];
		if (move) choose(p.r + move[0], p.c + move[1]);
		else if (e.key === "+" || e.key === "=") zoom(0.7, p.r, p.c);
		else if (e.key === "-") zoom(1.4, p.r, p.c);
		else if (e.key === "0") { view = { r: 0, c: 0, h: R, w: C }; draw(); } else return;
		e.preventDefault();
	});
	box.classList.add("heat");
	told.textContent = "Scale: " + sig(lo) + " (faint) to " + sig(hi) + " " + unit + " (full colour)." + (bad.size ? " Red: no figure, see the table." : "") + (big ? " Wheel or + and - zoom, dragging moves." : "");
	box.append(canvas, told);
	paint(); layout(); draw();
	redraws.push(resize => { if (resize) layout(); else paint(); draw(); });
	return true;
}

function matrix(box, doc) {
	const cells = list((doc.matrix || {}).cells).filter(c => c.gpu !== null && num(c.gbps));
	if (!cells.length) return false;
	for (const dir of ["to-server", "to-client"]) {
		const mine = cells.filter(c => c.direction === dir);
		if (!mine.length) continue;
		const gpus = [...new Set(mine.map(c => c.gpu))].sort((a, b) => a - b), nics = [...new Set(mine.map(c => c.nic))];
		const of = new Map(mine.map(c => [c.gpu + "|" + c.nic, c.gbps])), part = el("div");
		box.append(el("p", dir, "soft"), part);
		heatmap(part, { rows: gpus.map(g => "GPU " + g), cols: nics, value: (r, c) => of.get(gpus[r] + "|" + nics[c]), unit: "Gb/s", rowTitle: "GPU", colTitle: "NIC" });
	}
	return true;
}

/* ---- sweep ---- */

/* Places of the ranks in the map, and their names. */
function nodesOf(doc) {
	const nodes = list(doc.nodes), at = new Map(nodes.map((n, i) => [n.rank, i]));
	return { n: nodes.length, at, names: nodes.map(n => n.rank + (n.host ? " " + n.host : "")) };
}

/* A map of the values that `each` sets for a pair; why a pair without figures has none. */
function nodeMap(box, doc, unit, each) {
	const { n, at, names } = nodesOf(doc), values = new Map(), why = new Map();
	for (const p of list(doc.pairs)) {
		const c = at.get(p.client), s = at.get(p.server);
		if (c === undefined || s === undefined) continue;
		if (p.state !== "ok") for (const i of [c * n + s, s * n + c]) why.set(i, p.state + (p.error ? ": " + p.error : ""));
		each(p, (back, v) => {
			const i = back ? s * n + c : c * n + s;
			if (num(v)) values.set(i, Math.min(v, values.has(i) ? values.get(i) : Infinity));
		});
	}
	return { names, lowest: i => values.get(i), why, n, unit, box };
}

function drawNodes({ box, names, lowest, why, n, unit }, rowTitle, colTitle) {
	return heatmap(box, { rows: names, cols: names, value: (r, c) => lowest(r * n + c), failed: (r, c) => why.get(r * n + c), unit, rowTitle, colTitle });
}

const sweep = (box, doc) => drawNodes(nodeMap(box, doc, "Gb/s", (p, set) => { for (const l of list(p.lanes)) set(l.direction === "to-client", l.gbps); }), "from", "to");
const roundtrips = (box, doc) => drawNodes(nodeMap(box, doc, "µs", (p, set) => { set(false, p.rtt_us); set(true, p.rtt_us); }), "node", "node");

/* ---- the page ---- */
const charts = { timeline, histogram, percentiles, gaps, parts, matrix, sweep, roundtrips };
const docs = new Map();
const docOf = n => { if (!docs.has(n)) docs.set(n, JSON.parse(document.getElementById("data-" + n).textContent)); return docs.get(n); };

function start() {
	for (const f of document.querySelectorAll("figure[data-chart]")) {
		f.classList.add("ready"); /* a hidden box has no width */
		let shown = false;
		try { shown = charts[f.dataset.chart](f.querySelector(".plot"), docOf(+f.dataset.result)); } catch (e) { console.error(f.dataset.chart, e); }
		if (!shown) { f.classList.remove("ready"); f.querySelector(".plot").replaceChildren(); for (const t of f.querySelectorAll(".tools")) t.remove(); }
		if (!shown && f.nextElementSibling instanceof HTMLDetailsElement) f.nextElementSibling.open = true;
	}
	for (const a of document.querySelectorAll("a[data-download]")) {
		a.hidden = false;
		a.addEventListener("click", () => { a.href = URL.createObjectURL(new Blob([JSON.stringify(docOf(+a.dataset.download), null, 2) + "\n"], { type: "application/json" })); });
	}
	document.documentElement.dataset.ready = "1";
}
const closed = [];
addEventListener("beforeprint", () => { for (const d of document.querySelectorAll("details:not([open])")) { closed.push(d); d.open = true; } });
addEventListener("afterprint", () => { while (closed.length) closed.pop().open = false; });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraws.forEach(f => f(false)));
let later = 0;
addEventListener("resize", () => { clearTimeout(later); later = setTimeout(() => redraws.forEach(f => f(true)), 120); });
window.dualrailReport = { heatmap };
/* The tables are painted before the document is read. */
requestAnimationFrame(() => setTimeout(start, 0));
})();
