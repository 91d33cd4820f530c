// A model under every schedule of its pipeline: time, bubble and memory of each.
"use strict";

function drawSchedules() {
  const all = DATA.schedules, ran = all.schedules.filter(s => s.step_time_ps).sort((a, b) => a.step_time_ps - b.step_time_ps);
  const name = s => `${s.schedule}${s.virtual_stages > 1 ? `, ${s.virtual_stages} chunks` : ""}${s.own ? " (the scenario's)" : ""}`;
  document.title = `Schedules of ${all.file}`;
  document.getElementById("title").textContent = `${all.file} under every schedule: ${all.stages} stages, ${all.microbatches} microbatches`;
  const fit = ran.filter(s => s.status === "ok"), answer = document.getElementById("answer");
  if (fit.length) answer.append(h("strong", {}, name(fit[0])), ` is fastest of those that fit: ${ps(fit[0].step_time_ps)} a step, ${bytes(fit[0].peak_memory_bytes)}.`);
  else answer.append("No schedule runs and fits.");
  const drawn = (title, value, text, colour) => bars(title, "schedule", ran.map(s => [name(s), value(s), text(value(s)), s.status === "ok" ? colour : GREY]));
  part("times", "Step time", h("p", {}, "Grey: the step does not fit in memory."), drawn("step time", s => s.step_time_ps, ps, OKABE[0]));
  part("bubbles", "Largest bubble of a stage", h("p", {}, "From the stage's first operation to its last: the time without compute."), drawn("bubble", s => s.span_bubble_ps, ps, OKABE[1]));
  part("memory", "Peak memory", drawn("peak memory", s => s.peak_memory_bytes, bytes, OKABE[2]));
  const number = key => [key, s => s[key] ?? null, plain];
  part("table", "All schedules", tableBelow("schedules", "every schedule", [["schedule", name], ["status", s => s.status], ...["step_time_ps", "span_bubble_ps", "bubble_fraction", "peak_memory_bytes", "missing_bytes", "peak_stage", "sent_bytes", "sent_gradient_bytes", "sent_most_bytes", "weight_copies"].map(number), ["refused", s => s.refused ?? ""]], all.schedules, true));
}
