// A timeline of lanes on a canvas: zoom from the whole step to single operations. What is narrower
// than a pixel is drawn as one pixel, and its neighbours in the same pixel are skipped, so a drawing
// costs what the screen shows, not what the step has.
"use strict";

const LANE = 20, GAP = 4, RULER = 22;

// The end of a text that is too long for its room: names of files begin alike.
function ending(c, text, room) {
  if (c.measureText(text).width <= room) return text;
  let from = 1;
  while (from < text.length && c.measureText("…" + text.slice(from)).width > room) from++;
  return "…" + text.slice(from);
}

// A lane: {label, short, tree, root, from (0), items: draw the children of the step alone, colour(span)}
class Timeline {
  constructor(id, lanes, end, describe) {
    Object.assign(this, {id, lanes, end, describe, from: 0, to: end, lane: 0, selected: null});
    this.surface = surface(RULER + lanes.length * (LANE + GAP) + 4, (c, w) => this.draw(c, w), {
      id: "canvas-" + id, tabindex: 0, role: "application", "aria-roledescription": "timeline", "aria-describedby": "keys-" + id,
      "aria-label": `Timeline of ${lanes.length} lanes, ${ps(end)}`,
    });
    this.detail = h("div", {class: "panel", "aria-live": "polite", id: "detail-" + id}, h("p", {class: "soft"}, "Select an operation: its path, its time and the derivation of its cost appear here."));
    const button = (text, label, act) => h("button", {type: "button", "aria-label": label, click: act}, text);
    this.range = h("output", {id: "range-" + id});
    this.element = h("figure", {},
      h("div", {class: "bar"},
        button("+", "Zoom in", () => this.zoom(1 / 2)), button("−", "Zoom out", () => this.zoom(2)),
        button("←", "Earlier", () => this.pan(-0.5)), button("→", "Later", () => this.pan(0.5)),
        button("whole step", "Show the whole step", () => this.show(0, this.end)), this.range),
      this.surface.canvas,
      h("figcaption", {id: "keys-" + id}, "Drag to move, click an operation for its cost. With the timeline in focus, the wheel and + − zoom, ← → move, ↑ ↓ choose a lane, n and p go to the next and previous operation, Enter zooms to it, Esc shows the whole step."),
      this.detail);
    this.listen();
  }

  listen() {
    const canvas = this.surface.canvas;
    let drag = null;
    canvas.addEventListener("wheel", e => {
      if (document.activeElement !== canvas && !e.ctrlKey) return;
      e.preventDefault();
      this.zoom(e.deltaY < 0 ? 1 / 1.4 : 1.4, this.timeAt(e.offsetX));
    }, {passive: false});
    canvas.addEventListener("pointerdown", e => { drag = {x: e.offsetX, from: this.from, moved: false}; canvas.setPointerCapture(e.pointerId); });
    canvas.addEventListener("pointermove", e => {
      if (!drag) return;
      if (Math.abs(e.offsetX - drag.x) > 4) drag.moved = true;
      const width = this.to - this.from, from = drag.from - (e.offsetX - drag.x) / this.scale();
      if (drag.moved) this.show(from, from + width);
    });
    canvas.addEventListener("pointerup", e => {
      if (drag && !drag.moved) this.pick(e.offsetX, e.offsetY);
      drag = null;
    });
    canvas.addEventListener("dblclick", e => this.zoom(1 / 4, this.timeAt(e.offsetX)));
    canvas.addEventListener("keydown", e => {
      const act = {
        "+": () => this.zoom(1 / 2), "=": () => this.zoom(1 / 2), "-": () => this.zoom(2),
        ArrowLeft: () => this.pan(-0.25), ArrowRight: () => this.pan(0.25),
        ArrowUp: () => this.choose(-1), ArrowDown: () => this.choose(1),
        n: () => this.step(1), p: () => this.step(-1), Enter: () => this.zoomToSelected(), Escape: () => this.show(0, this.end),
      }[e.key];
      if (!act) return;
      e.preventDefault();
      act();
    });
  }

  // ---- the view ----

  left() { return Math.min(210, this.surface.width * 0.28); }
  scale() { return (this.surface.width - this.left()) / (this.to - this.from); }
  timeAt(x) { return this.from + (x - this.left()) / this.scale(); }

  show(from, to) {
    const width = Math.min(Math.max(to - from, 1000), this.end); // a nanosecond at least
    this.from = Math.max(0, Math.min(from, this.end - width));
    this.to = this.from + width;
    this.range.textContent = `${ps(this.from)} to ${ps(this.to)}`;
    this.surface.redraw();
    this.onshow?.();
  }

  zoom(factor, around) {
    const s = this.selected;
    around ??= s && s.start < this.to && s.end > this.from ? s.start + s.ps / 2 : (this.from + this.to) / 2;
    this.show(around - (around - this.from) * factor, around + (this.to - around) * factor);
  }

  pan(share) { const d = (this.to - this.from) * share; this.show(this.from + d, this.to + d); }

  zoomToSelected() {
    const s = this.selected;
    if (s) this.show(s.start - s.ps, s.end + s.ps);
  }

  // ---- selection ----

  choose(by) {
    this.lane = Math.max(0, Math.min(this.lanes.length - 1, this.lane + by));
    this.select(this.find(this.lane, (this.from + this.to) / 2));
  }

  step(by) {
    const s = this.selected, lane = this.lanes[this.lane];
    let found = null;
    if (!s) lane.tree.each(lane.root, this.from, this.end, x => { found = x; return false; });
    else if (by > 0) lane.tree.each(lane.root, s.end, this.end, x => { found = x; return x.start < s.end; });
    else found = this.before(lane, s.start);
    if (found) this.select(found);
    if (found && (found.end < this.from || found.start > this.to)) this.pan((found.start - (this.from + this.to) / 2) / (this.to - this.from));
  }

  before(lane, time) { // widening windows backwards
    for (let width = 1e6; ; width *= 16) {
      let last = null;
      lane.tree.each(lane.root, Math.max(0, time - width), time, x => { if (x.end <= time) last = x; });
      if (last || width > this.end) return last;
    }
  }

  find(lane, time) {
    const l = this.lanes[lane];
    if (!l.items) return l.tree.at(l.root, time);
    const [node, t0] = l.tree.top(l.root), i = l.tree.firstAfter(node, time - t0);
    if (i >= l.tree.starts(node).length || l.tree.starts(node)[i] + t0 > time) return null;
    const n = l.tree.nodes[node], start = t0 + l.tree.starts(node)[i], length = l.tree.length(n[3 * i + 1]);
    return {start, ps: length, end: start + length, path: l.tree.names[n[3 * i + 2]], op: "call", isCall: true, derivation: ""};
  }

  // The span under a point; of spans narrower than a pixel the nearest within three.
  pick(x, y) {
    const lane = Math.floor((y - RULER) / (LANE + GAP));
    if (lane < 0 || lane >= this.lanes.length || x < this.left()) return;
    this.lane = lane;
    let span = null;
    for (const d of [0, -1, 1, -2, 2, -3, 3]) span ||= this.find(lane, this.timeAt(x + d));
    this.select(span);
  }

  select(span) {
    this.selected = span;
    this.surface.redraw();
    this.detail.replaceChildren(...(span ? this.describe(span, this.lanes[this.lane]) : [h("p", {class: "soft"}, `Nothing runs there on ${this.lanes[this.lane].label}.`)]));
  }

  // ---- drawing ----

  draw(c, width) {
    const left = this.left();
    this.ruler(c, left, width);
    this.lanes.forEach((lane, i) => {
      const y = RULER + i * (LANE + GAP);
      c.fillStyle = style("--panel");
      c.fillRect(left, y, width - left, LANE);
      c.fillStyle = style("--ink");
      c.save();
      c.beginPath();
      c.rect(0, y, left - 6, LANE);
      c.clip();
      c.font = (i === this.lane && document.activeElement === this.surface.canvas ? "bold " : "") + "12px system-ui, sans-serif";
      const below = i && lane.cls && lane.cls === this.lanes[i - 1].cls;
      const at = below ? 14 : 0;
      c.fillText(ending(c, below ? lane.short : lane.label, left - 6 - at), at, y + 14);
      c.restore();
      c.save();
      c.beginPath();
      c.rect(left, y, width - left, LANE);
      c.clip();
      if (lane.items) this.drawItems(c, lane, y);
      else this.drawNode(c, lane, lane.root, 0, y, null);
      c.restore();
    });
    this.frame(c, left);
  }

  ruler(c, left, width) {
    const span = this.to - this.from, rough = span / Math.max(2, (width - left) / 110);
    const ten = 10 ** Math.floor(Math.log10(rough)), step = [1, 2, 5, 10].map(f => f * ten).find(s => s >= rough);
    c.fillStyle = style("--soft");
    c.strokeStyle = style("--line");
    for (let t = Math.ceil(this.from / step) * step; t <= this.to; t += step) {
      const x = left + (t - this.from) * this.scale();
      c.beginPath();
      c.moveTo(x, RULER - 6);
      c.lineTo(x, this.surface.height);
      c.stroke();
      if (x < width - 50) c.fillText(ps(t), x + 3, 12);
    }
  }

  rect(c, lane, colour, start, length, y, label) {
    const scale = this.scale(), x = this.left() + (start - this.from) * scale, w = Math.max(length * scale, 0.7);
    c.fillStyle = colour;
    c.fillRect(x, y, w, LANE);
    if (w < 3) return;
    c.strokeStyle = "rgba(0,0,0,.45)";
    c.strokeRect(x + 0.5, y + 0.5, w - 1, LANE - 1);
    if (w < 26) return;
    const from = Math.max(x, this.left()), room = Math.min(x + w, this.surface.width) - from - 6;
    const text = label.length * 6.6 > room ? label.slice(0, Math.max(0, Math.floor(room / 6.6))) : label;
    c.fillStyle = inkOn(colour);
    if (text.length > 1) c.fillText(text, from + 4, y + 14);
  }

  drawItems(c, lane, y) {
    const [node, t0] = lane.tree.top(lane.root), n = lane.tree.nodes[node], starts = lane.tree.starts(node);
    for (let i = lane.tree.firstAfter(node, this.from - t0); i < starts.length; i++) {
      const start = t0 + starts[i], name = lane.tree.names[n[3 * i + 2]];
      if (start > this.to) break;
      this.rect(c, lane, lane.itemColour(name), start, lane.tree.length(n[3 * i + 1]), y, name);
    }
  }

  drawNode(c, lane, node, t0, y, around) {
    const tree = lane.tree, n = tree.nodes[node], starts = tree.starts(node), scale = this.scale();
    for (let i = tree.firstAfter(node, this.from - t0); i < starts.length; i++) {
      const start = t0 + starts[i], child = n[3 * i + 1], length = tree.length(child), label = tree.names[n[3 * i + 2]];
      if (start > this.to) break;
      if (child >= 0 && length * scale >= 1) {
        this.drawNode(c, lane, child, start, y, label);
        continue;
      }
      this.rect(c, lane, lane.colour(this.sample(tree, child), label), start, length, y, label);
      if (length * scale >= 1) continue;
      const next = tree.firstAfter(node, Math.max(start + 0.7 / scale - t0, starts[i] + length));
      if (next > i + 1) i = next - 1; // all others in this pixel
    }
  }

  // A leaf that stands for a node which is narrower than a pixel.
  sample(tree, child) {
    while (child >= 0) child = tree.nodes[child][1];
    return tree.leaves[-1 - child];
  }

  frame(c, left) {
    const s = this.selected;
    if (!s) return;
    const x = left + (s.start - this.from) * this.scale(), w = Math.max(s.ps * this.scale(), 3);
    c.save();
    c.beginPath();
    c.rect(left, 0, this.surface.width - left, this.surface.height);
    c.clip();
    c.strokeStyle = style("--ink");
    c.lineWidth = 3;
    c.strokeRect(x - 1, RULER + this.lane * (LANE + GAP) - 2, w + 2, LANE + 4);
    c.restore();
  }
}
