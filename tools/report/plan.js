// The report of a plan: the best plans, why, what each knob costs, the launch command, and the rows.
"use strict";

// For each knob, the best row with each of its values, beside the best of all.
function knobCosts(rows, metric) {
  const x = metric.numbers, best = rows.best(metric, 1)[0];
  return rows.knobs.map(knob => {
    const of = new Map();
    for (const i of rows.order(metric)) if (!of.has(knob.codes[i])) of.set(knob.codes[i], i);
    return {knob, values: sortedValues(knob).filter(v => of.has(v)).map(v => ({text: String(knob.values[v]), row: of.get(v), figure: x[of.get(v)], ratio: metric.more ? x[best] / x[of.get(v)] : x[of.get(v)] / x[best]}))};
  }).filter(k => k.values.length > 1);
}

function knobsPart(rows, metric) {
  const all = knobCosts(rows, metric);
  if (!all.length) return;
  const flat = all.flatMap(k => k.values.map(v => ({knob: k.knob.name, ...v}))), most = Math.max(...flat.map(v => v.ratio));
  const bar = v => h("div", {class: "fall"}, h("i", {style: `left:0;width:${100 * v.ratio / most}%;background:${v.ratio === 1 ? OKABE[2] : OKABE[0]}`}));
  part("knobs", "What each knob costs", h("p", {}, `The best ${metric.name} found with each value, against the best plan; values without a simulated candidate are left out.`),
    barTable("Best figure by knob and value",
      h("thead", {}, h("tr", {}, ...["knob and value", "drawn", metric.name, "more"].map((t, i) => h("th", {scope: "col", class: i > 1 ? "n" : undefined}, t)))),
      h("tbody", {}, ...flat.map(v => h("tr", {}, h("th", {scope: "row"}, `${v.knob.replace(/^strategy\./, "")} ${v.text}`), h("td", {}, bar(v)), h("td", {class: "n"}, h("data", {value: v.figure}, metric.text(v.figure))), h("td", {class: "n"}, v.ratio === 1 ? "best" : "+" + percent(v.ratio - 1)))))));
  window.drawn.knobs = flat.map(v => [v.knob, v.text, v.figure]);
}

function plansPart(plan) {
  const names = plan.best.length ? Object.keys(plan.best[0].values) : [];
  part("plans", "The best plans", tableOf("best first", [["plan", p => plan.best.indexOf(p) + 1, plain], ...names.map(n => [n, p => p.values[n]]), ["step_time_ps", p => p.step_time_ps, plain], ["step time", p => p.step_time_ps, ps],
    ["throughput", p => p.throughput_per_s, x => digits(x) + " /s"], ["MFU", p => p.mfu, percent], ["peak memory", p => p.peak_memory_bytes, bytes], ["of", p => p.memory_capacity_bytes, bytes]], plan.best));
}

function launchPart(plan) {
  const text = plan.launch.join("\n"), block = h("pre", {id: "launch-text"}, text);
  part("launch", "Launch", block, h("div", {class: "bar"}, copyButton(() => text, block), h("button", {type: "button", click: () => save("plan.dir", plan.scenario, "text/plain")}, "Save the plan as a scenario")));
}

function drawPlan() {
  const plan = DATA.plan, best = plan.best[0];
  document.title = `Plan: ${plan.model} on ${plan.devices_of_topology} × ${plan.device}`;
  document.getElementById("title").textContent = `${plan.model} on ${plan.devices_of_topology} × ${plan.device}, ${plan.framework}, ${plan.dtype}, ${plan.batch} samples${plan.seq ? ` of ${plan.seq} tokens` : ""}`;
  const answer = document.getElementById("answer");
  if (!best) {
    answer.append(h("strong", {class: "bad"}, "Nothing fits"), `: ${plan.candidates} of ${plan.space} candidates were looked at.`);
    return;
  }
  const values = Object.entries(best.values).map(([k, v]) => `${k}=${v}`).join(" ");
  answer.append(h("strong", {}, h("data", {value: best.step_time_ps, id: "step"}, ps(best.step_time_ps))), ` a step, `, h("strong", {}, best.mfu ? "MFU " + percent(best.mfu) : ""), `; `, h("strong", {class: "good"}, `fits, ${bytes(best.peak_memory_bytes)}${best.memory_capacity_bytes ? ` of ${bytes(best.memory_capacity_bytes)}` : ""}`),
    `; ${plan.what_binds.split(":")[0]} binds. ${values}. ` + (plan.complete && plan.method === "bound" ? "Bounds prove that no other of " : "The best found of ") + `${plan.space} candidates${plan.complete && plan.method === "bound" ? " is better" : ""}.`);
  plansPart(plan);
  const rows = new Rows(DATA), sweep = new Sweep(DATA, rows);
  if (rows.metrics.length) knobsPart(rows, rows.metrics.find(m => m.name === "step_time_ps") || sweep.objective);
  launchPart(plan);
  part("why", "Why", h("pre", {}, plan.why.join("\n")));
  if (!rows.metrics.length) return;
  window.drawn.sweep = sweep;
  sweep.draw();
}

// Plans on several kinds of machines: the object of `plan --cluster --json`.
function drawKinds() {
  const plan = DATA.kinds, best = plan.plans[0], answer = document.getElementById("answer");
  document.title = `Plan: ${plan.model} on several kinds of machines`;
  document.getElementById("title").textContent = `${plan.model}, ${plan.batch} samples a step, on several kinds of machines`;
  if (!best) {
    answer.append(h("strong", {class: "bad"}, "Nothing fits"), `: ${plan.structures} structures were estimated, ${plan.simulated} simulated.`);
    return;
  }
  answer.append(h("strong", {}, h("data", {value: best.step_time_ps, id: "step"}, ps(best.step_time_ps))), ` a step: ${best.plan}. The best by ${plan.objective} of ${plan.simulated} simulated plans, out of ${plan.structures} structures that were estimated.`);
  const priced = plan.plans.some(p => p.cost !== undefined), powered = plan.plans.some(p => p.energy !== undefined);
  const columns = [["step_time_ps", p => p.step_time_ps, plain], ["step time", p => p.step_time_ps, ps]];
  if (priced) columns.push(["$ a million", p => p.cost, digits], ["$ with preemptions", p => p.expected, digits]);
  if (powered) columns.push(["J, at most", p => p.energy, digits]);
  columns.push(["peak memory", p => p.peak_memory_bytes, bytes], ["plan", p => p.plan], ["strategy", p => p.strategy]);
  part("plans", "The best plans", tableOf("best first", columns, plan.plans));
  if (plan.front) part("front", "Time and $", tableOf("Pareto front among the simulated plans", columns, plan.front));
  if (plan.peers) part("peers", "Other planners' methods", tableOf("the fastest of each method's best plans, simulated alike", [["method", p => p.method], ...columns], Object.entries(plan.peers).map(([method, p]) => ({method, ...p}))));
  const block = h("pre", {}, plan.scenario);
  part("scenario", "The plan as a scenario", block, h("div", {class: "bar"}, copyButton(() => plan.scenario, block), h("button", {type: "button", click: () => save("plan.dir", plan.scenario, "text/plain")}, "Save the plan as a scenario")));
}
