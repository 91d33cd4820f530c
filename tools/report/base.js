// What all parts of a page share: elements, numbers as text, tables with their CSV, colours.
"use strict";

const DATA = JSON.parse(document.getElementById("data").textContent);

// ---- elements ----

// h("td", {class: "n"}, "text", child, …)
function h(tag, attributes, ...children) {
  const svg = ["svg", "rect", "line", "path", "g", "text", "title"].includes(tag) && tag !== "title";
  const e = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (typeof value === "function") e.addEventListener(key, value);
    else if (value !== undefined && value !== false) e.setAttribute(key, value === true ? "" : value);
  }
  e.append(...children.filter(c => c !== null && c !== undefined));
  return e;
}

// A part of the page with its entry in the navigation.
function part(id, title, ...children) {
  const section = h("section", {id, "aria-labelledby": id + "-title"}, h("h2", {id: id + "-title"}, title), ...children);
  document.getElementById("main").append(section);
  // The address of a sweep's page keeps its filters, so its links only scroll.
  const go = e => { if (DATA.columns) { e.preventDefault(); section.scrollIntoView(); section.querySelector("button, select, [tabindex]")?.focus({preventScroll: true}); } };
  document.getElementById("parts").append(h("li", {}, h("a", {href: "#" + id, click: go}, title)));
  return section;
}

function choice(label, options, value, change) {
  const select = h("select", {change: () => change(select.value)},
    ...options.map(o => h("option", {value: o[0], selected: String(o[0]) === String(value)}, o[1])));
  const outer = h("label", {}, label + " ", select);
  outer.select = select;
  return outer;
}

// ---- numbers ----

function digits(x, n = 4) {
  if (!isFinite(x)) return String(x);
  if (x === 0) return "0";
  const a = Math.abs(x);
  if (a >= 1e6 || a < 1e-4) return x.toPrecision(n).replace(/\.?0+e/, "e");
  return String(Number(x.toPrecision(n)));
}

function scaled(x, steps, unit) {
  for (const [size, prefix] of steps) if (Math.abs(x) >= size) return digits(x / size) + " " + prefix + unit;
  return digits(x) + " " + unit;
}

const TIME = [[1e12, "s"], [1e9, "ms"], [1e6, "us"], [1e3, "ns"]];
function ps(x) {
  for (const [size, unit] of TIME) if (Math.abs(x) >= size) return digits(x / size) + " " + unit;
  return digits(x) + " ps";
}
const BINARY = [[2 ** 40, "Ti"], [2 ** 30, "Gi"], [2 ** 20, "Mi"], [2 ** 10, "Ki"]];
const DECIMAL = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
const bytes = x => scaled(x, BINARY, "B");
const rate = x => scaled(x, DECIMAL, "B/s");
const flop = x => scaled(x, DECIMAL, "FLOP");
const percent = x => (100 * x).toFixed(1) + " %";
const plain = x => String(x);

// ---- tables ----

// A column is [title, value of a row, text of the value]; without a text the value is a text itself.
function csvOf(columns, rows) {
  const cell = v => (/[",\n]/.test(v) ? '"' + String(v).replace(/"/g, '""') + '"' : v);
  return [columns.map(c => cell(c[0])).join(","), ...rows.map(r => columns.map(c => cell(String(c[1](r) ?? ""))).join(","))].join("\n") + "\n";
}

function save(name, text, type = "text/csv") {
  const url = URL.createObjectURL(new Blob([text], {type}));
  h("a", {href: url, download: name}).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

const MOST_ROWS = 200;
function tableOf(caption, columns, rows, sum) {
  const cell = (c, r) => {
    const v = c[1](r);
    if (v === null || v === undefined) return h("td", {class: c[2] ? "n" : undefined}, "");
    return c[2] ? h("td", {class: "n"}, h("data", {value: v, title: v}, c[2](v))) : h("td", {}, v);
  };
  const body = h("tbody", {}, ...rows.slice(0, MOST_ROWS).map(r => h("tr", {}, ...columns.map(c => cell(c, r)))));
  if (sum) body.append(h("tr", {class: "sum"}, ...columns.map(c => cell(c, sum))));
  const more = rows.length > MOST_ROWS ? `; the first ${MOST_ROWS} of ${rows.length} rows, the CSV has all` : "";
  return h("div", {class: "scroll", tabindex: 0, role: "group", "aria-label": caption},
    h("table", {}, h("caption", {}, caption + more),
      h("thead", {}, h("tr", {}, ...columns.map(c => h("th", {scope: "col", class: c[2] ? "n" : undefined}, c[0])))), body));
}

// A table of bars, which scrolls on a narrow screen.
const barTable = (caption, ...children) => h("div", {class: "scroll", style: "max-height:none;border:0", tabindex: 0, role: "group", "aria-label": caption},
  h("table", {class: "waterfall"}, h("caption", {}, caption), ...children));

// Their simplest form: rows are [name, value, text, colour].
function bars(title, first, rows) {
  const most = Math.max(...rows.map(r => r[1]));
  return barTable(title, h("thead", {}, h("tr", {}, ...[first, "drawn", title].map((t, i) => h("th", {scope: "col", class: i > 1 ? "n" : undefined}, t)))),
    h("tbody", {}, ...rows.map(([name, value, text, colour]) => h("tr", {}, h("th", {scope: "row"}, name), h("td", {}, h("div", {class: "fall"}, h("i", {style: `left:0;width:${100 * Math.max(0, value) / (most || 1)}%;background:${colour}`}))), h("td", {class: "n"}, h("data", {value}, text))))));
}

// The table of a picture, closed, and its CSV. The table is made when it is opened.
function tableBelow(name, caption, columns, rowsOf, open = false) {
  const get = typeof rowsOf === "function" ? rowsOf : () => rowsOf;
  const details = h("details", {id: "table-" + name, open}, h("summary", {}, "Table: " + caption));
  let made = null;
  const make = () => {
    made?.remove();
    made = tableOf(caption, columns, get());
    details.append(made);
  };
  details.addEventListener("toggle", () => details.open && make());
  if (open) make();
  const box = h("div", {class: "below"}, details, h("button", {type: "button", "aria-label": "CSV: " + caption, click: () => save(name + ".csv", csvOf(columns, get()))}, "CSV"));
  box.refresh = () => details.open && make();
  return box;
}

// ---- colours ----

const OKABE = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442"];
const GREY = "#999999";
const KIND_COLOUR = {compute: OKABE[0], communication: OKABE[5], host: OKABE[6], idle: "#dddddd", start: OKABE[4], overhead: OKABE[3]};
const ITEM_COLOUR = {F: OKABE[0], B: OKABE[2], W: OKABE[1], R: OKABE[4]};
const CATEGORY_COLOUR = {
  weight: OKABE[0], gradient: OKABE[1], optimizer: OKABE[2], activation: OKABE[5], input: OKABE[4], buffer: OKABE[3],
  context: "#777777", communicator: "#aaaaaa", framework: "#555555", workspace: OKABE[6], unused: "#dddddd",
};
// The first names get the first colours; all others are grey.
function colours(names) {
  const map = new Map(names.map((n, i) => [n, OKABE[i] || GREY]));
  return name => map.get(name) || GREY;
}
// Black or white, whichever is easier to read on the colour (WCAG's relative luminance).
function inkOn(colour) {
  const [r, g, b] = [1, 3, 5].map(i => {
    const v = parseInt(colour.slice(i, i + 2), 16) / 255;
    return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
}
function legend(entries) {
  return h("ul", {class: "legend"}, ...entries.map(([name, colour]) => h("li", {class: colour ? undefined : "soft"}, colour ? h("i", {style: "background:" + colour}) : null, name)));
}
const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// One bar of parts in proportion; parts are [name, value, colour].
function stack(parts, text) {
  const whole = parts.reduce((sum, p) => sum + p[1], 0) || 1;
  return h("div", {class: "stack", role: "img", "aria-label": parts.map(p => `${p[0]} ${text(p[1])}`).join(", ")},
    ...parts.filter(p => p[1] > 0).map(p => h("span", {
      style: `flex:${p[1] / whole} 1 0;background:${p[2]};color:${inkOn(p[2])}`, title: `${p[0]}: ${text(p[1])}`,
    }, p[1] / whole > 0.08 ? p[0] : "")));
}

// ---- canvases ----

// A canvas as wide as its place, drawn again when the place or the colours change.
function surface(height, draw, attributes) {
  const canvas = h("canvas", {height, ...attributes});
  const state = {canvas, width: 0, height};
  state.draw = () => {
    const scale = window.devicePixelRatio || 1, width = canvas.clientWidth;
    if (!width) return;
    state.width = width;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(state.height * scale);
    canvas.style.height = state.height + "px";
    const c = canvas.getContext("2d");
    c.setTransform(scale, 0, 0, scale, 0, 0);
    c.font = "12px system-ui, 'DejaVu Sans', sans-serif";
    c.clearRect(0, 0, width, state.height);
    draw(c, width, state.height);
  };
  let asked = 0;
  state.redraw = () => { asked ||= requestAnimationFrame(() => { asked = 0; state.draw(); }); };
  new ResizeObserver(state.redraw).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", state.redraw);
  return state;
}

// What pictures show, for tests: name → numbers as drawn.
window.drawn = {};
