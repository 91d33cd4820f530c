// The report of a sweep: filters, parallel coordinates, a heat map of two knobs, two results against
// each other with the Pareto front, the rows, and the command that runs a row again.
"use strict";

// Places of a column's values, numbers ascending, then texts.
function sortedValues(c) {
  const key = v => (typeof v === "number" ? [0, v] : [1, String(v)]), before = (p, q) => p[0] - q[0] || (p[1] < q[1] ? -1 : p[1] > q[1] ? 1 : 0);
  return c.values.map((v, i) => i).sort((i, k) => before(key(c.values[i]), key(c.values[k])));
}

class Sweep {
  constructor(data, rows) {
    this.data = data;
    this.rows = rows;
    const {metrics, knobs} = rows, named = name => metrics.find(m => m.name === name);
    this.objective = named("throughput") || named("step_time_ps") || metrics[0];
    this.x = named("peak_memory") || metrics[0];
    this.y = this.objective;
    this.a = knobs.find(k => /(^|\.)tp$/.test(k.name)) || knobs[0];
    this.b = knobs.find(k => /(^|\.)pp$/.test(k.name) && k !== this.a) || knobs.find(k => k !== this.a) || this.a;
    this.parts = [];
  }

  // ---- the address ----

  restore() {
    const extra = this.rows.fromHash(location.hash);
    for (const key of ["objective", "x", "y", "a", "b"]) if (this.rows.byName.has(extra[key])) this[key] = this.rows.byName.get(extra[key]);
  }

  keep() {
    const hash = this.rows.toHash({objective: this.objective.name, x: this.x.name, y: this.y.name, a: this.a?.name ?? "", b: this.b?.name ?? ""});
    history.replaceState(null, "", hash);
  }

  // After a change of filters or axes: the rows that are shown, then every picture.
  update() {
    this.rows.apply();
    this.keep();
    for (const draw of this.parts) draw();
    window.drawn.shown = this.rows.count;
  }

  // ---- a row ----

  select(row) {
    const hash = this.rows.byName.get("hash").at(row), command = `distsim replay ${hash} --from ${/[^\w./-]/.test(this.data.table) ? `'${this.data.table}'` : this.data.table}`;
    const fields = this.rows.columns.filter(c => !c.alias && !["hash", "sweep"].includes(c.name) && c.at(row) !== null && c.at(row) !== "");
    this.detail.replaceChildren(h("h3", {}, `Row ${row + 1}`), this.data.table ? h("div", {class: "bar"}, h("code", {id: "replay"}, command), copyButton(() => command)) : h("p", {class: "soft"}, "With -o FILE.csv the rows stay, and distsim replay runs this one again."),
      h("dl", {}, ...fields.flatMap(c => [h("dt", {}, c.name), h("dd", {}, h("data", {value: c.at(row)}, typeof c.at(row) === "number" ? c.text(c.at(row)) : String(c.at(row))))])));
    window.drawn.selected = row;
  }

  // ---- parts ----

  filtersPart() {
    const {rows} = this, count = h("output", {id: "count"}), boxes = h("div", {class: "filters"});
    const draw = () => {
      count.textContent = `${rows.count} of ${rows.n} rows pass the filters`;
      if (boxes.contains(document.activeElement)) return; // a hand is on them
      boxes.replaceChildren(...rows.knobs.concat(rows.byName.get("status").isSame ? [] : [rows.byName.get("status")]).filter(c => c.values).map(c => this.valuesFilter(c)), ...rows.metrics.slice(0, 8).map(c => this.rangeFilter(c)));
    };
    part("filters", "Filters", h("p", {}, "The address of this page keeps the filters: a link shows the same rows."),
      h("div", {class: "bar"}, count, h("button", {type: "button", id: "clear", click: () => { rows.filters.clear(); document.activeElement.blur(); this.update(); }}, "Clear all"),
        choice("Best by", rows.metrics.map(m => [m.name, m.name]), this.objective.name, v => { this.objective = rows.byName.get(v); this.parallel.objective = this.objective; this.update(); })),
      h("details", {open: rows.n < 2000}, h("summary", {}, "Values and ranges"), boxes));
    this.parts.push(draw);
    this.drawFilters = draw;
  }

  valuesFilter(c) {
    const f = this.rows.filters.get(c), set = v => {
      const all = new Set(c.values.map(String)), now = this.rows.filters.get(c)?.values || new Set(all);
      if (now.has(v)) now.delete(v); else now.add(v);
      if (now.size === all.size) this.rows.filters.delete(c); else this.rows.filters.set(c, {values: now});
      this.update();
    };
    return h("fieldset", {}, h("legend", {}, c.name), ...sortedValues(c).map(i => String(c.values[i])).map(v => h("label", {}, h("input", {type: "checkbox", "data-column": c.name, value: v, checked: !f || f.values?.has(v), change: () => set(v)}), v || "none")));
  }

  rangeFilter(c) {
    const f = this.rows.filters.get(c), limit = (key, none, name) => h("label", {}, name + " ", h("input", {type: "text", inputmode: "decimal", size: 11, "data-column": c.name, value: f && isFinite(f[key]) ? f[key] : "", change: e => {
      const now = {low: -Infinity, high: Infinity, ...this.rows.filters.get(c)};
      now[key] = e.target.value.trim() === "" || isNaN(e.target.value) ? none : Number(e.target.value);
      if (now.low === -Infinity && now.high === Infinity) this.rows.filters.delete(c); else this.rows.filters.set(c, now);
      this.update();
    }}));
    return h("fieldset", {}, h("legend", {}, c.name), limit("low", -Infinity, "from"), limit("high", Infinity, "to"));
  }

  parallelPart() {
    const {rows} = this, axes = [...rows.knobs.slice(0, 8), ...["peak_memory", "mfu", "bubble", "step_time_ps", "throughput"].map(n => rows.metrics.find(m => m.name === n)).filter(Boolean)];
    this.parallel = new Parallel(rows, axes, this.objective);
    this.parallel.onfilter = () => { this.update(); this.drawFilters(); };
    part("parallel", "Parallel coordinates", h("p", {}, "A line a candidate that runs and fits, from knobs to results; best fifth to last fifth by the objective:"),
      legend(["best fifth", "second", "third", "fourth", "last"].map((n, i) => [n, RAMP[i]])), this.parallel.element);
    this.parts.push(() => this.parallel.redraw());
  }

  heatPart() {
    const {rows} = this, body = h("div");
    if (rows.knobs.length < 2) return;
    const names = rows.knobs.map(k => [k.name, k.name]);
    part("heat", "Two knobs", h("p", {}, "Each cell is the best row of its two values; a click keeps these rows alone."),
      h("div", {class: "bar"}, choice("Down", names, this.a.name, v => { this.a = rows.byName.get(v); this.update(); }), choice("across", names, this.b.name, v => { this.b = rows.byName.get(v); this.update(); })), body);
    this.parts.push(() => body.replaceChildren(this.heat()));
  }

  heat() {
    const {rows, a, b, objective: m} = this, x = m.numbers, best = new Map(), better = (i, k) => (m.more ? x[i] > x[k] : x[i] < x[k]);
    for (let i = 0; i < rows.n; i++) {
      if (!rows.shown[i] || !rows.isOk(i) || x[i] !== x[i]) continue;
      const key = a.codes[i] * 64 + b.codes[i];
      if (!best.has(key) || better(i, best.get(key))) best.set(key, i);
    }
    const sorted = sortedValues;
    const values = [...best.values()].map(i => x[i]), low = Math.min(...values), high = Math.max(...values);
    const cell = (p, q) => {
      const i = best.get(p * 64 + q);
      if (i === undefined) return h("td", {class: "soft"}, "–");
      const share = high > low ? (m.more ? (x[i] - low) / (high - low) : (high - x[i]) / (high - low)) : 1;
      const mix = k => Math.round([230, 240, 250][k] + ([0, 90, 150][k] - [230, 240, 250][k]) * share), colour = "#" + [0, 1, 2].map(k => mix(k).toString(16).padStart(2, "0")).join("");
      return h("td", {style: `background:${colour};color:${inkOn(colour)}`}, h("button", {type: "button", style: `color:${inkOn(colour)}`, "data-row": i, "aria-label": `${a.name} ${a.values[p]}, ${b.name} ${b.values[q]}: ${m.text(x[i])}`, click: () => {
        rows.filters.set(a, {values: new Set([String(a.values[p])])});
        rows.filters.set(b, {values: new Set([String(b.values[q])])});
        this.update();
        this.drawFilters();
        this.select(i);
      }}, h("data", {value: x[i]}, m.text(x[i]))));
    };
    window.drawn.heat = [...best].map(([key, i]) => [a.values[key >> 6], b.values[key & 63], x[i]]);
    return h("div", {class: "scroll", tabindex: 0, role: "group", "aria-label": "Two knobs"}, h("table", {class: "heat"}, h("caption", {}, `Best ${m.name} by ${a.name} (down) and ${b.name} (across)`),
      h("thead", {}, h("tr", {}, h("th", {scope: "col"}, `${a.name} by ${b.name}`), ...sorted(b).map(q => h("th", {scope: "col"}, String(b.values[q]))))),
      h("tbody", {}, ...sorted(a).map(p => h("tr", {}, h("th", {scope: "row"}, String(a.values[p])), ...sorted(b).map(q => cell(p, q)))))));
  }

  scatterPart() {
    const {rows} = this, place = h("div", {role: "img", "aria-label": "Two results of all rows, with the Pareto front"}), names = rows.metrics.map(m => [m.name, m.name]);
    let front = [];
    const table = tableBelow("front", "the Pareto front", [["row", r => r + 1, plain], ["x", r => this.x.at(r), v => this.x.text(v)], ["y", r => this.y.at(r), v => this.y.text(v)], ...rows.knobs.map(k => [k.name, r => k.at(r) ?? ""]), ["hash", r => rows.byName.get("hash").at(r)]], () => front, false);
    const options = {height: 400, shown: i => rows.shown[i] && rows.isOk(i), lines: [], select: i => this.select(i)};
    let plot = null, was = "";
    const draw = () => {
      front = rows.front(this.x, this.y);
      options.lines = [{points: front.map(i => [this.x.numbers[i], this.y.numbers[i]]), colour: OKABE[5]}];
      const now = this.x.name + " " + this.y.name;
      if (now !== was) {
        place.replaceChildren();

        const inner = h("div");
        place.append(inner);
        plot = scatter(inner, this.x.numbers, this.y.numbers, {...options, get lines() { return options.lines; }, x: {title: this.x.name, text: this.x.text, kind: this.x.kind}, y: {title: this.y.name, text: this.y.text, kind: this.y.kind}});
        plot.draw();
        was = now;
      } else plot.plot?.redraw(false);
      table.refresh();
      window.drawn.front = front;
    };
    part("scatter", "Two results against each other", h("p", {}, "A point a row that runs and fits; the line is the Pareto front. Click a point for its row."),
      h("div", {class: "bar"}, choice("Across", names, this.x.name, v => { this.x = rows.byName.get(v); this.update(); }), choice("up", names, this.y.name, v => { this.y = rows.byName.get(v); this.update(); })),
      h("figure", {}, place), table);
    this.parts.push(draw);
  }

  rowsPart() {
    const {rows} = this, body = h("div");
    this.detail = h("div", {class: "panel", "aria-live": "polite", id: "detail-row"}, h("p", {class: "soft"}, "Choose a row, a point or a cell: its values and the command that runs it again appear here."));
    const columns = () => [["row", r => h("button", {type: "button", "data-row": r, "aria-label": `Row ${r + 1}`, click: () => this.select(r)}, String(r + 1))], ...rows.columns.filter(c => !c.isSame && (c.isKnob || (!c.alias && c.kind !== "COUNT")) && !["sweep", "source", "settings", "candidate"].includes(c.name)).map(c => [c.name, r => c.at(r), c.kind in UNIT_TEXT && c.kind !== "text" ? c.text : undefined])];
    const shownRows = () => { const out = []; for (let i = 0; i < rows.n; i++) if (rows.shown[i]) out.push(i); return out; };
    const all = () => rows.columns.map(c => [c.name, r => c.at(r)]);
    part("rows", "Rows", h("div", {class: "bar"}, h("button", {type: "button", click: () => save("rows.csv", csvOf(all(), shownRows()))}, "CSV: rows that pass the filters")), this.detail, body);
    this.parts.push(() => {
      const best = rows.best(this.objective, MOST_ROWS), others = best.length < MOST_ROWS ? shownRows().filter(i => !rows.isOk(i)).slice(0, MOST_ROWS - best.length) : [];
      body.replaceChildren(tableOf(`the best ${best.length} rows by ${this.objective.name}${others.length ? `, then ${others.length} that do not run or fit` : ""}`, columns(), [...best, ...others]));
    });
  }

  draw() {
    this.restore();
    this.filtersPart();
    this.parallelPart();
    this.heatPart();
    this.scatterPart();
    this.rowsPart();
    this.update();
    addEventListener("hashchange", () => { this.restore(); this.update(); this.drawFilters(); });
  }
}

// `shown` is selected where the browser gives no clipboard; without it the element before the button.
function copyButton(text, shown) {
  const button = h("button", {type: "button", class: "copy", click: async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = "copied";
    } catch { // no permission from disk: select the text instead
      getSelection().selectAllChildren(shown || button.previousElementSibling);
      button.textContent = "selected: press Ctrl+C";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  }}, "Copy");
  return button;
}

function drawSweep() {
  const rows = new Rows(DATA), sweep = new Sweep(DATA, rows);
  document.title = `Sweep ${DATA.file}: ${rows.n} rows`;
  document.getElementById("title").textContent = `Sweep of ${DATA.file}: ${rows.n} rows`;
  window.drawn.sweep = sweep;
  if (!rows.metrics.length) { // no row has a result, or there is one row
    document.getElementById("answer").append(Array.from({length: rows.n}, (_, i) => i).some(rows.isOk)
      ? `No two candidates have different results: ${rows.n} rows.` : `No candidate runs and fits, of ${rows.n}; status and reason say why. −1 stands for no result.`);
    const all = Array.from({length: rows.n}, (_, i) => i);
    part("rows", "Rows", tableBelow("rows", "all rows", rows.columns.filter(c => !c.alias).map(c => [c.name, r => c.at(r)]), all, true));
    return;
  }
  const best = rows.best(sweep.objective, 1)[0], ok = rows.best(sweep.objective).length;
  const knobs = best === undefined ? "" : rows.knobs.map(k => `${k.name.replace(/^strategy\./, "")}=${k.at(best)}`).join(" ");
  document.getElementById("answer").append(...(best === undefined ? ["No candidate runs and fits."] : [h("strong", {}, `${sweep.objective.name} ${sweep.objective.text(sweep.objective.at(best))}`), ` is best: ${knobs}; ${ok} of ${rows.n} candidates run and fit.`]));
  if (!DATA.exact) document.getElementById("answer").append(h("span", {class: "soft"}, " Rates and shares have six digits here; the table has all."));
  sweep.draw();
}
