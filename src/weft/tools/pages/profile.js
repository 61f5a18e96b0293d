"use strict";
const D = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const escape = text => String(text).replace(/[&<>"]/g, c => ({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}[c]));
const time = s => !isFinite(s) ? "–" : Math.abs(s) >= 1 ? s.toFixed(3) + " s" : Math.abs(s) >= 1e-3 ? (s * 1e3).toFixed(3) + " ms"
  : (s * 1e6).toFixed(2) + " µs";
const size = b => { let k = 0; while (Math.abs(b) >= 1024 && k < 4) { b /= 1024; k++; } return b.toFixed(k ? 1 : 0) + " " + ["B", "KiB", "MiB", "GiB", "TiB"][k]; };
const percent = x => (100 * x).toFixed(1) + " %";
const shortLine = where => where.replace(/^.*\/([^/]+\/[^/]+)$/, "$1");
const weft = window.weft = {data: D, ready: false};

// Colours: one hue for each name, muted, so that text on it can be read.
function colour(detail) {
  const text = ["kernel", "operation", "stream", "push"].includes(detail.kind) ? detail.name : detail.kind;
  let h = 2166136261;
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 16777619);
  const fixed = {wait: 0, data: 28, python: 275, module: 210, step: 225, exchange: detail.bytes ? 165 : 48};
  const hue = fixed[detail.kind] !== undefined ? fixed[detail.kind] : (h >>> 0) % 360;
  return detail.kind === "module" || detail.kind === "step" ? `hsl(${hue} 35% 82%)` : `hsl(${hue} 58% 74%)`;
}
const colours = D.details.map(colour);

// -- tabs and tiles

const TABS = {timeline: "Timeline", tables: "Tables", memory: "Memory", exchange: "Exchange", planning: "Planning", steps: "Steps", warnings: "Warnings"};
if (!D.exchanges.length) delete TABS.exchange;
function show(tab) {
  for (const id in TABS) { $(id).classList.toggle("on", id === tab); $("tab-" + id).classList.toggle("on", id === tab); }
  weft.tab = tab;
  if (weft.ready) { if (tab === "timeline") draw(); if (tab === "memory") drawMemory(); if (tab === "tables") drawTable(); }
}
$("tabs").innerHTML = Object.entries(TABS).map(([id, name]) => `<button id="tab-${id}">${name}` +
  (id === "warnings" && D.warnings.length ? `<span class="badge">${D.warnings.length}</span>` : "") + "</button>").join("");
for (const id in TABS) $("tab-" + id).onclick = () => show(id);
$("facts").textContent = `${D.facts.program || ""} · ${D.facts.date || ""} · ${D.facts.cores} cores`;
$("tiles").innerHTML = D.tiles.map(([name, value]) => `<div class="tile"><b>${escape(value)}</b><span>${escape(name)}</span></div>`).join("");

function fillTable(table, heads, rows, go) {
  table.innerHTML = "<thead><tr>" + heads.map(h => `<th class="${h.left ? "l" : ""}">${h.name}</th>`).join("") + "</tr></thead><tbody>" +
    rows.map((row, k) => `<tr ${go ? `data-go="${k}"` : ""}>` + row.map((cell, j) => cell && cell.html !== undefined
      ? `<td class="${heads[j].left ? "l long" : ""} ${cell.as || ""}" title="${escape(cell.title || "")}">${cell.html}</td>`
      : `<td class="${heads[j].left ? "l long" : ""}" title="${heads[j].left ? escape(cell) : ""}">${escape(cell)}</td>`).join("") + "</tr>").join("") + "</tbody>";
  if (go) table.querySelectorAll("tr[data-go]").forEach(tr => tr.onclick = () => go(+tr.dataset.go));
}

// -- warnings, planning

$("warnings").innerHTML = D.warnings.length ? D.warnings.map((w, k) => `<div class="card ${w.kind === "error" ? "error" : ""}" data-kind="${escape(w.kind)}">
  <h3>${escape(w.kind)}</h3>${w.text.includes("\n") ? `<pre>${escape(w.text)}</pre>` : `<p>${escape(w.text)}</p>`}
  <p class="do">${escape(w.advice)}</p><p><code title="${escape(w.where)}">${escape(shortLine(w.where))}</code>
  <a href="#" data-at="${w.start_s}">show at ${time(w.start_s)}</a></p></div>`).join("") : "<p>No rule has anything to say.</p>";
$("warnings").querySelectorAll("a").forEach(a => a.onclick = e => {
  e.preventDefault(); show("timeline"); const at = +a.dataset.at, wide = D.seconds / 20; view = [at - wide, at + wide]; clampView(); draw();
});
fillTable($("plans"), [{name: "what"}, {name: "name", left: 1}, {name: "line", left: 1}, {name: "at"}, {name: "took"}],
  D.moments.map(m => [m.kind, m.name, shortLine(m.where), time(m.start), time(m.end - m.start)]),
  k => { const m = D.moments[k]; show("timeline"); view = [m.start - (m.end - m.start), m.end + (m.end - m.start)]; clampView(); draw(); });

fillTable($("exchanges"), [{name: "exchange"}, {name: "worker", left: 1}, {name: "calls"}, {name: "bytes"}, {name: "waiting"}, {name: "moving"}, {name: "GB/s"}, {name: "hidden"}],
  D.exchanges.map(r => [r.name, r.worker, r.calls.toLocaleString("en"), size(r.bytes), time(r.waiting_s), time(r.moving_s), r.moving_s ? (r.bytes / r.moving_s * 1e-9).toFixed(2) : "", percent(r.hidden)]),
  k => { const name = D.exchanges[k].name; if (name === "all") return; $("search").value = name; show("timeline"); search(name); });

// -- columns: bytes that hold all events

let E, Mem, Alloc;
async function decode() {
  const text = atob($("columns").textContent.trim());
  $("columns").textContent = "";
  const packed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) packed[i] = text.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(stream).arrayBuffer();
  let at = 0;
  const take = (Kind, n) => { const made = new Kind(buffer, at, n); at += n * Kind.BYTES_PER_ELEMENT; return made; };
  const n = D.counts.events, m = D.counts.memory, a = D.counts.allocations;
  E = {n, start: take(Float64Array, n)};
  Mem = {n: m, time: take(Float64Array, m), bytes: take(Float64Array, m)};
  Alloc = {n: a, start: take(Float64Array, a), end: take(Float64Array, a), bytes: take(Float64Array, a)};
  E.seconds = take(Float32Array, n); E.own = take(Float32Array, n); E.detail = take(Uint32Array, n); E.parent = take(Int32Array, n);
  Alloc.detail = take(Uint32Array, a);
  E.counts = take(Uint8Array, n);
  E.lane = new Uint16Array(n);
  D.lanes.forEach((lane, k) => E.lane.fill(k, lane.first, lane.last));
}

// -- timeline

// The first view: a few of the last steps, when what is planned is planned; without steps all.
function firstView() {
  const n = D.steps.length;
  if (n < 3) return [0, D.seconds || 1];
  const a = D.steps[Math.max(1, n - 3)].start, b = D.steps[n - 1].end, edge = .02 * (b - a);
  return [a - edge, b + edge];
}
let view = firstView(), selected = -1, matches = null, matchAt = -1, hover = -1, range = null, related = new Set();
const groupOf = lane => (lane.worker ? lane.worker + " " : "") + lane.thread;
const NAME = Math.min(Math.max(...D.lanes.map(lane => groupOf(lane).length), 8), 28); // letters of the longest name
const GUTTER = 70 + 7 * NAME, RULER = 42, HEIGHT = 17;
const plot = $("plot"), pen = plot.getContext("2d");
const tops = []; let bottom = RULER;
{ let before = null;
  for (const lane of D.lanes) {
    const group = lane.worker + "/" + lane.thread;
    if (group !== before) bottom += before === null ? 4 : 12;
    before = group; tops.push(bottom); bottom += lane.kind === "push" ? 9 : HEIGHT;
  } bottom += 8; }
const laneHeight = k => D.lanes[k].kind === "push" ? 8 : HEIGHT - 1;
function clampView() {
  let [a, b] = view; const least = 2e-7, whole = D.seconds || 1;
  if (b - a < least) { const c = (a + b) / 2; a = c - least / 2; b = c + least / 2; }
  if (b - a > whole * 1.1) { a = -whole * .02; b = whole * 1.02; }
  const over = .5 * (b - a);
  if (a < -over) { b += -over - a; a = -over; } if (b > whole + over) { a -= b - whole - over; b = whole + over; }
  view = [a, b];
}
function fit(canvas, height) {
  const ratio = window.devicePixelRatio || 1, wide = canvas.clientWidth;
  if (canvas.width !== Math.round(wide * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(wide * ratio); canvas.height = Math.round(height * ratio); canvas.style.height = height + "px";
  }
  const p = canvas.getContext("2d"); p.setTransform(ratio, 0, 0, ratio, 0, 0); p.clearRect(0, 0, wide, height); return wide;
}
function lowest(values, lo, hi, x) { while (lo < hi) { const mid = (lo + hi) >> 1; if (values[mid] < x) lo = mid + 1; else hi = mid; } return lo; }
function tick(span) { const raw = span / 8, ten = 10 ** Math.floor(Math.log10(raw)); return [1, 2, 5, 10].map(k => k * ten).find(k => k >= raw); }

function draw() {
  if (!weft.ready) return;
  const wide = fit(plot, Math.max(bottom, 220)), [a, b] = view, scale = (wide - GUTTER) / (b - a), X = t => GUTTER + (t - a) * scale;
  pen.font = "11px system-ui, 'DejaVu Sans', sans-serif"; pen.textBaseline = "middle";
  // the whole record, with the part that is shown
  pen.fillStyle = css("--lane"); pen.fillRect(GUTTER, 2, wide - GUTTER, 14);
  pen.fillStyle = css("--bar"); overview.forEach((share, k) => pen.fillRect(GUTTER + k * (wide - GUTTER) / overview.length, 16 - 13 * share, (wide - GUTTER) / overview.length + .5, 13 * share));
  pen.strokeStyle = css("--accent"); pen.lineWidth = 1.5;
  pen.strokeRect(GUTTER + Math.max(a, 0) / D.seconds * (wide - GUTTER), 2, Math.max((Math.min(b, D.seconds) - Math.max(a, 0)) / D.seconds * (wide - GUTTER), 2), 14);
  // ruler
  const unit = tick(b - a); pen.lineWidth = 1; pen.fillStyle = css("--soft"); pen.strokeStyle = css("--line"); pen.textAlign = "center";
  for (let t = Math.ceil(a / unit) * unit; t <= b; t += unit) {
    pen.beginPath(); pen.moveTo(X(t), RULER - 4); pen.lineTo(X(t), bottom); pen.stroke();
    pen.fillText(time(Math.abs(t) < unit / 1e6 ? 0 : t).replace(/\.?0+ /, " "), X(t), RULER - 13);
  }
  pen.textAlign = "left";
  let drawn = 0, before = "";
  for (let k = 0; k < D.lanes.length; k++) {
    const lane = D.lanes[k], top = tops[k], high = laneHeight(k);
    pen.fillStyle = css("--lane"); pen.fillRect(GUTTER, top, wide - GUTTER, high);
    let i = lowest(E.start, lane.first, lane.last, a);
    if (i > lane.first) i--;
    let lastX = -1, lastHit = false;
    pen.save(); pen.beginPath(); pen.rect(GUTTER, top, wide - GUTTER, high); pen.clip();
    for (; i < lane.last && E.start[i] <= b; i++) {
      const x = X(E.start[i]), w = E.seconds[i] * scale, d = E.detail[i], hit = matches && matches[d];
      if (x + w < GUTTER) continue;
      if (w < 1 && Math.floor(x) === lastX && (lastHit || !hit)) continue; // a pixel is painted once
      lastX = w < 1 ? Math.floor(x) : -1; lastHit = hit; drawn++;
      pen.globalAlpha = matches && !hit ? .22 : 1;
      pen.fillStyle = hit ? css_hit : colours[d];
      if (lane.kind === "push") { pen.fillRect(x - .7, top, 1.4, high); continue; }
      pen.fillRect(x, top, Math.max(w - (w > 3 ? .6 : 0), .8), high);
      if (w > 26) {
        pen.fillStyle = hit ? "#fff" : "#1d2330"; const name = D.details[d].name, from = Math.max(x, GUTTER) + 4, room = x + w - from - 3;
        let n = Math.floor(room / 6); if (n > 1) pen.fillText(name.length > n ? name.slice(0, n - 1) + "…" : name, from, top + high / 2 + .5);
      }
    }
    pen.restore(); pen.globalAlpha = 1;
    const group = groupOf(lane);
    pen.fillStyle = css("--soft"); pen.textAlign = "right"; pen.font = "10px system-ui, 'DejaVu Sans', sans-serif";
    if (lane.depth === 0 && !["push", lane.thread].includes(lane.kind)) pen.fillText(lane.kind === "step" ? "" : lane.kind, GUTTER - 6, top + high / 2 + .5);
    pen.textAlign = "left";
    if (group !== before) { pen.fillStyle = css("--ink"); pen.font = "600 11px system-ui, 'DejaVu Sans', sans-serif"; pen.fillText(group.length > NAME ? group.slice(0, NAME - 1) + "…" : group, 8, top + high / 2 + .5); }
    pen.font = "11px system-ui, 'DejaVu Sans', sans-serif"; before = group;
  }
  if (selected >= 0) { flow(X, scale); }
  if (range) {
    pen.fillStyle = "rgba(80,110,230,.14)"; pen.fillRect(X(range[0]), RULER - 4, (range[1] - range[0]) * scale, bottom);
    pen.fillStyle = css("--accent"); pen.fillText(time(range[1] - range[0]), X(range[0]) + 4, RULER + 2);
  }
  weft.drawn = drawn; weft.view = view.slice();
}
let css_hit = css("--hit");
function box(i, X, scale) { return [X(E.start[i]), tops[E.lane[i]], Math.max(E.seconds[i] * scale, 2), laneHeight(E.lane[i])]; }
function flow(X, scale) {
  const chain = weft.flow = chainOf(selected);
  pen.strokeStyle = css("--ink"); pen.lineWidth = 1.6;
  const sel = box(selected, X, scale); pen.strokeRect(sel[0] - 1, sel[1] - 1, sel[2] + 2, sel[3] + 2);
  pen.strokeStyle = css("--hit");
  pen.save(); pen.beginPath(); pen.rect(GUTTER, RULER - 4, plot.clientWidth, bottom); pen.clip();
  for (const [from, to] of chain) {
    const p = box(from, X, scale), q = box(to, X, scale), x0 = p[0], y0 = p[1] + p[3], x1 = q[0], y1 = q[1] + (q[1] > p[1] ? 0 : q[3]);
    pen.beginPath(); pen.moveTo(x0, y0); pen.bezierCurveTo(x0 + 18, y0 + (y1 - y0) * .45, x1 - 18, y1 - (y1 - y0) * .45, x1, y1); pen.stroke();
    pen.beginPath(); pen.arc(x1, y1, 2.6, 0, 7); pen.fillStyle = css("--hit"); pen.fill();
  }
  pen.restore();
}
// From the push to the operation, and from there to its kernels.
function chainOf(i) {
  const found = []; let operation = -1;
  const kind = D.lanes[E.lane[i]].kind;
  if (kind === "operation") operation = i; else if (kind === "kernel") operation = E.parent[i];
  else if (kind === "push") { operation = children(i)[0]; if (operation === undefined) operation = -1; }
  if (operation < 0) return found;
  if (E.parent[operation] >= 0) found.push([E.parent[operation], operation]);
  for (const kernel of children(operation).slice(0, 200)) found.push([operation, kernel]);
  return found;
}
let childStart = null, childList = null;
function children(i) {
  if (!childStart) { // by parent, counted and sorted once
    childStart = new Int32Array(E.n + 1);
    for (let k = 0; k < E.n; k++) if (E.parent[k] >= 0) childStart[E.parent[k] + 1]++;
    for (let k = 0; k < E.n; k++) childStart[k + 1] += childStart[k];
    childList = new Int32Array(childStart[E.n]); const at = childStart.slice();
    for (let k = 0; k < E.n; k++) if (E.parent[k] >= 0) childList[at[E.parent[k]]++] = k;
  }
  return Array.from(childList.subarray(childStart[i], childStart[i + 1]));
}
function at(x, y) {
  const t = view[0] + (x - GUTTER) / (plot.clientWidth - GUTTER) * (view[1] - view[0]), near = 3 / (plot.clientWidth - GUTTER) * (view[1] - view[0]);
  for (let k = 0; k < D.lanes.length; k++) {
    if (y < tops[k] || y >= tops[k] + laneHeight(k)) continue;
    const lane = D.lanes[k]; let i = lowest(E.start, lane.first, lane.last, t) - 1, best = -1;
    for (const j of [i, i + 1]) if (j >= lane.first && j < lane.last && t >= E.start[j] - near && t <= E.start[j] + E.seconds[j] + near) best = best < 0 || t >= E.start[j] ? j : best;
    return best;
  }
  return -1;
}
function tell(i) {
  if (i < 0) return;
  const d = D.details[E.detail[i]], s = E.seconds[i], lane = D.lanes[E.lane[i]], facts = [];
  facts.push(["kind", lane.kind], ["thread", (lane.worker ? lane.worker + " " : "") + lane.thread], ["at", time(E.start[i])], ["took", time(s)]);
  if (E.own[i] < s * .999) facts.push(["without what ran inside", time(E.own[i])]);
  if (d.where) facts.push(["line", shortLine(d.where), d.where]); if (d.module) facts.push(["module", d.module]); if (d.program) facts.push(["program", d.program]);
  if (d.shapes) facts.push(["operands", d.shapes]);
  if (d.flops) facts.push(["FLOP", d.flops.toLocaleString("en")], ["GFLOP/s", (d.flops / E.own[i] * 1e-9).toFixed(1)]);
  if (d.bytes) facts.push(["bytes", size(d.bytes)], ["GB/s", (d.bytes / E.own[i] * 1e-9).toFixed(1)]);
  if (lane.kind === "operation" && E.parent[i] >= 0) facts.push(["waited since its push", time(E.start[i] - E.start[E.parent[i]])]);
  $("info").innerHTML = `<b>${escape(d.name)}</b><dl>` + facts.map(([k, v, whole]) => `<div title="${escape(whole || "")}"><dt>${k}</dt><dd class="mono">${escape(v)}</dd></div>`).join("") + "</dl>";
}
function select(i) { selected = i; tell(i); draw(); }
function zoom(by, where) { const [a, b] = view, c = where === undefined ? (a + b) / 2 : where; view = [c - (c - a) * by, c + (b - c) * by]; clampView(); draw(); }
plot.addEventListener("wheel", e => {
  e.preventDefault(); const span = view[1] - view[0];
  if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) { const d = (e.deltaX || e.deltaY) * span / 900; view = [view[0] + d, view[1] + d]; clampView(); draw(); return; }
  zoom(Math.exp(Math.max(-120, Math.min(120, e.deltaY)) * .0035), view[0] + (e.offsetX - GUTTER) / (plot.clientWidth - GUTTER) * span);
}, {passive: false});
let drag = null;
const when = x => view[0] + (x - GUTTER) / (plot.clientWidth - GUTTER) * (view[1] - view[0]);
plot.onmousedown = e => { drag = {x: e.offsetX, y: e.offsetY, view: view.slice(), moved: false, measure: e.shiftKey, over: e.offsetY < 18}; if (e.shiftKey) range = [when(e.offsetX), when(e.offsetX)]; };
window.addEventListener("mousemove", e => {
  if (!drag) return;
  const x = e.clientX - plot.getBoundingClientRect().left, wide = plot.clientWidth - GUTTER, d = x - drag.x;
  if (Math.abs(d) > 2) drag.moved = true;
  if (drag.measure) { const t = when(x), s = when(drag.x); range = [Math.min(s, t), Math.max(s, t)]; }
  else if (drag.over) { const half = (view[1] - view[0]) / 2, c = (x - GUTTER) / wide * D.seconds; view = [c - half, c + half]; clampView(); }
  else { const s = d / wide * (drag.view[1] - drag.view[0]); view = [drag.view[0] - s, drag.view[1] - s]; clampView(); }
  draw();
});
window.addEventListener("mouseup", () => { if (drag && !drag.moved && !drag.measure) { range = null; select(at(drag.x, drag.y)); } drag = null; });
plot.ondblclick = e => { const i = at(e.offsetX, e.offsetY); if (i >= 0) { const s = E.seconds[i] || 1e-6; view = [E.start[i] - s * .3, E.start[i] + s * 1.3]; clampView(); draw(); } };
$("in").onclick = () => zoom(.5); $("out").onclick = () => zoom(2); $("fit").onclick = () => { view = [0, D.seconds]; clampView(); draw(); };
window.addEventListener("keydown", e => {
  if (weft.tab !== "timeline" || ["INPUT", "SELECT"].includes(document.activeElement.tagName)) return;
  const step = (view[1] - view[0]) * .15, move = {a: -step, ArrowLeft: -step, d: step, ArrowRight: step}[e.key];
  if (move) { view = [view[0] + move, view[1] + move]; clampView(); draw(); }
  if (e.key === "w") zoom(.7); if (e.key === "s") zoom(1.4); if (e.key === "f") $("fit").click();
});

// search: by detail, of which there are few
function search(text) {
  text = text.toLowerCase(); matchAt = -1;
  if (!text) { matches = null; $("found").textContent = ""; weft.found = null; draw(); return; }
  matches = D.details.map(d => (d.name + "\n" + d.where + "\n" + d.module + "\n" + d.shapes).toLowerCase().includes(text));
  let count = 0, seconds = 0;
  for (let i = 0; i < E.n; i++) if (matches[E.detail[i]] && E.counts[i]) { count++; seconds += E.own[i]; }
  let all = 0; for (let i = 0; i < E.n; i++) if (matches[E.detail[i]]) all++;
  weft.found = {count, seconds, all};
  $("found").textContent = `${all} events, ${count} of them kernels: ${time(seconds)}`;
  draw();
}
$("search").oninput = e => search(e.target.value);
$("next").onclick = () => {
  if (!matches) return;
  for (let k = 1; k <= E.n; k++) { const i = (matchAt + k) % E.n; if (matches[E.detail[i]]) { matchAt = i; break; } }
  if (matchAt < 0) return;
  const wide = Math.max(E.seconds[matchAt] * 4, (view[1] - view[0]) * .05); view = [E.start[matchAt] - wide, E.start[matchAt] + wide * 2]; clampView(); select(matchAt);
};
$("search").onkeydown = e => { if (e.key === "Enter") $("next").click(); };

// -- tables, computed here from the events, so that they can be of any part

function tally(by, a, b) {
  const n = D.details.length, count = new Float64Array(n), seconds = new Float64Array(n), shortest = new Float64Array(n).fill(Infinity);
  for (let i = 0; i < E.n; i++) if (E.counts[i] && E.start[i] >= a && E.start[i] < b) { const k = E.detail[i]; count[k]++; seconds[k] += E.own[i]; shortest[k] = Math.min(shortest[k], E.own[i]); }
  const rows = new Map();
  for (let k = 0; k < n; k++) if (count[k]) {
    const d = D.details[k], key = d[by];
    let row = rows.get(key); if (!row) rows.set(key, row = {key, calls: 0, seconds: 0, least_s: 0, flops: 0, bytes: 0});
    row.calls += count[k]; row.seconds += seconds[k]; row.least_s += count[k] * shortest[k]; row.flops += count[k] * d.flops; row.bytes += count[k] * d.bytes;
  }
  const found = [...rows.values()], whole = found.reduce((s, r) => s + r.seconds, 0) || 1;
  for (const r of found) {
    r.share = r.seconds / whole; r.flop_s = r.flops / Math.max(r.seconds, 1e-12); r.byte_s = r.bytes / Math.max(r.seconds, 1e-12);
    r.peak = Math.max(r.flop_s / D.peaks[0], r.byte_s / D.peaks[1]);
  }
  return found;
}
const COLUMNS = [["key", "", r => $("by").value === "where" && r.key ? {html: escape(shortLine(r.key)), title: r.key} : r.key || "(not known)"], ["calls", "calls", r => r.calls.toLocaleString("en")], ["seconds", "time", r => time(r.seconds)], ["share", "share", r => ({html: `<i style="width:${(100 * r.share).toFixed(1)}%"></i><span>${percent(r.share)}</span>`, as: "share"})],
  ["mean", "mean", r => time(r.seconds / r.calls)], ["least_s", "least", r => time(r.least_s)], ["flop_s", "GFLOP/s", r => r.flops ? (r.flop_s * 1e-9).toFixed(2) : ""], ["byte_s", "GB/s", r => r.bytes ? (r.byte_s * 1e-9).toFixed(2) : ""], ["peak", "of peak", r => r.flops || r.bytes ? percent(r.peak) : ""]];
let sortBy = "seconds", sortUp = false;
$("by").innerHTML = Object.entries(D.by).map(([name, field]) => `<option value="${field}">${name}</option>`).join("");
$("scope").innerHTML = `<option value="all">the whole record</option><option value="view">what the timeline shows</option>` + (D.steps.length ? `<option value="step">one step</option>` : "");
$("scopestep").max = D.steps.length - 1;
const stepAt = id => Math.min(Math.max(+$(id).value || 0, 0), D.steps.length - 1);
function scopeOf(value) { const step = D.steps[stepAt("scopestep")]; return value === "all" ? [-Infinity, Infinity] : value === "view" ? (range || view) : [step.start, step.end]; }
function drawTable() {
  if (!weft.ready) return;
  const rows = tally($("by").value, ...scopeOf($("scope").value)), filter = $("filter").value.toLowerCase();
  for (const r of rows) r.mean = r.seconds / r.calls;
  rows.sort((x, y) => (sortUp ? 1 : -1) * (typeof x[sortBy] === "string" ? y[sortBy].localeCompare(x[sortBy]) : x[sortBy] - y[sortBy]));
  const shown = weft.rows = rows.filter(r => r.key.toLowerCase().includes(filter));
  const name = $("by").selectedOptions[0].text;
  fillTable($("work"), COLUMNS.map(([field, head], k) => ({name: (k ? head : name) + (field === sortBy ? (sortUp ? " ▴" : " ▾") : ""), left: !k})),
    shown.slice(0, 2000).map(r => COLUMNS.map(([, , f]) => f(r))), k => { $("search").value = shown[k].key; show("timeline"); search(shown[k].key); });
  $("work").querySelectorAll("th").forEach((th, k) => th.onclick = () => { const f = COLUMNS[k][0]; sortUp = f === sortBy ? !sortUp : false; sortBy = f; drawTable(); });
}
$("scope").onchange = () => { $("scopestep").hidden = $("scope").value !== "step"; drawTable(); };
$("by").onchange = $("scopestep").oninput = $("filter").oninput = drawTable;
$("csv").onclick = () => {
  const quote = v => `"${String(v).replace(/"/g, '""')}"`;
  const text = [[$("by").selectedOptions[0].text, "calls", "seconds", "least_s", "share", "flop_s", "byte_s", "share_of_peak"].join(","), ...weft.rows.map(r => [quote(r.key), r.calls, r.seconds, r.least_s, r.share, r.flop_s, r.byte_s, r.peak].join(","))].join("\r\n");
  const a = document.createElement("a"); a.href = URL.createObjectURL(new Blob([text], {type: "text/csv"})); a.download = "profile.csv"; a.click();
};

// -- memory

let memoryAt = D.memory.peak_s;
function drawMemory() {
  if (!weft.ready) return;
  const canvas = $("curve"), wide = fit(canvas, 230), p = canvas.getContext("2d"), left = 70, low = 206, top = 14, most = Math.max(D.memory.peak, 1);
  const X = t => left + t / (D.seconds || 1) * (wide - left - 14), Y = b => low - b / most * (low - top);
  p.font = "11px system-ui, 'DejaVu Sans', sans-serif"; p.fillStyle = css("--soft"); p.strokeStyle = css("--line"); p.textAlign = "right";
  for (let k = 0; k <= 4; k++) { const b = most * k / 4; p.beginPath(); p.moveTo(left, Y(b)); p.lineTo(wide - 14, Y(b)); p.stroke(); p.fillText(size(b), left - 6, Y(b) + 4); }
  p.textAlign = "center"; const unit = tick(D.seconds || 1); for (let t = 0; t <= D.seconds; t += unit) p.fillText(time(t).replace(/\.?0+ /, " "), X(t), low + 16);
  p.beginPath(); p.moveTo(X(0), low);
  let last = Mem.n ? Mem.bytes[0] : 0, column = -1, high = 0;
  p.lineTo(X(0), Y(last));
  for (let i = 0; i < Mem.n; i++) { // at most a few points for each pixel
    const x = X(Mem.time[i]);
    if (Math.floor(x) !== column) { if (column >= 0) p.lineTo(column, Y(high)); p.lineTo(Math.max(column, X(0)), Y(last)); p.lineTo(x, Y(last)); column = Math.floor(x); high = Mem.bytes[i]; }
    high = Math.max(high, Mem.bytes[i]); last = Mem.bytes[i];
  }
  p.lineTo(Math.max(column, X(0)), Y(high)); p.lineTo(Math.max(column, X(0)), Y(last)); p.lineTo(X(D.seconds), Y(last)); p.lineTo(X(D.seconds), low); p.closePath();
  p.fillStyle = css("--bar"); p.fill(); p.strokeStyle = css("--accent"); p.stroke();
  p.fillStyle = css("--hit"); p.beginPath(); p.arc(X(D.memory.peak_s), Y(D.memory.peak), 4, 0, 7); p.fill();
  p.strokeStyle = css("--hit"); p.beginPath(); p.moveTo(X(memoryAt), top); p.lineTo(X(memoryAt), low); p.stroke();
  const held = [];
  for (let i = 0; i < Alloc.n; i++) if (Alloc.start[i] <= memoryAt && !(Alloc.end[i] <= memoryAt)) held.push(i);
  held.sort((i, j) => Alloc.bytes[j] - Alloc.bytes[i]);
  const total = held.reduce((s, i) => s + Alloc.bytes[i], 0);
  weft.holders = held.map(i => ({bytes: Alloc.bytes[i], ...D.holders[Alloc.detail[i]]})); weft.heldBytes = total;
  const k = lowest(Mem.time, 0, Mem.n, memoryAt + 1e-12) - 1, before = weft.beforeBytes = Math.max((k >= 0 ? Mem.bytes[k] : D.memory.held) - total, 0);
  $("holdtitle").textContent = `${memoryAt === D.memory.peak_s ? "At the peak" : "In use"}, at ${time(memoryAt)}: ${size(total)} in ${held.length} allocations of this record` + (before ? ` and ${size(before)} from before` : "");
  fillTable($("holders"), [{name: "for"}, {name: "bytes"}, {name: "shape", left: 1}, {name: "line", left: 1}, {name: "module", left: 1}, {name: "made at"}],
    held.slice(0, 400).map(i => { const h = D.holders[Alloc.detail[i]]; return [h.name || "(array)", size(Alloc.bytes[i]), h.shape, shortLine(h.where), h.module, time(Alloc.start[i])]; }));
}
$("curve").onclick = e => { const left = 70, wide = $("curve").clientWidth; memoryAt = Math.min(Math.max((e.offsetX - left) / (wide - left - 14), 0), 1) * D.seconds; drawMemory(); };
$("memoryfacts").textContent = `Most in use: ${size(D.memory.peak)} at ${time(D.memory.peak_s)}. Click into the curve to see what is held then.`;
fillTable($("sites"), [{name: "line"}, {name: "allocations"}, {name: "bytes in all"}, {name: "still there at the end"}],
  D.memory.lines.map(([where, count, total, held]) => [where ? {html: escape(shortLine(where)), title: where} : "(no line)", count, size(total), held ? size(held) : ""]));
fillTable($("arenas"), [{name: "program"}, {name: "steps"}, {name: "arena"}, {name: "most alive at once"}, {name: "every result by itself"}, {name: "kept between runs"}, {name: "largest inside", left: 1}],
  D.programs.map(p => [p.name, p.steps, size(p.arena), size(p.live), size(p.naive), size(p.kept), p.largest]));

// -- steps

const stepSeconds = D.steps.map(s => s.end - s.start), order = stepSeconds.map((s, k) => [s, k]).sort((a, b) => a[0] - b[0]);
const longest = order.length ? Math.max(order[order.length - 1][0], 1e-12) : 1, bars = [];
for (let k = 0, n = Math.min(D.steps.length, 600); k < n; k++) { // the longest of those that share a bar
  let best = Math.floor(k * D.steps.length / n);
  for (let i = best; i < Math.floor((k + 1) * D.steps.length / n); i++) if (stepSeconds[i] > stepSeconds[best]) best = i;
  bars.push(best);
}
$("stepbars").innerHTML = bars.length ? bars.map(k => `<i data-k="${k}" title="${escape(D.steps[k].name)}: ${time(stepSeconds[k])}" style="height:${(100 * stepSeconds[k] / longest).toFixed(1)}%"></i>`).join("")
  : "<span class=hint>No steps: call p.step() at the end of each, or use a DataLoader or a traced function.</span>";
if (order.length) { $("stepa").value = order[order.length >> 1][1]; $("stepb").value = order[order.length - 1][1]; }
for (const id of ["stepa", "stepb"]) { $(id).max = D.steps.length - 1; $(id).oninput = () => drawSteps(); }
function drawSteps() {
  if (!D.steps.length) return;
  const a = stepAt("stepa"), b = stepAt("stepb");
  $("stepbars").querySelectorAll("i").forEach(bar => { const k = +bar.dataset.k; bar.className = k === b ? "b" : k === a ? "a" : ""; bar.onclick = () => { $("stepb").value = k; drawSteps(); }; });
  const x = new Map(tally("name", D.steps[a].start, D.steps[a].end).map(r => [r.key, r])), y = new Map(tally("name", D.steps[b].start, D.steps[b].end).map(r => [r.key, r]));
  const none = {calls: 0, seconds: 0};
  const rows = weft.diff = [...new Set([...x.keys(), ...y.keys()])].map(key => { const p = x.get(key) || none, q = y.get(key) || none; return {key, a: p.seconds, b: q.seconds, callsA: p.calls, callsB: q.calls, d: q.seconds - p.seconds}; }).sort((p, q) => Math.abs(q.d) - Math.abs(p.d));
  const wall = stepSeconds[b] - stepSeconds[a], kernels = rows.reduce((s, r) => s + r.d, 0);
  const signed = d => ({html: `<span class="${d > 0 ? "up" : "down"}">${d > 0 ? "+" : "−"}${time(Math.abs(d))}</span>`});
  fillTable($("diff"), [{name: "operator"}, {name: "calls"}, {name: D.steps[a].name}, {name: "calls"}, {name: D.steps[b].name}, {name: "difference"}],
    [["the whole step", "", time(stepSeconds[a]), "", time(stepSeconds[b]), signed(wall)], ["outside of kernels", "", "", "", "", signed(wall - kernels)], ...rows.map(r => [r.key, r.callsA, time(r.a), r.callsB, time(r.b), signed(r.d)])]);
}

// -- begin

let overview = [];
function makeOverview() {
  const bins = 300, busy = new Float64Array(bins), wide = (D.seconds || 1) / bins;
  for (let i = 0; i < E.n; i++) if (E.counts[i]) {
    let a = E.start[i], b = a + E.own[i], k = Math.max(0, Math.floor(a / wide));
    for (; k < bins && k * wide < b; k++) busy[k] += Math.max(0, Math.min(b, (k + 1) * wide) - Math.max(a, k * wide));
  }
  const most = Math.max(...busy, 1e-12); overview = Array.from(busy, b => b / most);
}
show("timeline");
decode().then(() => {
  makeOverview(); weft.ready = true; weft.events = E; weft.tally = tally; weft.select = select; weft.search = search; weft.draw = draw; weft.show = show;
  draw(); drawSteps(); drawTable(); weft.paintedAt = performance.now();
}).catch(error => { $("info").textContent = "This page could not be shown: " + error; throw error; });
window.addEventListener("resize", () => show(weft.tab));
