/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Draws the page of `dualrail report` from the documents that are embedded in it: tables at once, then charts. Documents may be
 * hostile. All their text goes into the page by textContent or canvas, never as markup, and a part that cannot be drawn is left out.
 */
(() => {
"use strict";
const phone = () => window.innerWidth < 640;
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const num = v => typeof v === "number" && isFinite(v);
const str = v => typeof v === "string" ? v : "";
const isObject = v => typeof v === "object" && v !== null && !Array.isArray(v);
/* Rows: the objects of a list. */
const list = v => Array.isArray(v) ? v.filter(isObject) : [];
/* What a document names is the key of a Map, never a property of an object: "__proto__", "constructor". Adds to the list of a key. */
const push = (map, key, v) => { if (map.has(key)) map.get(key).push(v); else map.set(key, [v]); };
/* The member at a path like "rtt_us.p50". */
const at = (v, path) => path.split(".").reduce((o, key) => isObject(o) && Object.hasOwn(o, key) ? o[key] : undefined, v);
const sig = v => !num(v) ? "–" : v === 0 ? "0" : Math.abs(v) >= 1000 ? Math.round(v).toString() : v.toPrecision(3).replace(/\.0+$/, "");
/* Bytes: exact below 100,000, so that an MTU is what it is; else four digits. */
const size = b => {
	let i = 0;
	if (!(num(b) && b >= 0)) return "–";
	for (; b && (b % 1024 === 0 || b >= (i ? 1024 : 1e5)) && i < 4; i++) b /= 1024;
	return (i ? +b.toPrecision(4) : b) + " " + ["B", "KiB", "MiB", "GiB", "TiB"][i];
};
const time = us => !num(us) ? "–" : us < 1000 ? sig(us) + " µs" : us < 1e6 ? sig(us / 1000) + " ms" : sig(us / 1e6) + " s";
/* Text without characters that act instead of showing, and not endless. */
const clean = s => s.slice(0, 512).replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{DI}]/gu, "?");
const el = (tag, text, cls) => {
	const e = document.createElement(tag);
	if (text !== undefined) e.textContent = clean(text);
	if (cls) e.className = cls;
	return e;
};
const put = (box, ...what) => box.appendChild(el(...what));
/* Lets the reader choose one of the names; calls `show` with its index. */
function choice(text, names, show) {
	const label = el("label", text), pick = put(label, "select");
	for (const name of names) put(pick, "option", name);
	pick.addEventListener("change", () => show(pick.selectedIndex));
	return label;
}
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
 * first interval begins just after its phase. */
function clocks(doc) {
	const first = new Map();
	let session = -Infinity;
	for (const i of list(doc.intervals))
		if (num(i.start_us) && !first.has(i.phase)) first.set(i.phase, i.start_us / 1e6);
	for (const p of list(doc.phases))
		if (p.side === doc.side && first.has(p.phase))
			session = Math.max(session, (p.begin_monotonic_ns - doc.start_monotonic_ns) / 1e9 - first.get(p.phase));
	const fault = list(at(doc, "failover.faults")).find(f => num(f.clock_offset_us));
	const receiver = (list(doc.bandwidth)[0] || {}).direction === "to-client" ? "client" : "server";
	const other = fault ? (receiver === doc.side ? -1 : 1) * fault.clock_offset_us / 1e6 : 0;
	return { session: num(session) ? session : 0, at: (side, ns) => (ns - doc.start_monotonic_ns) / 1e9 - (side && side !== doc.side ? other : 0) };
}

/* What is marked in the time line: its name, and steps: name, time, and the colour of a full line. Names the spans (of a phase each). */
function marks(doc, clock, spans) {
	const out = [], cells = new Map(list(at(doc, "matrix.cells")).map(c => [c.phase, c]));
	for (const f of list(at(doc, "failover.faults"))) {
		if (!num(f.at_monotonic_ns)) continue;
		const t = clock.at(f.side, f.at_monotonic_ns), last = num(f.fault_after_us) ? t - f.fault_after_us / 1e6 : null;
		const end = num(f.undone_monotonic_ns) ? clock.at(f.side, f.undone_monotonic_ns) : null;
		const sum = (...names) => num(last) && names.every(n => num(f[n])) ? last + names.reduce((s, n) => s + f[n], 0) / 1e6 : null;
		out.push({ name: any(f.trial) + ": " + kindOf(f) + ", gap " + time(f.gap_us), steps: [
			[any(f.kind) + " " + any(f.trial), t, "--bad"], ["last delivery", last], ["detected", sum("detect_us")],
			["switched", sum("detect_us", "fence_us", "handshake_us")], ["first delivery", sum("gap_us")],
			["fault undone", end], ["failback", num(end) && num(f.failback_us) ? end + f.failback_us / 1e6 : null],
		].filter(s => num(s[1])) });
	}
	if (cells.size) for (const [phase, span] of spans) {
		const c = cells.get(phase) || { nic: "all NICs" };
		span.name = clean((num(c.gpu) ? "GPU " + c.gpu : "all GPUs") + ", " + any(c.nic) + (str(c.peer_nic) && " ↔ " + c.peer_nic));
		out.push({ name: span.name, steps: [[span.name, span.from, "--fg"], ["", span.to]] });
	}
	return out;
}

function timeline(box, doc) {
	const clock = clocks(doc), by = new Map(), spans = new Map();
	for (const i of list(doc.intervals)) if (i.gpu === null && num(i.gbps) && num(i.start_us)) push(by, i.direction, i);
	const dirs = ["to-server", "to-client"].filter(d => by.has(d));
	if (!dirs.length) return false;
	const tables = dirs.map(d => {
		const x = [], y = [];
		let end = -1;
		for (const i of by.get(d)) {
			const a = clock.session + i.start_us / 1e6, b = a + i.duration_us / 1e6;
			if (end >= 0 && a - end > 0.001 + (b - a) / 2) { x.push(end, end + 1e-6); y.push(y[y.length - 1], null); }
			x.push(Math.max(a, end + 2e-6)); y.push(i.gbps); end = b;
			if (!spans.has(i.phase)) spans.set(i.phase, { from: a });
			spans.get(i.phase).to = b;
		}
		x.push(end); y.push(y[y.length - 1]);
		return [x, y];
	});
	const data = uPlot.join(tables), min = 0, max = data[0][data[0].length - 1], all = marks(doc, clock, spans);
	const named = v => { const s = [...spans.values()].find(s => s.name && s.from <= v && v <= s.to); return s ? ", " + s.name : ""; };
	const draw = u => {
		const c = u.ctx, top = u.bbox.top, bottom = top + u.bbox.height, right = u.bbox.left + u.bbox.width, pr = devicePixelRatio || 1;
		const span = u.scales.x.max - u.scales.x.min;
		c.save();
		c.beginPath(); c.rect(u.bbox.left, top - 16 * pr, u.bbox.width, u.bbox.height + 16 * pr); c.clip();
		c.textAlign = "left"; c.textBaseline = "alphabetic"; c.font = 11 * pr + "px system-ui, sans-serif";
		const room = Array(phone() ? 3 : 7).fill(-1e9), texts = [];
		for (const mark of all) for (const [name, s, colour] of mark.steps) {
			const x = Math.round(u.valToPos(s, "x", true));
			if (x < u.bbox.left || x > right || (span > 5 && !colour)) continue;
			c.strokeStyle = css(colour || "--soft"); c.lineWidth = pr; c.setLineDash(colour ? [] : [4 * pr, 3 * pr]);
			c.beginPath(); c.moveTo(x, top); c.lineTo(x, bottom); c.stroke();
			const text = span > 5 && colour === "--bad" ? "" : clean(name), w = c.measureText(text).width;
			const left = Math.min(x + 3 * pr, right - w), k = room.findIndex(r => r + 3 * pr < left);
			if (!text || k < 0) continue;
			room[k] = left + w;
			texts.push([text, left, top + (11 + 13 * k) * pr, css(colour || "--fg")]);
		}
		c.strokeStyle = css("--bg"); c.lineWidth = 4 * pr; c.setLineDash([]); c.lineJoin = "round";
		for (const [text, x, y, colour] of texts) { c.strokeText(text, x, y); c.fillStyle = colour; c.fillText(text, x, y); }
		c.restore();
	};
	const tools = el("div", undefined, "tools"), reset = el("button", "Whole run");
	reset.type = "button";
	const u = plot(box, data, {
		scales: { x: { time: false, min, max }, y: { range: (u, a, b) => [0, (b || 1) * 1.4] } },
		axes: [axis({ label: "time since the begin of the run, s" }), axis({ label: "Gb/s", size: 56 })],
		series: [{ label: "s", value: (u, v) => num(v) ? v.toFixed(3) + named(v) : "–" }, ...dirs.map((d, i) => ({ label: d + ", Gb/s", stroke: () => series(i), width: 1.5, fill: () => series(i) + "22", paths: uPlot.paths.stepped({ align: 1 }), points: { show: false }, value: (u, v) => sig(v) }))],
		hooks: { draw: [draw] },
	}, phone() ? 280 : 340);
	u.setScale("x", { min, max });
	reset.addEventListener("click", () => u.setScale("x", { min, max }));
	keys(box, u, min, max, "Bandwidth over time. Arrow keys move, + and - zoom, 0 shows the whole run. The tables below have the figures.");
	if (all.length) tools.append(choice("Show ", ["all", ...all.map(mark => mark.name)], k => {
		if (!k) return u.setScale("x", { min, max });
		const s = all[k - 1].steps.map(x => x[1]), a = Math.min(...s), b = Math.max(...s), pad = Math.max(0.05, (b - a) * 0.25);
		u.setScale("x", { min: a - pad, max: b + pad });
	}));
	tools.append(reset, el("span", "Drag to zoom, double-click for the whole run; keys: arrows, +, -, 0.", "hint"));
	box.before(tools);
	return true;
}

/* ---- latency ---- */

/* Lets the reader choose a message size, and calls `draw` with the histograms of the GPUs. False: there are none. */
function bySize(box, doc, draw) {
	const by = new Map();
	for (const l of list(doc.latency)) {
		const bins = list(l.histogram).filter(b => b.from_us > 0 && [b.from_us, b.to_us, b.count].every(num));
		if (bins.length) push(by, l.bytes, { gpu: any(l.gpu), max: at(l, "rtt_us.max"), bins });
	}
	const all = [...by.keys()].sort((a, b) => a - b), show = k => { box.replaceChildren(); draw(by.get(all[k])); };
	const tools = el("div", undefined, "tools");
	tools.append(choice("Message ", all.map(size), show));
	if (all.length > 1) box.before(tools);
	if (all.length) show(0);
	return all.length > 0;
}

const logRange = (u, a, b) => [a * 0.9, (b > a ? b : a) * 1.1];
const logTicks = {
	splits: (u, i, a, b) => {
		const out = [];
		if (!(a > 0 && isFinite(b))) return out;
		for (let e = Math.floor(Math.log10(a)); e <= Math.ceil(Math.log10(b)); e++) for (const m of b / a < 100 ? [1, 2, 5] : [1]) out.push(m * 10 ** e);
		return out.filter(v => v >= a * 0.999 && v <= b * 1.001);
	},
	filter: (u, v) => v, values: (u, v) => v.map(x => x === null ? "" : time(x)),
};

function histogram(box, doc) {
	return bySize(box, doc, gpus => {
		const bins = new Map();
		let total = 0;
		for (const l of gpus) for (const b of l.bins) { bins.set(b.from_us, [b.to_us, (bins.get(b.from_us) || [0, 0])[1] + b.count]); total += b.count; }
		const x = [], y = [];
		let end = 0;
		for (const from of [...bins.keys()].sort((a, b) => a - b)) {
			const [to, n] = bins.get(from);
			if (end && from > end * 1.001) { x.push(end); y.push(0); }
			x.push(from); y.push(100 * n / total); end = to;
		}
		x.push(end); y.push(0);
		plot(box, [x, y], {
			scales: { x: { time: false, distr: 3, range: logRange }, y: { range: (u, a, b) => [0, b * 1.1 || 1] } },
			axes: [axis(Object.assign({ label: "round trip, logarithmic", space: 60 }, logTicks)), axis({ label: "% of the round trips", size: 56 })],
			series: [{ label: "from", value: (u, v) => time(v) }, { label: "share, %", stroke: () => series(0), fill: () => series(0) + "55", width: 1, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false }, value: (u, v) => sig(v) }],
		});
	});
}

function percentiles(box, doc) {
	const ticks = [0, 0.301, 1, 2, 3, 4, 5], names = ["0", "50", "90", "99", "99.9", "99.99", "99.999"];
	return bySize(box, doc, gpus => {
		const rows = gpus.slice(0, 8);
		const tables = rows.map(l => {
			const n = l.bins.reduce((s, b) => s + b.count, 0), x = [], y = [];
			let sum = 0;
			for (const b of l.bins) {
				x.push(-Math.log10(1 - sum / n)); y.push(b.from_us);
				sum += b.count;
			}
			x.push(Math.log10(n) + 0.05); y.push(num(l.max) ? l.max : l.bins[l.bins.length - 1].to_us);
			return [x, y];
		});
		plot(box, uPlot.join(tables), {
			scales: { x: { time: false }, y: { distr: 3, range: logRange } },
			axes: [axis({ label: "percentile", splits: u => ticks.filter(t => t <= u.scales.x.max), values: (u, v) => v.map(t => names[ticks.indexOf(t)] || "") }), axis(Object.assign({ label: "round trip, logarithmic", size: 70 }, logTicks))],
			series: [{ label: "percentile", value: (u, v) => num(v) ? (100 * (1 - 10 ** -v)).toPrecision(5) : "–" }, ...rows.map((l, i) => ({ label: "GPU " + l.gpu, stroke: () => series(i), width: 1.5, spanGaps: true, points: { show: false }, value: (u, v) => time(v) }))],
		});
	});
}

/* ---- gaps ---- */
const kindOf = f => any(f.kind) + " at the " + (str(f.side) || "?") + (str(f.dir) && f.dir !== "both" ? ", " + f.dir : "");

function gaps(box, doc) {
	const by = new Map();
	for (const f of list(at(doc, "failover.faults"))) if (num(f.gap_us) && f.gap_us > 0) push(by, kindOf(f), f.gap_us);
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
	const rows = list(at(doc, "failover.summary")).filter(s => PARTS.some(p => s[p + "_us_median"] > 0));
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
const CELLS = 1 << 24; /* of a sweep of 4,096 nodes; more would take the browser's memory */
function heatmap(box, { rows, cols, value, unit, rowTitle, colTitle, failed = () => undefined }) {
	const R = rows.length, C = cols.length;
	if (R * C > CELLS) return false;
	const canvas = el("canvas"), told = el("p", "", "soft"), ctx = canvas.getContext("2d");
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
	const cells = list(at(doc, "matrix.cells")).filter(c => num(c.gpu) && str(c.nic) && num(c.gbps));
	if (!cells.length) return false;
	for (const dir of ["to-server", "to-client"]) {
		const mine = cells.filter(c => c.direction === dir);
		if (!mine.length) continue;
		const gpus = [...new Set(mine.map(c => c.gpu))].sort((a, b) => a - b), nics = [...new Set(mine.map(c => c.nic))];
		const of = new Map(mine.map(c => [c.gpu + "|" + c.nic, c.gbps])), part = el("div");
		box.append(el("p", dir, "soft"), part);
		heatmap(part, { rows: gpus.map(g => "GPU " + g), cols: nics.map(clean), value: (r, c) => of.get(gpus[r] + "|" + nics[c]), unit: "Gb/s", rowTitle: "GPU", colTitle: "NIC" });
	}
	return true;
}

/* ---- sweep ---- */

/* Places of the ranks in the map, and their names: "3 node3", "3" if the node did not say its name. */
function nodesOf(doc) {
	const nodes = list(doc.nodes), at = new Map(nodes.map((n, i) => [n.rank, i]));
	return { n: nodes.length, at, names: nodes.map(n => clean(any(n.rank) + (str(n.host) && " " + n.host))) };
}

/* A map of the lowest value that `each` sets for a pair; why a pair without figures has none. */
function nodeMap(box, doc, unit, rowTitle, colTitle, each) {
	const { n, at, names } = nodesOf(doc), values = new Map(), why = new Map();
	for (const p of list(doc.pairs)) {
		const c = at.get(p.client), s = at.get(p.server);
		if (c === undefined || s === undefined) continue;
		if (p.state !== "ok") for (const i of [c * n + s, s * n + c]) why.set(i, clean(any(p.state) + (str(p.error) && ": " + p.error)));
		each(p, (back, v) => {
			const i = back ? s * n + c : c * n + s;
			if (num(v)) values.set(i, Math.min(v, values.has(i) ? values.get(i) : Infinity));
		});
	}
	return heatmap(box, { rows: names, cols: names, value: (r, c) => values.get(r * n + c), failed: (r, c) => why.get(r * n + c), unit, rowTitle, colTitle });
}

const sweep = (box, doc) => nodeMap(box, doc, "Gb/s", "from", "to", (p, set) => { for (const l of list(p.lanes)) set(l.direction === "to-client", l.gbps); });
const roundtrips = (box, doc) => nodeMap(box, doc, "µs", "node", "node", (p, set) => { set(false, p.rtt_us); set(true, p.rtt_us); });

/* ---- tables ---- */

const ROWS = 300;

/* Forms of a value; CLASS: figures stand to the right, words are broken. A meter is a bar up to the largest value of its column. */
function any(v) {
	if (v === undefined || v === null) return "–";
	if (typeof v === "boolean") return v ? "yes" : "no";
	if (num(v)) return String(Number.isInteger(v) ? v : +v.toPrecision(6));
	return typeof v === "string" ? v : JSON.stringify(v, null, 1).replace(/(?<=[[{])\n *|\n *(?=[\]}])/g, "").replace(/\n */g, " ");
}
const whole = v => any(v), words = v => any(v);
const sizes = v => any(v).replace(/\d+/g, n => size(+n)); /* "4096 131072" */
const fixed = v => !num(v) ? "–" : v.toFixed(v === 0 ? 0 : Math.abs(v) < 1 ? 3 : Math.abs(v) < 100 ? 2 : Math.abs(v) < 10000 ? 1 : 0);
const ms = us => fixed(num(us) ? us / 1000 : NaN);
const meter = v => num(v) && v >= 0 ? String(+v.toPrecision(3)) : "";
const CLASS = new Map([[whole, "n"], [fixed, "n"], [ms, "n"], [size, "n"], [words, "words"]]);

/* Columns: name, path of the member in a row, its form (any), and which texts are bad; a verdict that is not known is not marked. */
const COLUMNS = {
	bandwidth: [["GPU", "gpu", whole], ["direction", "direction"], ["message", "message_bytes", size], ["Gb/s", "gbps", fixed], ["", "gbps", meter],
		["% of line", "line_rate_percent", fixed], ["retransmits", "retransmits", whole], ["channels on another rail", "switched", whole]],
	nics: [["end", "side"], ["NIC", "name"], ["speed, Gb/s", "speed_gbps", fixed], ["Gb/s", "gbps", fixed], ["", "gbps", meter],
		["sent", "tx_bytes", size], ["received", "rx_bytes", size], ["counter", "counter_check"], ["paths made", "connections", whole]],
	comparison: [["of", "kind"], ["GPU", "gpu", whole], ["NIC", "nic"], ["direction", "direction"], ["Gb/s", "gbps", fixed],
		["baseline", "mean_gbps", fixed], ["%", "percent", fixed], ["result", "result", any, /^(below|not-in-run|not-in-baseline)$/]],
	matrix: [["NIC", "nic"], ["direction", "direction"], ["alone, Gb/s", "alone_gbps", fixed], ["% of the others", "others_percent", fixed],
		["with all GPUs, Gb/s", "total_gbps", fixed], ["finding", "finding", any, /^(slow|left|idle)$/], ["cause", "cause", words]],
	cells: [["GPU", "gpu", whole], ["NIC", "nic"], ["peer's NIC", "peer_nic"], ["direction", "direction"], ["Gb/s", "gbps", fixed], ["", "gbps", meter],
		["channels on another rail", "switched", whole]],
	latency: [["GPU", "gpu", whole], ["NIC", "nic"], ["message", "bytes", size], ["samples", "samples", whole], ["p50, µs", "rtt_us.p50", fixed],
		["p90", "rtt_us.p90", fixed], ["p99", "rtt_us.p99", fixed], ["p99.9", "rtt_us.p999", fixed], ["max", "rtt_us.max", fixed]],
	/* First what a narrow screen shows: kind, gap, cause. */
	faults: [["kind", "kind"], ["gap p50, ms", "gap_us.p50", ms], ["p99", "gap_us.p99", ms], ["max", "gap_us.max", ms], ["hit data", "hit", whole],
		["trials", "trials", whole], ["at", "side"], ["direction", "dir"], ["detect", "detect_us_median", ms], ["fence", "fence_us_median", ms],
		["handshake", "handshake_us_median", ms], ["replay", "replay_us_median", ms], ["first delivery", "first_delivery_us_median", ms],
		["before, Gb/s", "bandwidth_before_gbps", fixed], ["during", "bandwidth_during_gbps", fixed], ["after", "bandwidth_after_gbps", fixed],
		["failback gap, ms", "failback_gap_us_median", ms]],
	trials: [["kind", "kind"], ["gap, ms", "gap_us", ms], ["cause", "cause", words],
		["verdict", "verdict", any, /^(WRONG|HANG|CLEAN_ERROR|MISSED_FAULT|FAIL|INCOMPLETE)$/], ["trial", "trial", whole], ["direction", "dir"],
		["at", "side"], ["NIC", "nic"], ["cadence p99", "cadence_us.p99", ms], ["fault to detection", "fault_to_detect_us", ms],
		["detect", "detect_us", ms], ["fence", "fence_us", ms], ["handshake", "handshake_us", ms], ["replay", "replay_us", ms],
		["first delivery", "first_delivery_us", ms], ["failback gap", "failback_gap_us", ms], ["channels", "channels_affected", whole],
		["replayed", "replayed_chunks", whole], ["note", "note", words]],
	degraded: [["end", "side"], ["NIC", "name"], ["measured, Gb/s", "measured_gbps", fixed]],
	switches: [["end", "side"], ["GPU", "gpu", whole], ["channel", "channel", whole], ["from path", "from_path", whole], ["to path", "to_path", whole],
		["gap, ms", "gap_us", ms], ["cause", "cause", words]],
	rails: [["rail", "rail", whole], ["NIC", "ifname"], ["address", "address"], ["peer's NIC", "peer_ifname"], ["address", "peer_address"],
		["speed, Gb/s", "speed_gbps", fixed], ["MTU", "mtu_bytes", size], ["NUMA", "numa", whole]],
	gpus: [["GPU", "gpu", whole], ["device", "name"], ["PCI", "bus_id"], ["primary rail", "primary_rail", whole], ["shadow rail", "shadow_rail", whole],
		["channels", "channels", whole], ["NUMA", "numa", whole], ["CPU", "cpu", whole], ["reason", "reason", words]],
	ends: [["end", "side"], ["kernel", "kernel"], ["congestion control", "congestion_control"], ["tcp_rmem", "tcp_rmem", sizes], ["tcp_wmem", "tcp_wmem", sizes],
		["CPU governor", "cpu_governor"]],
	settings: [["end", "side"], ["NIC", "nic"], ["driver", "driver"], ["firmware", "firmware"], ["MTU", "mtu_bytes", size], ["qdisc", "qdisc"],
		["TSO", "tso"], ["GSO", "gso"], ["GRO", "gro"], ["interrupts on CPUs", "interrupt_cpus", words]],
	pairs: [["name", "name"], ["value", "value", words]],
	/* of a sweep */
	findings: [["finding", "kind", any, /./], ["in words", "text"], ["NIC", "nic"], ["peer's NIC", "peer_nic"], ["lowest, Gb/s", "gbps", fixed],
		["% of the median", "percent", fixed], ["low figures", "low", whole], ["of", "of", whole], ["wrong chunks", "wrong_chunks", whole],
		["cause", "reason", words]],
	absent: [["rank", "rank", whole], ["host", "host"], ["address", "address"], ["presence", "presence", any, /^(awaited|lost)$/], ["cause", "reason", words]],
	unmeasured: [["client", "client"], ["server", "server"], ["state", "pair.state", any, /^(failed|missing)$/], ["exit status", "pair.exit_code", whole],
		["cause", "pair.error", words]],
	lanes: [["from", "from"], ["NIC", "from_nic"], ["to", "to"], ["NIC", "to_nic"], ["Gb/s", "lane.gbps", fixed], ["", "lane.gbps", meter],
		["% of the median", "lane.percent", fixed], ["alone, Gb/s", "lane.alone_gbps", fixed], ["wrong chunks", "lane.wrong_chunks", whole],
		["runs", "pair.attempts", whole], ["counters that grew", "pair.counters", words]],
	roundtrips: [["client", "client"], ["server", "server"], ["median, µs", "pair.rtt_us", fixed], ["", "pair.rtt_us", meter],
		["p99", "pair.rtt_p99_us", fixed]],
	node_nics: [["node", "node"], ["NIC", "nic.name"], ["speed, Mb/s", "nic.speed_mbps", whole], ["up", "nic.up"], ["carrier", "nic.carrier"]],
};

const largest = (rows, path) => rows.reduce((most, row) => num(at(row, path)) ? Math.max(most, at(row, path)) : most, 0);

/* A table of at most ROWS rows of a total; nothing without rows. Returns whether there are some. */
function table(box, caption, columns, rows, total = rows.length) {
	if (!rows.length) return false;
	const scroll = put(box, "div", undefined, "scroll"), t = put(scroll, "table");
	scroll.tabIndex = 0;
	scroll.setAttribute("role", "region");
	scroll.setAttribute("aria-label", caption);
	put(t, "caption", caption + (total > ROWS ? " (the first " + ROWS + " of " + total + " rows; the document has all)" : ""));
	const head = put(put(t, "thead"), "tr"), body = put(t, "tbody");
	for (const [name, , form] of columns) put(head, "th", name, CLASS.get(form)).scope = "col";
	const most = columns.map(([, path, form]) => form === meter ? largest(rows, path) : 0);
	for (const row of rows.slice(0, ROWS)) {
		const tr = put(body, "tr");
		columns.forEach(([, path, form = any, bad], k) => {
			const v = at(row, path), cell = put(tr, "td", form === meter ? "" : form(v), bad && bad.test(str(v)) ? "bad" : CLASS.get(form));
			if (form === meter && meter(v) && most[k] > 0) Object.assign(put(cell, "meter", meter(v)), { max: most[k], value: v });
		});
	}
	return true;
}

/* An object as a table of two columns. */
const BYTES = /_bytes$|^(chunk|size|begin|end|sockbuf|mtu)$/;
function pairs(box, caption, obj) {
	const rows = Object.entries(isObject(obj) ? obj : {}).filter(([, v]) => v !== null && !isObject(v));
	table(box, caption, COLUMNS.pairs, rows.map(([name, value]) => ({ name, value: BYTES.test(name) && num(value) ? size(value) : value })));
}

/* ---- parts of the page ---- */

function details(box, title) {
	const d = put(box, "details");
	put(d, "summary", title);
	return d;
}

const drawn = []; /* figures, and their documents, that charts are drawn in when the tables are there */
function chart(box, doc, name, caption) {
	const f = put(box, "figure");
	f.dataset.chart = name;
	put(f, "div", undefined, "plot");
	put(f, "figcaption", caption);
	drawn.push([f, doc]);
}

/* Tiles: name, a figure, its unit (undefined: a whole number), a remark. */
function tiles(box, all) {
	const dl = put(box, "dl", undefined, "tiles");
	for (const [name, v, unit, remark] of all) {
		const tile = put(dl, "div");
		put(tile, "dt", name);
		const big = put(tile, "dd", unit ? fixed(v) + " " : any(v), "big");
		if (unit) put(big, "small", unit);
		put(tile, "dd", remark, "soft");
	}
}

const STATUS = new Map([["pass", "PASS"], ["fail", "FAIL"], ["error", "ERROR"]]);

/* A verdict is coloured if the page knows it and the schema that it is of. */
function verdict(box, doc, text) {
	const known = /^dualrail(-sweep)?\/1$/.test(doc.schema) && STATUS.has(doc.status);
	const v = put(box, "div", undefined, "verdict " + (known ? doc.status : ""));
	put(v, "strong", STATUS.get(doc.status) || (str(doc.status) ? "UNKNOWN" : "NOT OVER"));
	put(v, "span", [text, num(doc.exit_code) ? "exit status " + any(doc.exit_code) : ""].filter(Boolean).join(" · "));
}

/* ---- the page of a run ---- */

function runSummary(box, doc) {
	const word = path => str(at(doc, path)), n = path => at(doc, path), latency = list(doc.latency).filter(l => num(at(l, "rtt_us.p50"))), all = [];
	verdict(box, doc, "");
	put(box, "p", [word("command") + ", " + word("options.test"), word("host.name") + " and " + (word("host.peer.name") || "no peer"),
		word("detection.transport"), word("start_time"), "run " + word("run_id")].join(" · "), "soft");
	const errors = list(doc.errors).slice(0, ROWS);
	if (errors.length) put(box, "ul", undefined, "errors").append(...errors.map(e => el("li", str(e.text))));
	const share = num(n("total.line_rate_percent")) ? fixed(n("total.line_rate_percent")) + " % of the line rate" : "all GPUs, best measurement";
	for (const end of ["server", "client"])
		if (num(n("total.to_" + end + "_gbps"))) all.push(["Bandwidth to the " + end, n("total.to_" + end + "_gbps"), "Gb/s", share]);
	if (latency.length) {
		const best = latency.reduce((a, l) => l.rtt_us.p50 < a.rtt_us.p50 ? l : a), p99 = largest(latency.filter(l => l.bytes === best.bytes), "rtt_us.p99");
		all.push(["Round trip, best median", best.rtt_us.p50, "µs", "p99 of the slowest GPU: " + fixed(p99) + " µs"]);
	}
	for (const s of list(n("failover.summary")).slice(0, ROWS))
		all.push(["Gap p50, " + kindOf(s), (at(s, "gap_us.p50") ?? NaN) / 1000, "ms",
			"p99 " + ms(at(s, "gap_us.p99")) + " ms (" + any(s.hit) + " of " + any(s.trials) + " hit data)"]);
	if (num(n("integrity.chunks")))
		all.push(["Wrong chunks", ["lost", "duplicated", "reordered", "corrupted"].map(k => n("integrity." + k)).filter(num).reduce((a, b) => a + b, 0),
			undefined, n("integrity.verified") === true ? "every byte compared" : "sequence numbers checked"]);
	all.push(["Unexpected switches", doc.unexpected_switches, undefined, "outside the failover test"]);
	if (num(n("failover.false_failovers"))) all.push(["False failovers", n("failover.false_failovers"), undefined, "switches without a fault"]);
	tiles(box, all);
}

function runTime(box, doc, faults) {
	const what = "Bandwidth of each interval, " +
		(list(at(doc, "matrix.cells")).length ? "with the GPU and the NICs (client ↔ server) of each cell." : "all GPUs.");
	if (!faults.length) return chart(box, doc, "timeline", what);
	table(box, "Gaps and their parts, medians of each part by itself; ms", COLUMNS.faults, list(at(doc, "failover.summary")));
	if (at(doc, "detection.mode") === "transport")
		put(box, "p", "The transport moves to another NIC by itself, and no channel switches. Then a gap is the longest time between two " +
			"deliveries, from the fault until data that were posted after it arrived; it has no parts. Cadence: that time without a fault.");
	chart(box, doc, "timeline", what + " A fault is a red line, the steps of its switch are dashed lines: detection, switch, " +
		"first delivery, failback. Intervals are placed to within some milliseconds.");
	put(box, "h3", "Gaps by kind of fault");
	chart(box, doc, "gaps", "Share of the trials whose gap is at most so long.");
	chart(box, doc, "parts", "Parts of the gap, medians; the sum of medians is not the median of the gap.");
	table(details(box, "Table of the trials"), "Trials; the channel with the longest gap; ms", COLUMNS.trials, faults);
}

function runHealth(box, doc) {
	const slow = table(box, "Degraded: slow beside another rail", COLUMNS.degraded, list(doc.nics).filter(n => n.degraded === true));
	const unplanned = table(box, "Switches that nobody planned, outside the failover test", COLUMNS.switches,
		list(at(doc, "failover.switches")).filter(s => s.unexpected === true));
	if (!slow && !unplanned) put(box, "p", "None.");
}

function runEnvironment(box, doc) {
	table(box, "Rails", COLUMNS.rails, list(at(doc, "topology.rails")));
	table(box, "GPUs of this end and their rails", COLUMNS.gpus, list(at(doc, "topology.gpus")));
	const hosts = details(box, "Hosts, settings and versions"), options = details(box, "Options and command line");
	pairs(hosts, "Versions", doc.versions);
	pairs(hosts, "Host", doc.host);
	pairs(hosts, "Peer's host", at(doc, "host.peer"));
	table(hosts, "Settings of each end", COLUMNS.ends, list(at(doc, "environment.ends")));
	table(hosts, "Settings of each NIC", COLUMNS.settings, list(at(doc, "environment.nics")));
	pairs(hosts, "Detection of failures", doc.detection);
	pairs(options, "Effective options", doc.options);
	put(options, "pre").textContent = (Array.isArray(doc.argv) ? doc.argv : []).slice(0, ROWS).map(word => clean(str(word))).join(" ");
}

/* Parts of a page: id, name in the navigation, title, whether the document has it, and what draws it. */
function runParts(doc) {
	const cells = list(at(doc, "matrix.cells")), latency = list(doc.latency), faults = list(at(doc, "failover.faults"));
	return [
		["bandwidth", "Bandwidth", "Bandwidth", list(doc.bandwidth).length || list(doc.nics).length, box => {
			table(box, "Each GPU, by the receiver's clock", COLUMNS.bandwidth, list(doc.bandwidth));
			table(box, "Each NIC over the whole run, both directions, payload", COLUMNS.nics, list(doc.nics));
			table(box, "Beside the baseline", COLUMNS.comparison, list(doc.comparison));
		}],
		["matrix", "GPU × NIC", "GPU × NIC", cells.length, box => {
			table(box, "Findings", COLUMNS.matrix, list(at(doc, "matrix.nics")));
			chart(box, doc, "matrix", "Bandwidth of each GPU over each NIC alone.");
			table(details(box, "Table of the cells"), "One GPU over one NIC alone", COLUMNS.cells, cells.filter(c => num(c.gpu)));
		}],
		["latency", "Latency", "Latency", latency.length, box => {
			table(box, "Full round trips", COLUMNS.latency, latency);
			chart(box, doc, "histogram", "Round trips of all GPUs by duration; bins of a quarter of a power of two.");
			chart(box, doc, "percentiles", "Round trip that so many percent do not exceed.");
		}],
		["time", "Failover and time", faults.length ? "Failover" : "Over time", faults.length || list(doc.intervals).length,
			box => runTime(box, doc, faults)],
		["health", "Degraded and unexpected", "Degraded rails and unexpected switches", true, box => runHealth(box, doc)],
		["environment", "Environment", "Environment", true, box => runEnvironment(box, doc)],
	];
}

/* ---- the page of a sweep: what is bad first, then the figures of all pairs ---- */

function sweepSummary(box, doc) {
	const m = isObject(doc.measured) ? doc.measured : {};
	verdict(box, doc, str(doc.verdict));
	put(box, "p", ["sweep of " + any(doc.nodes_expected) + " nodes, " + any(doc.rounds) + " rounds, pattern " + str(doc.pattern),
		"ranks from " + str(doc.source), str(doc.start_time), fixed(doc.seconds) + " s", "run " + str(doc.run_id)].join(" · "), "soft");
	const all = [
		["Pairs with figures", m.ok, undefined, "of " + any(m.pairs) + " pairs, " + any(m.failed) + " failed, " + any(m.missing) + " missing"],
		["Median figure", m.median_gbps, "Gb/s", "lowest: " + fixed(m.lowest_percent) + " % of it"],
		["Low figures", m.low, undefined, "of " + any(m.figures) + "; low is below " + any(m.min_pair_percent) + " % of the median"],
		["Findings", list(doc.findings).length, undefined, "bad nodes, NICs, links and pairs"],
	];
	if (m.rtt_pairs > 0) all.push(["Round trip, median", m.rtt_us, "µs", "of the slowest pair: " + fixed(m.rtt_max_us) + " µs"]);
	tiles(box, all);
}

/* The rows of the lowest rank; a sweep of 200 nodes has tens of thousands. */
const worst = (box, columns, rows, rank, row) =>
	table(box, "The worst ones first", columns, rows.sort((a, b) => rank(a) - rank(b)).slice(0, ROWS).map(row), rows.length);

function sweepParts(doc) {
	const nodes = list(doc.nodes), all = list(doc.pairs), { at: place, names } = nodesOf(doc), timed = at(doc, "measured.rtt_pairs") > 0;
	const name = rank => num(rank) ? names[place.get(rank)] ?? any(rank) : "";
	const pairRow = pair => ({ pair, client: name(pair.client), server: name(pair.server) });
	return [
		["findings", "Findings", "Findings", true, box => {
			if (!table(box, "What is bad, and its evidence", COLUMNS.findings, list(doc.findings))) put(box, "p", "None.");
			if (at(doc, "measured.reference_in_doubt") === true)
				put(box, "p", "Most pairs are low, so the median, with which all are compared, may be low, too.");
		}],
		["missing", "Not measured", "Not measured", true, box => {
			const gone = table(box, "Nodes that never came or were lost", COLUMNS.absent, nodes.filter(n => n.presence !== "present"));
			const none = table(box, "Pairs without figures", COLUMNS.unmeasured, all.filter(p => p.state !== "ok").map(pairRow));
			if (!gone && !none) put(box, "p", "Nothing: every pair of the pattern has its figures.");
		}],
		["figures", "Node × node", "Node × node", true, box => {
			const lanes = all.flatMap(pair => list(pair.lanes).map(lane => ({ pair, lane })));
			chart(box, doc, "sweep", "The lowest figure of each pair, from the node of the row to that of the column.");
			worst(details(box, "Table of the figures"), COLUMNS.lanes, lanes, x => num(x.lane.percent) ? x.lane.percent : Number.MAX_VALUE,
				({ pair, lane }) => {
					const [from, to] = lane.direction === "to-client" ? ["server", "client"] : ["client", "server"];
					return { pair, lane, from: name(pair[from]), from_nic: lane[from + "_nic"], to: name(pair[to]), to_nic: lane[to + "_nic"] };
				});
			if (!timed) return;
			chart(box, doc, "roundtrips", "The round trip of each pair, the median of its slowest GPU.");
			worst(details(box, "Table of the round trips"), COLUMNS.roundtrips, all.filter(p => num(p.rtt_us)), p => -p.rtt_us, pairRow);
		}],
		["nodes", "Nodes and options", "Nodes and options", true, box => {
			const nics = nodes.flatMap(n => list(n.nics).map(nic => ({ node: name(n.rank), nic })));
			table(details(box, "NICs of the nodes"), "NICs", COLUMNS.node_nics, nics);
			pairs(details(box, "Options"), "Effective options of rank 0", doc.options);
		}],
	];
}

/* ---- the page ---- */

/* Calls `draw`. What a document of odd types makes impossible is told on the console, and the page goes on. */
function attempt(what, draw) {
	try { return draw(); } catch (e) { console.error(what, e); return false; }
}

function page(section) {
	const id = section.dataset.result, text = document.getElementById("data-" + id).textContent, doc = JSON.parse(text);
	const ofSweep = doc.schema === "dualrail-sweep/1", nav = el("nav"), ul = put(nav, "ul"), save = el("a", "Download the result document", "button");
	attempt("summary", () => (ofSweep ? sweepSummary : runSummary)(section, doc));
	nav.setAttribute("aria-label", "Parts");
	section.append(nav);
	for (const [part, name, title, there, draw] of (ofSweep ? sweepParts : runParts)(doc)) {
		if (!there) continue;
		put(section, "h2", title).id = part + "-" + id;
		put(put(ul, "li"), "a", name).href = "#" + part + "-" + id;
		attempt(part, () => draw(section));
	}
	save.href = "#data-" + id;
	save.download = "result-" + id + ".json";
	save.addEventListener("click", () => { save.href = URL.createObjectURL(new Blob([JSON.stringify(doc, null, 2) + "\n"], { type: "application/json" })); });
	put(section, "p").append(save);
}

const charts = { timeline, histogram, percentiles, gaps, parts, matrix, sweep, roundtrips };
function drawCharts() {
	for (const [f, doc] of drawn) {
		f.classList.add("ready"); /* a hidden box has no width */
		const name = f.dataset.chart, plot = f.querySelector(".plot");
		if (attempt("chart " + name, () => charts[name](plot, doc))) continue;
		f.classList.remove("ready");
		plot.replaceChildren();
		for (const t of f.querySelectorAll(".tools")) t.remove();
		if (f.nextElementSibling instanceof HTMLDetailsElement) f.nextElementSibling.open = true;
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
for (const section of document.querySelectorAll("section[data-result]")) attempt("document " + section.dataset.result, () => page(section));
/* The tables are painted before the charts are drawn. */
requestAnimationFrame(() => setTimeout(drawCharts, 0));
})();
