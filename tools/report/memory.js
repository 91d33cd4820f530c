// Memory over the step: uPlot's stepped areas, one on the other, with the capacity as a line.
"use strict";

// Colours that change least come first, at the bottom.
const STACK = ["context", "communicator", "framework", "weight", "optimizer", "input", "gradient", "buffer", "activation", "workspace", "unused"];

function memoryData(page, curve) {
  const end = page.run.step_time_ps, points = curve.points.slice();
  if (points.length && points[points.length - 1][0] < end) points.push([end, ...points[points.length - 1].slice(1)]);
  const used = STACK.map(name => page.categories.indexOf(name)).filter(k => k >= 0 && points.some(p => p[k + 1] > 0));
  const sums = used.map(() => []);
  for (const p of points) {
    let sum = 0;
    used.forEach((k, i) => sums[i].push(sum += p[k + 1]));
  }
  return {names: used.map(k => page.categories[k]), used, times: points.map(p => p[0]), sums, points};
}

const POWERS = Array.from({length: 50}, (_, i) => 2 ** i); // marks of bytes
function axes(xText, yText) {
  const axis = {stroke: style("--ink"), grid: {stroke: style("--line")}, ticks: {stroke: style("--line")}, font: "12px system-ui, sans-serif"};
  return [{...axis, values: (u, v) => v.map(xText), space: 90}, {...axis, values: (u, v) => v.map(yText), size: 84}];
}

// A uPlot in an element, made again when the place or the colours change.
function plotIn(place, make, height) {
  let plot = null;
  const draw = () => {
    plot?.destroy();
    if (place.clientWidth) plot = make(place.clientWidth, height);
  };
  let width = 0;
  new ResizeObserver(() => { if (place.clientWidth !== width) { width = place.clientWidth; draw(); } }).observe(place);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  return {draw, get plot() { return plot; }};
}

// A capacity far above the curve would flatten the curve: the axis ends below, and a text has the number.
const capacityAbove = curve => (curve.capacity || 0) > 1.6 * curve.peak;

function memoryCurve(page, curve, place, readout) {
  const d = memoryData(page, curve), above = capacityAbove(curve), most = above ? curve.peak * 1.3 : Math.max(curve.capacity || 0, curve.peak) * 1.06;
  const data = [d.times, ...d.sums.slice().reverse()], stepped = uPlot.paths.stepped({align: 1});
  const series = d.names.slice().reverse().map(name => ({label: name, stroke: "rgba(0,0,0,.5)", width: 0.5, fill: CATEGORY_COLOUR[name], paths: stepped, points: {show: false}}));
  if (curve.capacity && !above) // dashes on a line of the paper's colour, so that they are seen on every category
    for (const look of [{stroke: style("--paper"), width: 4}, {label: "capacity", stroke: style("--bad"), width: 2, dash: [8, 5]}]) {
      data.push(d.times.map(() => curve.capacity));
      series.push({...look, points: {show: false}});
    }
  const made = plotIn(place, (width, height) => new uPlot({
    width, height, legend: {show: false}, cursor: {y: false, points: {show: false}},
    scales: {x: {time: false}, y: {range: [0, most]}}, axes: [axes(ps, bytes)[0], {...axes(ps, bytes)[1], incrs: POWERS}], series: [{}, ...series],
    hooks: {setCursor: [u => {
      if (u.cursor.idx === null || u.cursor.idx === undefined) return;
      const p = d.points[u.cursor.idx];
      readout.textContent = `${ps(p[0])}: ${d.used.filter(k => p[k + 1]).map(k => `${page.categories[k]} ${bytes(p[k + 1])}`).join(", ")}; in all ${bytes(d.sums[d.sums.length - 1][u.cursor.idx])}`;
    }]},
  }, data, place), 320);
  made.draw();
  window.drawn.memory = {peak: Math.max(...d.sums[d.sums.length - 1]), capacity: curve.capacity};
  return d;
}

function memoryPart(page) {
  const run = page.run, body = h("div");
  const show = index => {
    const curve = page.memory[index], cls = run.per_class[curve.cls], place = h("div", {role: "img", "aria-label": `Memory of ${curve.device} over the step, at most ${bytes(curve.peak)}`});
    const readout = h("p", {class: "soft", id: "memory-readout"}, "Point at the curve for the bytes of a moment; drag to zoom, double-click for the whole step.");
    body.replaceChildren(place, readout);
    const d = memoryCurve(page, curve, place, readout);
    const live = Object.entries(cls.live_at_peak || {}).flatMap(([category, list]) => list.map(t => ({category, ...t}))).sort((a, b) => b.bytes - a.bytes);
    if (capacityAbove(curve)) body.append(h("p", {id: "capacity-above"}, `The capacity lies above the picture: ${bytes(curve.capacity)}, ${digits(curve.capacity / curve.peak, 3)} times the peak of ${bytes(curve.peak)}.`));
    body.append(legend([...d.names.map(n => [n, CATEGORY_COLOUR[n]]), ...(curve.capacity && !capacityAbove(curve) ? [["capacity (dashed)", style("--bad")]] : [])]),
      tableBelow("peak", `categories at the peak of ${curve.device}, at ${ps(cls.peak_memory_at_ps)}`, [["category", r => r[0]], ["bytes", r => r[1], plain], ["size", r => bytes(r[1])], ["share", r => percent(r[1] / cls.peak_memory_bytes)]], Object.entries(cls.peak_by_category).filter(r => r[1]), true),
      tableBelow("tensors", `tensors at the peak of ${curve.device}`, [["category", r => r.category], ["path", r => r.path], ["count", r => r.count, plain], ["bytes", r => r.bytes, plain], ["size", r => bytes(r.bytes)]], live),
      tableBelow("curve", `memory of ${curve.device} over time`, [["time_ps", r => r[0], plain], ...d.used.map(k => [page.categories[k], r => r[k + 1], plain])], d.points));
  };
  const section = part("memory", "Memory", h("p", {}, run.fits === false
    ? `The plan does not fit: ${run.fullest_device} lacks ${bytes(run.missing_bytes)}.` : `${run.fullest_device} is fullest.`),
  page.memory.length > 1 ? h("div", {class: "bar"}, choice("Device class", page.memory.map((m, i) => [i, `${m.device}: ${bytes(m.peak)}`]), 0, show)) : null, body);
  if (run.advice?.length)
    section.append(tableBelow("advice", "changes that were tried", [["change", r => r.change], ["fits", r => String(r.fits)], ["step_time_ps", r => r.step_time_ps, plain], ["peak_memory_bytes", r => r.peak_memory_bytes, plain]], run.advice, true));
  if (page.memory.length) show(0);
}
