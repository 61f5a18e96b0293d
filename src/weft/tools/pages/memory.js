"use strict";
let D = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const escape = text => String(text).replace(/[&<>"]/g, c => ({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}[c]));
const time = s => s >= 1 ? s.toFixed(2) + " s" : (s * 1e3).toFixed(2) + " ms";
const size = b => { let k = 0; while (Math.abs(b) >= 1024 && k < 4) { b /= 1024; k++; } return b.toFixed(k ? 1 : 0) + " " + ["B", "KiB", "MiB", "GiB", "TiB"][k]; };
const shortLine = where => where.replace(/^.*\/([^/]+\/[^/]+)$/, "$1");
const weft = window.weft = {ready: false, rounds: 0};
const VIEWS = {
  now: ["what is there now, by line", ["line", "allocations", "bytes"], d => d.now],
  peak: ["what held the peak", ["for", "bytes", "shape", "line", "module"], d => d.peak_holders],
  lines: ["all allocations, by line", ["line", "allocations", "bytes in all", "still there"], d => d.lines],
  leaks: ["leaks: made since the first mark, still there at the last", ["line", "allocations", "bytes", "shape"], d => d.leaks],
};
$("view").innerHTML = Object.entries(VIEWS).map(([id, v]) => `<option value="${id}">${v[0]}</option>`).join("");
function curve() {
  const canvas = $("curve"), ratio = window.devicePixelRatio || 1, wide = canvas.clientWidth, high = 240;
  canvas.width = wide * ratio; canvas.height = high * ratio; canvas.style.height = high + "px";
  const p = canvas.getContext("2d"); p.setTransform(ratio, 0, 0, ratio, 0, 0);
  const left = 76, low = 214, top = 14, most = Math.max(D.peak, 1), whole = D.seconds || 1;
  const X = t => left + t / whole * (wide - left - 16), Y = b => low - b / most * (low - top);
  p.font = "11px system-ui, 'DejaVu Sans', sans-serif"; p.fillStyle = css("--soft"); p.strokeStyle = css("--line"); p.textAlign = "right";
  for (let k = 0; k <= 4; k++) { const b = most * k / 4; p.beginPath(); p.moveTo(left, Y(b)); p.lineTo(wide - 16, Y(b)); p.stroke(); p.fillText(size(b), left - 6, Y(b) + 4); }
  p.textAlign = "center"; for (let k = 0; k <= 6; k++) p.fillText(time(whole * k / 6), X(whole * k / 6), low + 16);
  p.beginPath(); p.moveTo(X(0), low); let last = D.curve.length ? D.curve[0][1] : 0;
  for (const [t, b] of D.curve) { p.lineTo(X(t), Y(last)); p.lineTo(X(t), Y(b)); last = b; }
  p.lineTo(X(whole), Y(last)); p.lineTo(X(whole), low); p.closePath(); p.fillStyle = css("--bar"); p.fill(); p.strokeStyle = css("--accent"); p.stroke();
  p.fillStyle = css("--hit"); p.beginPath(); p.arc(X(D.peak_s), Y(D.peak), 4, 0, 7); p.fill();
  p.strokeStyle = css("--good"); p.fillStyle = css("--good");
  for (const [name, t] of D.marks) { p.beginPath(); p.moveTo(X(t), top); p.lineTo(X(t), low); p.stroke(); p.fillText(name, X(t), top - 3); }
}
function table() {
  const [, heads, of] = VIEWS[$("view").value], filter = $("filter").value.toLowerCase();
  const rows = weft.rows = of(D).filter(r => r.join(" ").toLowerCase().includes(filter));
  const isText = h => ["line", "shape", "module", "for"].includes(h), isSize = h => /bytes|still/.test(h);
  $("table").innerHTML = "<thead><tr>" + heads.map((h, k) => `<th class="${isText(h) ? "l" : ""}">${h}</th>`).join("") + "</tr></thead><tbody>" + rows.slice(0, 1000).map(r => "<tr>" +
    heads.map((h, k) => `<td class="${isText(h) ? "l long" : ""}" title="${isText(h) ? escape(r[k]) : ""}">${escape(isSize(h) ? (r[k] ? size(r[k]) : "") : h === "line" ? shortLine(r[k]) || "(no line)" : r[k] || "")}</td>`).join("") + "</tr>").join("") + "</tbody>";
  $("hint").textContent = rows.length ? `${rows.length} rows` : $("view").value === "leaks" && D.marks.length < 2 ? "set two marks: wf.tools.memory.mark(name)" : "nothing";
}
function render() {
  $("facts").textContent = `${D.program} · ${D.live ? "running" : "snapshot"}`;
  $("tiles").innerHTML = D.tiles.map(([name, value]) => `<div class="tile"><b>${escape(value)}</b><span>${escape(name)}</span></div>`).join("");
  curve(); table();
}
$("view").onchange = $("filter").oninput = table; window.addEventListener("resize", curve);
render(); weft.ready = true; weft.data = () => D;
async function follow() {
  while (D.live) {
    try { const answer = await fetch("data.json", {cache: "no-store"}); if (!answer.ok) break; D = await answer.json(); render(); weft.rounds++; }
    catch (error) { D.live = false; render(); $("facts").textContent += " · the program has ended"; break; }
    await new Promise(done => setTimeout(done, 1000));
  }
}
if (D.live) follow();
