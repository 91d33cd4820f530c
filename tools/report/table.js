// The rows of a sweep: columns (tools/report/table.c), and filters, which the address keeps.
"use strict";

const CODES = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz+-";
const UNIT_TEXT = {PS: ps, SECONDS: x => ps(x * 1e12), BYTES: bytes, SHARE: percent, RATE: x => digits(x) + " /s", PRICE: x => digits(x), COUNT: plain, FLAG: plain};

class Column {
  constructor(c, n, byName) {
    Object.assign(this, {name: c.name, kind: c.kind, more: !!c.more, n});
    if (c.as !== undefined) {
      const {values, codes, cells} = byName.get(c.as);
      Object.assign(this, {values, codes, cells, alias: c.as});
    } else if (c.values) {
      const at = new Map([...CODES].map((x, i) => [x, i]));
      this.values = c.values;
      this.codes = Uint8Array.from(c.codes, x => at.get(x));
    } else if ("same" in c) {
      this.values = [c.same];
      this.codes = new Uint8Array(n);
      this.isSame = true;
    } else this.cells = c.numbers || c.texts;
    this.text = UNIT_TEXT[c.kind] || plain;
  }

  at(row) { return this.values ? this.values[this.codes[row]] : this.cells[row]; }
  get isKnob() { return this.kind === "knob"; }
  get isMetric() { return this.kind in UNIT_TEXT && this.kind !== "FLAG" && this.kind !== "COUNT"; }

  // As numbers, NaN where there is none or where DistIR's columns say -1; made when asked for.
  get numbers() {
    if (this.made) return this.made;
    const of = v => (typeof v !== "number" || (this.isMetric && v < 0) ? NaN : v);
    this.made = new Float64Array(this.n);
    const per = this.values?.map(of);
    for (let i = 0; i < this.n; i++) this.made[i] = per ? per[this.codes[i]] : of(this.cells[i]);
    return this.made;
  }
}

class Rows {
  constructor(data) {
    this.n = data.rows;
    this.byName = new Map();
    this.columns = data.columns.map(c => {
      const column = new Column(c, data.rows, this.byName);
      this.byName.set(c.name, column);
      return column;
    });
    this.knobs = this.columns.filter(c => c.isKnob && !c.isSame && c.values);
    this.metrics = this.columns.filter(c => c.isMetric && !c.isSame && !c.alias);
    this.filters = new Map(); // column → {values: Set} or {low, high}
    this.shown = new Uint8Array(this.n);
    const status = this.byName.get("status");
    const ok = status.values ? status.values.map(v => v === "ok") : null;
    this.isOk = i => (ok ? ok[status.codes[i]] : status.at(i) === "ok");
    this.apply();
  }

  // All rows that pass every filter.
  apply() {
    this.shown.fill(1);
    for (const [column, f] of this.filters) {
      if (f.values) {
        const pass = column.values.map(v => f.values.has(String(v)));
        for (let i = 0; i < this.n; i++) this.shown[i] &= pass[column.codes[i]];
      } else {
        const x = column.numbers;
        for (let i = 0; i < this.n; i++) this.shown[i] &= x[i] >= f.low && x[i] <= f.high;
      }
    }
    this.count = this.shown.reduce((s, x) => s + x, 0);
  }

  // All rows that are ok, best first by a metric; sorted once.
  order(metric) {
    if (metric.order) return metric.order;
    const x = metric.numbers, out = [];
    for (let i = 0; i < this.n; i++) if (this.isOk(i) && x[i] === x[i]) out.push(i);
    return metric.order = Uint32Array.from(out).sort((a, b) => (metric.more ? x[b] - x[a] : x[a] - x[b]) || a - b);
  }

  // Those that are shown.
  best(metric, most = Infinity) {
    const out = [];
    for (const i of this.order(metric)) {
      if (out.length >= most) break;
      if (this.shown[i]) out.push(i);
    }
    return out;
  }

  // Of the rows that are shown and ok, those that no other beats by both metrics.
  front(a, b) {
    const x = a.numbers, y = b.numbers, out = [];
    for (const i of this.best(a)) {
      const last = out[out.length - 1];
      if (last !== undefined && !(b.more ? y[i] > y[last] : y[i] < y[last])) continue;
      if (last !== undefined && x[i] === x[last]) out.pop(); // as good by a, better by b
      out.push(i);
    }
    return out;
  }

  // "tp=2,4&peak_memory=1e9..2e9"
  toHash(extra) {
    const words = [...this.filters].map(([c, f]) => `${encodeURIComponent(c.name)}=${f.values ? [...f.values].map(encodeURIComponent).join(",") : `${f.low}..${f.high}`}`);
    for (const [k, v] of Object.entries(extra)) words.push(`~${k}=${encodeURIComponent(v)}`);
    return "#" + words.join("&");
  }

  fromHash(hash) {
    const extra = {};
    this.filters.clear();
    for (const word of hash.slice(1).split("&")) {
      const at = word.indexOf("=");
      if (at < 0) continue;
      const name = decodeURIComponent(word.slice(0, at)), value = word.slice(at + 1), column = this.byName.get(name);
      const range = /^(-?[\d.e+-]+|-Infinity)\.\.(-?[\d.e+-]+|Infinity)$/.exec(value);
      if (name.startsWith("~")) extra[name.slice(1)] = decodeURIComponent(value);
      else if (column && range) this.filters.set(column, {low: Number(range[1]), high: Number(range[2])});
      else if (column?.values) this.filters.set(column, {values: new Set(value.split(",").map(decodeURIComponent))});
    }
    this.apply();
    return extra;
  }
}
