// The program after each pass, beside the program before it as a difference by lines.
"use strict";

// Lines of both in order: [sign, line], by the longest common subsequence (Myers, "An O(ND) difference
// algorithm and its variations", 1986); null where more than `most` lines differ.
function diff(a, b, most = 3000) {
  let head = 0, tail = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const x = a.slice(head, a.length - tail), y = b.slice(head, b.length - tail), trace = [];
  let v = new Map([[1, 0]]), found = x.length + y.length === 0;
  for (let d = 0; !found; d++) {
    if (d > most) return null;
    trace.push(v);
    const next = new Map();
    for (let k = -d; k <= d; k += 2) {
      let i = k === -d || (k !== d && (v.get(k - 1) ?? -1) < (v.get(k + 1) ?? -1)) ? v.get(k + 1) : v.get(k - 1) + 1;
      while (i < x.length && i - k < y.length && x[i] === y[i - k]) i++;
      next.set(k, i);
      if (i >= x.length && i - k >= y.length) found = true;
    }
    v = next;
  }
  const out = [];
  let i = x.length, j = y.length;
  for (let d = trace.length - 1; d >= 0; d--) {
    const u = trace[d], k = i - j, down = k === -d || (k !== d && (u.get(k - 1) ?? -1) < (u.get(k + 1) ?? -1));
    const k1 = down ? k + 1 : k - 1, i1 = d === 0 ? 0 : u.get(k1), j1 = d === 0 ? 0 : i1 - k1;
    const si = down ? i1 : i1 + 1, sj = d === 0 ? 0 : si - k;
    while (i > (d === 0 ? 0 : si) && j > sj) { i--; j--; out.push([" ", x[i]]); }
    if (d === 0) break;
    out.push(down ? ["+", y[j1]] : ["-", x[i1]]);
    i = i1;
    j = j1;
  }
  return [...a.slice(0, head).map(l => [" ", l]), ...out.reverse(), ...a.slice(a.length - tail).map(l => [" ", l])];
}

function diffElement(lines, changes) {
  const AROUND = 3, near = new Uint8Array(changes.length);
  changes.forEach((c, i) => { if (c[0] !== " ") near.fill(1, Math.max(0, i - AROUND), i + AROUND + 1); });
  const parts = [];
  let skipped = 0;
  const flush = () => { if (skipped) parts.push(h("span", {class: "skipline"}, `… ${skipped} equal lines`)); skipped = 0; };
  changes.forEach(([sign, line], i) => {
    if (!near[i]) { skipped++; return; }
    flush();
    parts.push(sign === " " ? "  " + lines[line] + "\n" : h(sign === "+" ? "ins" : "del", {}, `${sign} ${lines[line]}`));
  });
  flush();
  return h("pre", {}, ...parts);
}

function programPart(page) {
  const {lines, passes} = page.programs;
  if (!passes.length) return;
  const view = h("div", {class: "diff", tabindex: 0, role: "group", "aria-label": "Program", id: "program-view"});
  let pass = passes.length - 1; // the last that changed something
  while (pass > 0 && String(passes[pass][1]) === String(passes[pass - 1][1])) pass--;
  let whole = passes.length === 1;
  const button = h("button", {type: "button", id: "program-whole", "aria-pressed": String(whole), click: () => { whole = !whole; show(); }}, "whole text");
  const text = i => passes[i][1].map(l => lines[l]).join("\n") + "\n";
  const show = () => {
    button.setAttribute("aria-pressed", String(whole));
    const changes = !whole && pass > 0 ? diff(passes[pass - 1][1], passes[pass][1]) : null;
    view.replaceChildren(changes ? diffElement(lines, changes) : h("pre", {}, text(pass)));
  };
  const name = i => (i ? `after ${passes[i][0]}` : "source");
  part("program", "The program after each pass", h("p", {}, "Each pass turns a program into a program; + and − are the lines that it writes and removes."),
    h("div", {class: "bar"}, choice("Program", passes.map((p, i) => [i, `${name(i)}, ${p[1].length} lines`]), pass, v => { pass = Number(v); show(); }), button,
      h("button", {type: "button", click: () => save(`${passes[pass][0]}.dir`, text(pass), "text/plain")}, "Save this program")), view);
  show();
  window.drawn.program = {diff, text};
}
