// Two or more runs side by side: where the time between their steps comes from, memory, timelines.
"use strict";

// Both forms of the comparison's JSON as rows with a number a run.
function comparedRows() {
  const c = DATA.comparison;
  const two = c.a !== undefined;
  return {
    time: c.time.map(r => ({kind: r.kind, what: r.what, of: two ? [r.a_ps, r.b_ps] : r.ps})),
    memory: c.memory.map(r => ({category: r.category, of: two ? [r.a_bytes, r.b_bytes] : r.bytes})),
    knobs: c.knobs || [],
  };
}

const causeName = r => (r.kind === "host" ? "host issue" : r.kind) + (r.what ? ` (${r.what})` : "");

// Bars from the step of run `a` to the step of run `b`: each begins where the one before ends.
function waterfall(time, a, b) {
  const steps = DATA.runs.map(p => p.run.step_time_ps);
  const parts = time.map(r => ({name: causeName(r), by: r.of[b] - r.of[a]})).filter(r => r.by).sort((x, y) => Math.abs(y.by) - Math.abs(x.by));
  let at = steps[a], most = Math.max(steps[a], steps[b]);
  const rows = [{name: DATA.runs[a].name, from: 0, to: steps[a], whole: true}];
  for (const p of parts) {
    rows.push({name: p.name, from: at, to: at + p.by, by: p.by});
    at += p.by;
    most = Math.max(most, at);
  }
  rows.push({name: DATA.runs[b].name, from: 0, to: steps[b], whole: true});
  window.drawn.waterfall = {start: steps[a], end: steps[b], bars: parts.map(p => p.by), reached: at};
  // From where the smallest bar begins to differ, so that small differences can be seen.
  const least = Math.min(...rows.filter(r => !r.whole).flatMap(r => [r.from, r.to]), steps[a], steps[b]);
  const zero = least > 0.8 * most ? least - (most - least) : 0, place = v => 100 * Math.max(0, v - zero) / (most - zero || 1);
  const bar = r => {
    const from = place(Math.min(r.from, r.to)), to = place(Math.max(r.from, r.to));
    const colour = r.whole ? GREY : r.by < 0 ? OKABE[2] : OKABE[5];
    return h("div", {class: "fall"}, h("i", {style: `left:${from}%;width:max(${to - from}%,2px);background:${colour}`}));
  };
  const sign = x => (x > 0 ? "+" : "−") + ps(Math.abs(x));
  return h("div", {}, barTable(`From ${ps(steps[a])} to ${ps(steps[b])}; the bars add up exactly${zero ? `; the axis begins at ${ps(zero)}` : ""}`,
    h("thead", {}, h("tr", {}, ...["cause", "time drawn", "difference", "ps"].map((t, i) => h("th", {scope: "col", class: i > 1 ? "n" : undefined}, t)))),
    h("tbody", {}, ...rows.map(r => h("tr", {}, h("th", {scope: "row"}, r.name), h("td", {}, bar(r)),
      h("td", {class: "n"}, r.whole ? ps(r.to) : sign(r.by)), h("td", {class: "n"}, h("data", {value: r.whole ? r.to : r.by}, String(r.whole ? r.to : r.by))))))),
  legend([["longer", OKABE[5]], ["shorter", OKABE[2]]]));
}

function waterfallPart(rows) {
  const runs = DATA.runs, body = h("div");
  let a = 0, b = runs.length - 1;
  const draw = () => body.replaceChildren(waterfall(rows.time, a, b));
  const names = runs.map((r, i) => [i, r.name]);
  const columns = [["cause", causeName], ...runs.map((p, i) => [p.name, r => r.of[i], plain])];
  part("waterfall", "From one step to the other", h("p", {}, "The time of the device that ends last, by cause. Exposed communication is the part with no compute under it."),
    runs.length > 2 ? h("div", {class: "bar"}, choice("from", names, a, v => { a = Number(v); draw(); }), choice("to", names, b, v => { b = Number(v); draw(); })) : null,
    body, tableBelow("time", "step time by cause, in ps", columns, () => [...rows.time, {kind: "in all", of: runs.map((_, i) => rows.time.reduce((s, r) => s + r.of[i], 0))}], true));
  draw();
}

function comparedMemory(rows) {
  const runs = DATA.runs, most = Math.max(...runs.map(p => Math.max(p.run.peak_memory_bytes, p.run.memory_capacity_bytes || 0)));
  const bar = (p, i) => {
    const used = rows.memory.filter(r => r.of[i] > 0), cap = p.run.memory_capacity_bytes;
    const colour = r => CATEGORY_COLOUR[r.category];
    return h("div", {}, h("h3", {}, `${p.name}: ${bytes(p.run.peak_memory_bytes)}${cap ? ` of ${bytes(cap)}` : ""}${p.run.fits === false ? ", does not fit" : ""}`),
      h("div", {class: "capacity", style: cap ? `--cap:${100 * cap / most}%` : ""}, h("div", {style: `width:${100 * p.run.peak_memory_bytes / most}%`}, stack(used.map(r => [r.category, r.of[i], colour(r)]), bytes))));
  };
  part("memory", "Memory at the peak", ...runs.map(bar), legend([...rows.memory.map(r => [r.category, CATEGORY_COLOUR[r.category]]), ["capacity", style("--bad")]]),
    tableBelow("memory", "peak memory by category, in bytes", [["category", r => r.category], ...runs.map((p, i) => [p.name, r => r.of[i], plain])], rows.memory, true));
}

function comparedTimelines() {
  const runs = DATA.runs, families = familyColours(runs.map(p => p.treeObject));
  const lanes = runs.flatMap(p => {
    const critical = p.timeline[0];
    return [{label: `${p.name} critical path`, tree: p.treeObject, root: p.path, colour: pathColour(p.treeObject), deviceOf: c => deviceOf(p, c)}, ...lanesOf(p.treeObject, critical, families, p.name + " ").slice(0, 6)];
  });
  const timeline = new Timeline("timeline", lanes, Math.max(...runs.map(p => p.run.step_time_ps)), describeSpan);
  part("timeline", "Timelines, aligned", h("p", {}, "Of each run the critical path, and the streams of the device that ends last. All lanes share one axis of time."),
    legend(familyLegend(families)), timeline.element, spansTable("timeline", timeline));
  timeline.show(0, timeline.end);
  window.drawn.timeline = {timeline};
}

function drawCompare() {
  const runs = DATA.runs, rows = comparedRows();
  for (const p of runs) p.treeObject = new Tree(p.tree);
  document.title = `Comparison: ${runs.map(p => p.name).join(", ")}`;
  document.getElementById("title").textContent = `${runs[0].run.title || runs[0].run.file}: ${runs.map(p => p.name).join(", ")}`;
  const first = runs[0].run, best = runs.reduce((x, y) => (y.run.step_time_ps < x.run.step_time_ps ? y : x));
  document.getElementById("answer").append(h("strong", {}, best.name), ` is fastest: ${ps(best.run.step_time_ps)} a step; ` + runs.filter(p => p !== best).map(p => `${p.name} takes ${ps(p.run.step_time_ps)}`).join(", ") + ".");
  const cell = (title, value, text) => [title, ...runs.map(p => text(value(p.run)))];
  const facts = [["step_time_ps", r => r.step_time_ps, plain], ["step time", r => r.step_time_ps, ps], ["how sure", r => r, interval], ["MFU", r => r.mfu, x => (x ? percent(x) : "unknown")],
    ["fits", r => r.fits, String], ["peak_memory_bytes", r => r.peak_memory_bytes, plain], ["peak memory", r => r.peak_memory_bytes, bytes], ["throughput", r => r.throughput_per_s, x => digits(x) + " " + first.throughput_unit + "/s"],
    ["bubble", r => r.bubble_fraction, percent], ["what binds", r => r, binds]].map(f => cell(...f));
  part("numbers", "Side by side", tableOf("the runs", [["result", r => r[0]], ...runs.map((p, i) => [p.name, r => r[i + 1]])], facts),
    rows.knobs.length ? tableOf("different settings", [["setting", r => r.name], [runs[0].name, r => r.a ?? "not set"], [runs[1].name, r => r.b ?? "not set"]], rows.knobs) : null);
  waterfallPart(rows);
  comparedMemory(rows);
  comparedTimelines();
  droppedPart(runs);
}
