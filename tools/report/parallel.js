// Parallel coordinates: an axis a column, a line a row. Lines are drawn in slices, some in each frame,
// so that a filter answers at once and the picture fills up after it.
"use strict";

const SLICE = 3000, AXIS_TOP = 34, AXIS_BOTTOM = 26;
const RAMP = ["#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00"]; // best to worst

class Parallel {
  constructor(rows, axes, objective) {
    Object.assign(this, {rows, axes, objective, turn: 0, brush: null});
    this.surface = surface(380, (c, w, height) => this.begin(c, w, height), {id: "canvas-parallel", tabindex: 0, role: "application",
      "aria-roledescription": "parallel coordinates", "aria-label": `Parallel coordinates of ${axes.length} columns`, "aria-describedby": "keys-parallel"});
    this.listen();
    this.surface.canvas.style.minWidth = 60 * axes.length + 116 + "px"; // the texts of an axis need 60
    this.element = h("figure", {}, h("div", {style: "overflow-x:auto"}, this.surface.canvas), h("figcaption", {id: "keys-parallel"}, "Drag along an axis to keep a range; click the axis to drop it. The filters above do the same by keyboard. The best row is drawn thick."));
  }

  // Where a row crosses an axis, from 0 (bottom) to 1; values of knobs are equally far apart.
  place(column) {
    if (column.place01) return column.place01;
    const out = new Float32Array(this.rows.n);
    if (column.isKnob) {
      const order = sortedValues(column);
      column.rank = new Map(order.map((v, i) => [v, order.length < 2 ? 0.5 : i / (order.length - 1)]));
      for (let i = 0; i < out.length; i++) out[i] = column.rank.get(column.codes[i]);
    } else {
      const x = column.numbers;
      let low = Infinity, high = -Infinity;
      for (const v of x) { if (v < low) low = v; if (v > high) high = v; }
      Object.assign(column, {low, high});
      for (let i = 0; i < out.length; i++) out[i] = high > low ? (x[i] - low) / (high - low) : 0.5;
    }
    return column.place01 = out;
  }

  x(axis) {
    const w = this.surface.width;
    return 46 + axis * (w - 116) / Math.max(1, this.axes.length - 1); // 70 right of the last axis for its texts
  }
  y(place) { return AXIS_TOP + (1 - place) * (this.surface.height - AXIS_TOP - AXIS_BOTTOM); }

  redraw() { this.surface.redraw(); }

  begin(c) {
    const turn = ++this.turn, rows = [], order = this.rows.best(this.objective);
    const rank = new Float32Array(this.rows.n).fill(NaN);
    order.forEach((r, i) => { rank[r] = i / order.length; });
    const stride = Math.max(1, Math.floor(order.length / SLICE)); // every part of the ranking in each slice
    for (let s = 0; s < stride; s++) for (let i = s; i < order.length; i += stride) rows.push(order[i]);
    this.frame(c);
    const places = this.axes.map(a => this.place(a)), xs = this.axes.map((_, i) => this.x(i));
    const alpha = Math.max(0.03, Math.min(0.7, 150 / Math.sqrt(rows.length) / 10));
    const slice = at => {
      if (turn !== this.turn) return;
      const end = Math.min(rows.length, at + SLICE);
      c.globalAlpha = alpha;
      c.lineWidth = 1;
      for (let k = 0; k < RAMP.length; k++) {
        c.strokeStyle = RAMP[k];
        c.beginPath();
        for (let i = at; i < end; i++) {
          const r = rows[i];
          if (Math.min(RAMP.length - 1, Math.floor(rank[r] * RAMP.length)) !== k) continue;
          let pen = false;
          for (let a = 0; a < places.length; a++) {
            const p = places[a][r];
            if (p === p) { c[pen ? "lineTo" : "moveTo"](xs[a], this.y(p)); pen = true; } else pen = false;
          }
        }
        c.stroke();
      }
      c.globalAlpha = 1;
      window.drawn.parallel = {lines: end, of: rows.length};
      if (end < rows.length) requestAnimationFrame(() => slice(end));
      else if (rows.length) this.thick(c, order[0], places, xs);
    };
    slice(0);
  }

  thick(c, row, places, xs) {
    c.strokeStyle = style("--ink");
    c.lineWidth = 3;
    c.beginPath();
    places.forEach((p, a) => c[a ? "lineTo" : "moveTo"](xs[a], this.y(p[row])));
    c.stroke();
    this.frame(c);
  }

  frame(c) {
    c.lineWidth = 1;
    this.axes.forEach((column, i) => {
      this.place(column);
      const x = this.x(i), f = this.rows.filters.get(column);
      c.strokeStyle = c.fillStyle = style("--ink");
      c.beginPath();
      c.moveTo(x, this.y(0));
      c.lineTo(x, this.y(1));
      c.stroke();
      c.textAlign = "center";
      c.font = (f ? "bold " : "") + "12px system-ui, sans-serif";
      c.fillText(column.name.replace(/^strategy\./, "").slice(0, Math.max(6, Math.floor((this.surface.width - 116) / this.axes.length / 6.5))), x, i % 2 ? 12 : 26);
      const mark = (text, place) => { c.fillStyle = style("--soft"); c.fillText(text, x, this.y(place) + (place === 0 ? 16 : place === 1 ? -2 : 4)); };
      if (column.rank) for (const [v, place] of column.rank) { if (column.values.length <= 12 || place === 0 || place === 1) { c.textAlign = "left"; c.fillStyle = style("--ink"); c.fillText(String(column.values[v]).slice(0, 9), x + 4, this.y(place) + 4); } }
      else { mark(column.text(column.low), 0); }
      if (!column.rank) { c.textAlign = "left"; c.fillText(column.text(column.high), x + 4, this.y(1) + 4); }
      c.textAlign = "left";
    });
  }

  // A drag on an axis becomes a filter.
  listen() {
    const canvas = this.surface.canvas;
    let from = null;
    const axisAt = x => this.axes.findIndex((_, i) => Math.abs(this.x(i) - x) < 14);
    const place = y => Math.max(0, Math.min(1, 1 - (y - AXIS_TOP) / (this.surface.height - AXIS_TOP - AXIS_BOTTOM)));
    canvas.addEventListener("pointerdown", e => { from = {axis: axisAt(e.offsetX), y: e.offsetY}; canvas.setPointerCapture(e.pointerId); });
    canvas.addEventListener("pointerup", e => {
      if (!from || from.axis < 0) { from = null; return; }
      const column = this.axes[from.axis], a = place(from.y), b = place(e.offsetY), [low, high] = [Math.min(a, b), Math.max(a, b)];
      if (Math.abs(e.offsetY - from.y) < 4) this.rows.filters.delete(column);
      else if (column.rank) this.rows.filters.set(column, {values: new Set([...column.rank].filter(([, p]) => p >= low - 0.02 && p <= high + 0.02).map(([v]) => String(column.values[v])))});
      else this.rows.filters.set(column, {low: column.low + low * (column.high - column.low), high: column.low + high * (column.high - column.low)});
      from = null;
      this.onfilter?.();
    });
  }
}
