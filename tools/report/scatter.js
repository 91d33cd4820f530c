// A cloud of points on uPlot, with logarithmic or linear axes: roofline and sweeps.
"use strict";

// options: {x, y: {title, text, log}, sizes, colours (per point), lines: [[x, y], …] each, select(i)}
function scatter(place, xs, ys, options) {
  const {x, y} = options;
  const points = u => {
    const c = u.ctx, scale = devicePixelRatio || 1, many = xs.length > 20000;
    const [left, right, top, bottom] = [u.bbox.left, u.bbox.left + u.bbox.width, u.bbox.top, u.bbox.top + u.bbox.height];
    c.save();
    c.beginPath();
    c.rect(left, top, right - left, bottom - top);
    c.clip();
    for (const line of options.lines || []) {
      c.strokeStyle = line.colour || style("--ink");
      c.lineWidth = 1.5 * scale;
      c.setLineDash(line.dash || []);
      c.beginPath();
      line.points.forEach((p, i) => c[i ? "lineTo" : "moveTo"](u.valToPos(p[0], "x", true), u.valToPos(p[1], "y", true)));
      c.stroke();
      c.setLineDash([]);
    }
    c.strokeStyle = "rgba(0,0,0,.55)";
    c.fillStyle = OKABE[0];
    for (let i = 0; i < xs.length; i++) {
      if (options.shown && !options.shown(i)) continue;
      const px = u.valToPos(xs[i], "x", true), py = u.valToPos(ys[i], "y", true);
      if (many) { c.fillRect(px - scale, py - scale, 2 * scale, 2 * scale); continue; }
      if (options.colours) c.fillStyle = options.colours(i);
      c.beginPath();
      c.arc(px, py, (options.sizes ? options.sizes(i) : 4) * scale, 0, 7);
      c.fill();
      c.stroke();
    }
    c.restore();
  };
  const range = (log, pad) => (u, low, high) => {
    for (const line of options.lines || []) if (line.extends) for (const p of line.points) { low = Math.min(low, p[pad]); high = Math.max(high, p[pad]); }
    if (!(high > low)) { low = log ? low / 2 : low - 1; high = log ? high * 2 : high + 1; }
    if (log) { const m = (high / low) ** (options.sizes ? 0.08 : 0.04); return [low / m, high * m]; }
    return [low - (high - low) * 0.04, high + (high - low) * 0.04];
  };
  const both = axes(x.text, y.text);
  both[0].label = x.title;
  both[1].label = y.title;
  for (const a of both) Object.assign(a, {labelFont: "13px system-ui, sans-serif", labelSize: 22});
  const logSplits = (u, axis, low, high) => {
    const out = [];
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++) for (const f of [1, 2, 5]) if (f * 10 ** e >= low && f * 10 ** e <= high) out.push(f * 10 ** e);
    return out.length > 9 ? out.filter(v => /^1(e|0*$|$)|^0\.0*1$/.test(String(v))) : out;
  };
  [x, y].forEach((a, i) => { if (a.kind === "BYTES") both[i].incrs = POWERS; });
  if (x.log) Object.assign(both[0], {splits: logSplits, filter: (u, s) => s});
  if (y.log) Object.assign(both[1], {splits: logSplits, filter: (u, s) => s});
  return plotIn(place, (width, height) => {
    const u = new uPlot({
      mode: 2, width, height, legend: {show: false}, cursor: {points: {show: false}, drag: {x: true, y: true}},
      scales: {x: {time: false, distr: x.log ? 3 : 1, range: range(x.log, 0)}, y: {distr: y.log ? 3 : 1, range: range(y.log, 1)}}, axes: both,
      series: [{}, {facets: [{scale: "x", auto: true}, {scale: "y", auto: true}], paths: () => null, points: {show: false}}],
      hooks: {draw: [points]},
    }, [[], [xs, ys]], place);
    u.over.addEventListener("click", e => {
      let best = -1, least = 14 ** 2;
      for (let i = 0; i < xs.length; i++) {
        if (options.shown && !options.shown(i)) continue;
        const d = (u.valToPos(xs[i], "x") - e.offsetX) ** 2 + (u.valToPos(ys[i], "y") - e.offsetY) ** 2;
        if (d < least) { least = d; best = i; }
      }
      if (best >= 0) options.select?.(best);
    });
    return u;
  }, options.height || 380);
}

// ---- the roofline ----

function rooflinePart(page) {
  const ops = page.intensity.filter(o => o[4] > 0 && o[5] > 0 && o[3] > 0), roof = page.roof;
  if (!ops.length) return;
  const x = ops.map(o => o[4] / o[5]), y = ops.map(o => o[4] / (o[3] * 1e-12)), most = Math.max(...ops.map(o => o[3]));
  const types = [...new Set(ops.map(o => o[6]))], colour = colours(types), lines = [], ridges = [];
  if (roof.bytes_per_s)
    types.filter(t => roof.flop_per_s[t]).forEach(t => {
      const ridge = roof.flop_per_s[t] / roof.bytes_per_s, low = Math.min(...x, ridge) / 2, high = Math.max(...x, ridge) * 2;
      ridges.push([t, ridge, roof.flop_per_s[t]]);
      lines.push({points: [[low, low * roof.bytes_per_s], [ridge, roof.flop_per_s[t]], [high, roof.flop_per_s[t]]], colour: colour(t), extends: true});
    });
  const place = h("div", {role: "img", "aria-label": `Roofline of ${roof.kind} with ${ops.length} operations`});
  const detail = h("div", {class: "panel", "aria-live": "polite", id: "detail-roofline"}, h("p", {class: "soft"}, "Click a point for its operation."));
  part("roofline", "Roofline", h("p", {}, `Each operation of ${page.run.critical_device} by its FLOP a byte and the FLOP/s that it reaches; a larger point takes more time in sum. The lines are the data sheet of ${roof.kind}.` + (ridges.length ? ` Ridge: ${ridges.map(r => `${digits(r[1])} FLOP/B (${r[0]})`).join(", ")}.` : " The data sheet's bandwidth or peak is unknown, so there is no ridge.")),
    legend(types.map(t => [t, colour(t)])), h("figure", {}, place), detail,
    tableBelow("roofline", "operations by intensity", [["op", r => r[0]], ["path", r => r[1]], ["count", r => r[2], plain], ["total_ps", r => r[3], plain], ["flop", r => r[4], plain], ["bytes", r => r[5], plain],
      ["FLOP/B", r => r[4] / r[5], digits], ["FLOP/s", r => r[4] / (r[3] * 1e-12), digits], ["dtype", r => r[6]], ["cost from", r => r[7]]], ops));
  scatter(place, x, y, {x: {title: "FLOP a byte", text: v => digits(v), log: true}, y: {title: "FLOP/s", text: v => scaled(v, DECIMAL, ""), log: true}, lines,
    sizes: i => 3 + 14 * Math.sqrt(ops[i][3] / most), colours: i => colour(ops[i][6]),
    select: i => detail.replaceChildren(h("h3", {}, `${ops[i][0]} ${ops[i][1]}`), h("p", {}, `${ops[i][2]} times, ${ps(ops[i][3])} in sum; ${digits(x[i])} FLOP/B, ${scaled(y[i], DECIMAL, "FLOP/s")}` + (roof.flop_per_s[ops[i][6]] ? `, ${percent(y[i] / Math.min(roof.flop_per_s[ops[i][6]], x[i] * (roof.bytes_per_s || Infinity)))} of the roof` : "") + `; cost from ${ops[i][7]}.`))}).draw();
  window.drawn.roofline = {n: ops.length, ridges};
}
