// Bytes between devices as a matrix, and the load of every link.
"use strict";

function matrixPicture(m) {
  const n = m.names.length, most = Math.max(...m.cells.map(c => c[2])), readout = h("p", {class: "soft", "aria-live": "polite"}, "Point at a cell for its bytes.");
  const cell = new Map(m.cells.map(c => [c[0] * n + c[1], c[2]]));
  const edge = w => Math.max(4, Math.min(34, Math.floor((w - 130) / n)));
  let side = 8;
  const picture = surface(120 + n * 8, (c, width) => {
    side = edge(width);
    if (picture.height !== 26 + n * side) { picture.height = 26 + n * side; picture.redraw(); return; }
    for (let i = 0; i < n; i++) for (let j = 0; j < n; j++) {
      const v = cell.get(i * n + j) || 0;
      c.fillStyle = v ? `rgba(0,114,178,${0.15 + 0.85 * v / most})` : style("--panel");
      c.fillRect(130 + j * side, 22 + i * side, side - 1, side - 1);
    }
    c.fillStyle = style("--ink");
    const every = Math.ceil(14 / side);
    for (let i = 0; i < n; i += every) c.fillText(m.names[i].slice(-18), 0, 22 + i * side + Math.min(side - 2, 12));
    c.fillText("from ↓ to →, in the same order", 130, 14);
  }, {role: "img", "aria-label": `Bytes between ${n} ${m.block > 1 ? "blocks of devices" : "devices"}`, id: "canvas-matrix"});
  picture.canvas.addEventListener("pointermove", e => {
    const i = Math.floor((e.offsetY - 22) / side), j = Math.floor((e.offsetX - 130) / side);
    if (i >= 0 && j >= 0 && i < n && j < n) readout.textContent = `${m.names[i]} to ${m.names[j]}: ${bytes(cell.get(i * n + j) || 0)} a step`;
  });
  return h("figure", {}, picture.canvas, readout);
}

function trafficPart(page) {
  const m = page.matrix, links = page.links;
  if (!links.length) return;
  const full = links[0];
  const bar = share => h("span", {style: `display:inline-block;height:.8em;width:${Math.min(100, 100 * share).toFixed(1)}%;background:${OKABE[5]}`});
  const top = links.slice(0, 12);
  part("traffic", "Bytes between devices and over links", h("p", {}, `The fullest link, ${full[0]} to ${full[1]}, carries ${bytes(full[2])} a step, ${percent(full[4])} of its capacity over the step.`),
    m.cells.length ? matrixPicture(m) : null,
    m.block > 1 ? h("p", {class: "note"}, `A cell sums ${m.block} by ${m.block} devices; names are of the first.`) : null,
    h("h3", {}, "The fullest links"),
    h("div", {class: "scroll", tabindex: 0, role: "group", "aria-label": "The fullest links"}, h("table", {}, h("caption", {}, "Load as a share of the step at full bandwidth"),
      h("thead", {}, h("tr", {}, ...["link", "bytes a step", "bandwidth", "load", "load drawn"].map(t => h("th", {scope: "col"}, t)))),
      h("tbody", {}, ...top.map(l => h("tr", {}, h("td", {}, `${l[0]} → ${l[1]}`), h("td", {class: "n"}, bytes(l[2])), h("td", {class: "n"}, rate(l[3])), h("td", {class: "n"}, percent(l[4])), h("td", {style: "width:12rem"}, bar(l[4]))))))),
    tableBelow("links", "every link with a load", [["from", r => r[0]], ["to", r => r[1]], ["bytes", r => r[2], plain], ["bytes_per_s", r => r[3], plain], ["load", r => r[4], percent]], links),
    tableBelow("matrix", "bytes from device to device", [["from", r => m.names[r[0]]], ["to", r => m.names[r[1]]], ["bytes", r => r[2], plain]], m.cells));
  window.drawn.matrix = m.cells.reduce((sum, c) => sum + c[2], 0);
}
