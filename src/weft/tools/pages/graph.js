"use strict";
const D = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
const escape = text => String(text).replace(/[&<>"]/g, c => ({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}[c]));
const weft = window.weft = {ready: false, data: D};
const SVG = "http://www.w3.org/2000/svg", LINE = 16, CHAR = 7.3, GAPX = 26, GAPY = 46;
let opened = new Set(), closed = new Set(), view = null, boxes = [], edges = [], chosen = null;
const program = () => D.programs[+$("program").value], stage = () => program().stages[+$("stage").value];

// Groups that contain a node, the outermost first.
function pathOf(node) {
  const by = $("group").value;
  if (by === "module") { const parts = node.module ? node.module.split(/[./]/) : []; return parts.map((_, k) => parts.slice(0, k + 1).join(".")); }
  if (by === "step") return node.step === null || node.step === undefined ? [] : ["kernel " + node.step];
  return [];
}
function isOpen(group, depth) { return opened.has(group) || (!closed.has(group) && depth < +$("depth").value); }

// What is shown: nodes, and closed groups in the place of what is in them.
function visible() {
  const at = new Map(), made = new Map(), graph = stage();
  const folded = !$("inputs").checked, own = new Map();
  graph.nodes.forEach(node => { if (folded && node.own !== null) own.set(node.own, [...(own.get(node.own) || []), node]); });
  graph.nodes.forEach((node, k) => {
    if (folded && node.own !== null) return;
    const path = pathOf(node); let shown = null;
    for (let d = 0; d < path.length; d++) if (!isOpen(path[d], d)) { shown = path[d]; break; }
    const key = shown === null ? "n" + k : "g" + shown;
    if (!made.has(key)) made.set(key, shown === null ? {key, node, lines: [...node.lines, ...(own.get(k) || []).map(x => x.lines[x.lines.length - 1]).slice(0, 4)], kind: node.kind, round: node.kind === "input" || node.kind === "output"} : {key, group: shown, members: [], kind: "group"});
    if (shown !== null) made.get(key).members.push(node);
    at.set(k, key);
  });
  for (const box of made.values()) if (box.group) {
    const name = box.group.split(".").pop();
    box.lines = box.members.length === 1 && $("group").value === "step" ? [box.group, ...box.members[0].lines.slice(0, 1)] :
      [$("group").value === "step" ? box.group : box.group, `${box.members.length} operators`, ...(($("group").value === "step") ? [box.members.map(m => m.lines[0]).join(", ").slice(0, 44)] : [])];
  }
  const list = [...made.values()], number = new Map(list.map((b, k) => [b.key, k])), found = new Map();
  for (const [from, to, label] of graph.edges) {
    if (!at.has(from)) continue;
    const a = number.get(at.get(from)), b = number.get(at.get(to));
    if (a === b) continue;
    const key = a + ">" + b; if (!found.has(key)) found.set(key, {a, b, labels: []});
    if (!found.get(key).labels.includes(label)) found.get(key).labels.push(label);
  }
  return [list, [...found.values()]];
}

// Layers from above: longest way from an input; groups can make rings, whose last edges then go up.
function layout() {
  [boxes, edges] = visible();
  const n = boxes.length, below = Array.from({length: n}, () => []), above = Array.from({length: n}, () => []);
  const state = new Uint8Array(n), order = []; const out = Array.from({length: n}, () => []);
  edges.forEach(e => out[e.a].push(e));
  const visit = start => { // depth first without recursion; an edge back to what is open is turned round
    const stack = [[start, 0]]; state[start] = 1;
    while (stack.length) {
      const top = stack[stack.length - 1], [k, i] = top;
      if (i === out[k].length) { state[k] = 2; order.push(k); stack.pop(); continue; }
      top[1]++; const e = out[k][i];
      e.back = state[e.b] === 1;
      if (!state[e.b]) { state[e.b] = 1; stack.push([e.b, 0]); }
    }
  };
  const reads = new Int32Array(n); edges.forEach(e => reads[e.b]++);
  for (let k = 0; k < n; k++) if (!reads[k] && !state[k]) visit(k);
  for (let k = 0; k < n; k++) if (!state[k]) visit(k);
  order.reverse();
  for (const e of edges) { const [a, b] = e.back ? [e.b, e.a] : [e.a, e.b]; below[a].push(b); above[b].push(a); }
  const depth = new Int32Array(n);
  for (const k of order) for (const b of below[k]) depth[b] = Math.max(depth[b], depth[k] + 1);
  for (let k = 0; k < n; k++) if (!above[k].length && below[k].length) depth[k] = Math.min(...below[k].map(b => depth[b])) - 1;
  const least = Math.min(0, ...depth), layers = [];
  boxes.forEach((b, k) => {
    b.w = Math.max(...b.lines.map(l => l.length)) * CHAR + 20; b.h = b.lines.length * LINE + 12; b.layer = depth[k] - least; b.x = 0;
    (layers[b.layer] = layers[b.layer] || []).push(k);
  });
  for (let k = 0; k < layers.length; k++) layers[k] = layers[k] || [];
  const place = new Float64Array(n); layers.forEach(l => l.forEach((k, i) => place[k] = i));
  for (let sweep = 0; sweep < 10; sweep++) {
    const down = sweep % 2 === 0, near = down ? above : below;
    for (const layer of down ? layers : [...layers].reverse()) {
      const middle = new Map(layer.map(k => [k, near[k].length ? near[k].reduce((s, j) => s + place[j], 0) / near[k].length : place[k]]));
      layer.sort((p, q) => middle.get(p) - middle.get(q)); layer.forEach((k, i) => place[k] = i);
    }
  }
  const spread = (layer, wish) => { // as near to the wish as room permits
    const groups = [];
    for (const k of layer) {
      let g = {start: wish[k] - boxes[k].w / 2, offsets: [boxes[k].w / 2], members: [k]};
      while (groups.length) {
        const p = groups[groups.length - 1], last = p.members[p.members.length - 1], room = p.offsets[p.offsets.length - 1] + boxes[last].w / 2 + GAPX;
        if (p.start + room <= g.start) break;
        groups.pop();
        const members = [...p.members, ...g.members], offsets = [...p.offsets, ...g.offsets.map(o => room + o)];
        g = {members, offsets, start: members.reduce((s, m, i) => s + wish[m] - offsets[i], 0) / members.length};
      }
      groups.push(g);
    }
    for (const g of groups) g.members.forEach((m, i) => boxes[m].x = g.start + g.offsets[i]);
  };
  for (const layer of layers) spread(layer, new Float64Array(n));
  for (let sweep = 0; sweep < 10; sweep++) {
    const down = sweep % 2 === 0, near = down ? above : below;
    for (const layer of down ? layers : [...layers].reverse()) {
      const wish = new Float64Array(n); for (const k of layer) wish[k] = near[k].length ? near[k].reduce((s, j) => s + boxes[j].x, 0) / near[k].length : boxes[k].x;
      spread(layer, wish);
    }
  }
  let y = 0;
  for (const layer of layers) { const high = Math.max(0, ...layer.map(k => boxes[k].h)); for (const k of layer) boxes[k].y = y + high / 2; y += high + GAPY; }
}
const hueOf = kind => [...kind].reduce((s, c) => s + c.charCodeAt(0) * 37, 0) % 360;
const fill = b => b.kind === "group" ? "#e2e8fb" : b.kind === "input" || b.kind === "output" ? "#f1f1f4" : `hsl(${hueOf(b.kind)} 62% 88%)`;
function bounds() {
  const l = Math.min(...boxes.map(b => b.x - b.w / 2), 0), r = Math.max(...boxes.map(b => b.x + b.w / 2), 100), t = Math.min(...boxes.map(b => b.y - b.h / 2), 0), u = Math.max(...boxes.map(b => b.y + b.h / 2), 60);
  return [l - 24, t - 24, r - l + 48, u - t + 48];
}
function beginning() { // all of it, or of a large one its beginning, so that it can be read
  const [l, t, w, h] = bounds(), r = $("picture").getBoundingClientRect(), least = .8, wide = r.width / least, high = r.height / least;
  return w <= wide && h <= high ? [l, t, w, h] : [boxes[0].x - wide / 2, t, wide, high];
}
function paint(keep) {
  layout();
  const parts = ['<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#889"/></marker></defs>'];
  for (const e of edges) {
    const a = boxes[e.a], b = boxes[e.b], up = e.back, y0 = a.y + (up ? -a.h : a.h) / 2, y1 = b.y + (up ? b.h : -b.h) / 2, bend = (y1 - y0) / 2, label = e.labels.length > 2 ? `${e.labels.length} arrays` : e.labels.join("  ");
    parts.push(`<path d="M${a.x.toFixed(1)} ${y0.toFixed(1)}C${a.x.toFixed(1)} ${(y0 + bend).toFixed(1)} ${b.x.toFixed(1)} ${(y1 - bend).toFixed(1)} ${b.x.toFixed(1)} ${y1.toFixed(1)}" fill="none" stroke="#889" marker-end="url(#tip)"/>`,
      `<text class="edge" x="${(a.x + (b.x - a.x) * .12 + 5).toFixed(1)}" y="${(y0 + (up ? -8 : 14)).toFixed(1)}" font-size="10" fill="#667">${escape(label)}</text>`);
  }
  boxes.forEach((b, k) => {
    parts.push(`<g class="node" data-k="${k}"><rect x="${(b.x - b.w / 2).toFixed(1)}" y="${(b.y - b.h / 2).toFixed(1)}" width="${b.w.toFixed(1)}" height="${b.h}" rx="${b.round ? b.h / 2 : 6}" fill="${fill(b)}" stroke="${b.group ? "#5b74c9" : "#99a"}" ${b.group ? 'stroke-dasharray="5 3"' : ""}/>` +
      b.lines.map((line, i) => `<text x="${b.x.toFixed(1)}" y="${(b.y - b.h / 2 + 6 + (i + .78) * LINE).toFixed(1)}" text-anchor="middle" font-size="12" font-family="monospace" ${i ? 'fill="#556"' : 'font-weight="600" fill="#1d2330"'}>${escape(line)}</text>`).join("") + "</g>");
  });
  $("picture").innerHTML = parts.join("");
  $("picture").querySelectorAll("g.node").forEach(g => g.addEventListener("click", () => { if (!moved) click(+g.dataset.k); }));
  if (!keep || !view) view = beginning(); place(); mark();
  $("hint").textContent = `${stage().nodes.length} nodes, ${boxes.length} boxes shown`;
  weft.boxes = boxes.map(b => ({key: b.key, group: b.group || "", lines: b.lines, members: b.members ? b.members.length : 1})); weft.edges = edges.map(e => [e.a, e.b, e.labels]);
}
function place() { $("picture").setAttribute("viewBox", view.map(v => v.toFixed(2)).join(" ")); weft.view = view; }
function click(k) {
  const b = boxes[k];
  if (b.group) { opened.add(b.group); closed.delete(b.group); chosen = b.group; paint(true); return; }
  $("picture").querySelectorAll("g.on").forEach(g => g.classList.remove("on")); $("picture").querySelector(`g[data-k="${k}"]`).classList.add("on");
  const n = b.node, groups = pathOf(n);
  $("info").innerHTML = `<b>${escape(n.name)}</b><dl>` + [["module", n.module], ["line", n.where.replace(/^.*\/([^/]+\/[^/]+)$/, "$1")], ["kernel", n.step === null || n.step === undefined ? "" : `${n.step}: ${program().steps[n.step] || ""}`], ["attributes", n.attributes], ["gives", n.types.join("  ")], ["on", n.device]]
    .filter(([, v]) => v).map(([name, v]) => `<div><dt>${name}</dt><dd class="mono">${escape(v)}</dd></div>`).join("") + "</dl>" + groups.map((g, i) => `<button data-g="${escape(g)}">close ${escape(g)}</button> `).join("");
  $("info").querySelectorAll("button").forEach(button => button.onclick = () => { closed.add(button.dataset.g); opened.delete(button.dataset.g); paint(true); });
}
function mark() {
  const text = $("search").value.toLowerCase(); let count = 0;
  $("picture").querySelectorAll("g.node").forEach(g => {
    const b = boxes[+g.dataset.k], all = (b.members || [b.node]).some(n => (n.name + "\n" + n.lines.join("\n") + "\n" + n.module + "\n" + n.where).toLowerCase().includes(text)), hit = text && (all || (b.group || "").toLowerCase().includes(text));
    g.classList.toggle("hit", !!hit); g.classList.toggle("dim", !!text && !hit); if (hit) count++;
  });
  weft.found = count; if (text) $("hint").textContent = `${count} boxes found`;
}
function stageChanged() { const s = stage(); $("text").textContent = s.text; opened.clear(); closed.clear(); paint(); rows(); }
function rows() {
  const p = program();
  $("passes").innerHTML = "<thead><tr><th class=l>graph</th><th>operators</th><th class=l>why this pass is there</th></tr></thead><tbody>" + p.stages.map((s, k) => `<tr data-go="${k}" style="${k === +$("stage").value ? "font-weight:600" : ""}"><td>${escape(s.name)}</td><td>${s.operators}</td><td class="l">${escape(s.reason)}</td></tr>`).join("") + "</tbody>";
  $("passes").querySelectorAll("tr[data-go]").forEach(tr => tr.onclick = () => { $("stage").value = tr.dataset.go; stageChanged(); });
}
function programChanged() { const p = program(); $("stage").innerHTML = p.stages.map((s, k) => `<option value="${k}">${escape(s.name)}</option>`).join(""); $("stage").value = p.start;
  $("depth").value = Math.max(...stage().nodes.map(n => pathOf(n).length), 0) && stage().nodes.length > 60 ? 1 : 9; $("facts").textContent = `${p.name} · ${p.steps.length} kernels`;
  $("kernels").textContent = p.steps.map((text, k) => `${k}: ${text}`).join("\n"); $("memory").innerHTML = p.memory; stageChanged(); }
let moved = false, from = null; const pic = $("picture");
pic.addEventListener("wheel", e => { e.preventDefault(); const r = pic.getBoundingClientRect(), s = Math.exp(Math.max(-120, Math.min(120, e.deltaY)) * .0025), k = Math.max(view[2] / r.width, view[3] / r.height);
  const cx = view[0] + view[2] / 2 + (e.clientX - r.x - r.width / 2) * k, cy = view[1] + view[3] / 2 + (e.clientY - r.y - r.height / 2) * k; view = [cx - (cx - view[0]) * s, cy - (cy - view[1]) * s, view[2] * s, view[3] * s]; place(); }, {passive: false});
pic.addEventListener("mousedown", e => { from = {x: e.clientX, y: e.clientY, view: view.slice()}; moved = false; });
window.addEventListener("mousemove", e => { if (!from) return; const r = pic.getBoundingClientRect(), k = Math.max(from.view[2] / r.width, from.view[3] / r.height), dx = e.clientX - from.x, dy = e.clientY - from.y;
  if (Math.abs(dx) + Math.abs(dy) > 3) moved = true; view = [from.view[0] - dx * k, from.view[1] - dy * k, from.view[2], from.view[3]]; place(); });
window.addEventListener("mouseup", () => from = null);
// Files: the picture as it is, whole.
function asSvg() { const [x, y, w, h] = bounds(); return `<svg xmlns="${SVG}" viewBox="${x.toFixed(1)} ${y.toFixed(1)} ${w.toFixed(1)} ${h.toFixed(1)}" width="${w.toFixed(0)}" height="${h.toFixed(0)}" font-family="monospace">${pic.innerHTML}</svg>`; }
function save(blob, name) { const a = document.createElement("a"); a.href = URL.createObjectURL(blob); a.download = name; a.click(); }
async function asPng() {
  const text = asSvg(), [, , w, h] = bounds(), image = new Image(), scale = Math.min(2, 8000 / Math.max(w, h));
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(text); await image.decode();
  const canvas = document.createElement("canvas"); canvas.width = w * scale; canvas.height = h * scale;
  const p = canvas.getContext("2d"); p.fillStyle = "#fff"; p.fillRect(0, 0, canvas.width, canvas.height); p.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise(done => canvas.toBlob(done, "image/png"));
}
weft.asSvg = asSvg; weft.asPng = asPng;
$("svg").onclick = () => save(new Blob([asSvg()], {type: "image/svg+xml"}), program().name + ".svg");
$("png").onclick = async () => save(await asPng(), program().name + ".png");
$("open").onclick = () => { $("depth").value = 9; opened.clear(); closed.clear(); paint(); }; $("close").onclick = () => { $("depth").value = 0; opened.clear(); closed.clear(); paint(); };
$("inputs").onchange = () => paint(); $("group").onchange = $("depth").oninput = () => { opened.clear(); closed.clear(); paint(); }; $("fit").onclick = () => { view = bounds(); place(); }; $("search").oninput = mark;
$("program").innerHTML = D.programs.map((p, k) => `<option value="${k}">${escape(p.name)}</option>`).join(""); $("program").onchange = programChanged; $("stage").onchange = stageChanged;
programChanged(); weft.ready = true; weft.click = click;
