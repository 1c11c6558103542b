"use strict";
// The controls: what they say is the state, and every change draws the page anew.

(() => {
  const byId = (id) => document.getElementById(id);
  const RECORDED = "recording:";
  let found = null;
  let chosen = null;
  let rows = FIRST_ROWS;

  const options = (select, values) => replaced(select, values.map(([value, text]) => element("option", { value }, text)));
  const recorded = () => {
    const value = byId("workload").value;
    return value.startsWith(RECORDED) ? DATA.recordings[Number(value.slice(RECORDED.length))] : null;
  };
  const workload = () => workloadNamed(byId("workload").value);
  const extentInputs = () => [...byId("extents").querySelectorAll("input")];
  const asLines = (configs) => configs.map(MODEL.config_text).join("\n");

  function configsAsked() {
    const kind = byId("source").value;
    if (kind === "lesson") return { configs: DATA.lesson };
    return kind === "space" ? { configs: wholeSpace(workload().space) } : parsedConfigs(byId("own").value, workload());
  }

  function showExtents(shape) {
    replaced("extents", workload().extents.map((name, at) => element("label", {}, name,
      element("input", { type: "number", min: 1, step: 1, value: shape[at], id: `extent-${at}`, oninput: draw }))));
    options("axis", workload().extents.map((name, at) => [String(at), name]));
  }

  function draw() {
    const recording = recorded();
    for (const id of ["device", "dtype", "source"]) byId(id).disabled = Boolean(recording);
    byId("own-label").hidden = Boolean(recording) || byId("source").value !== "own";
    replaced("sides", recording ? `Recorded in ${recording.file}; ${recording.failed} further configs did not run.` : `${workload().sides}.`);
    const asked = recording ? {} : configsAsked();
    const extents = extentInputs().map((input) => (input.value.trim() === "" ? NaN : Number(input.value)));
    const problem = recording ? "" : extentProblem(workload(), extents) || asked.problem || "";
    replaced("problem", problem);
    if (problem) return;
    const before = chosen && MODEL.config_text(chosen.config);
    found = recording
      ? recordedAnswer(recording)
      : answer({ workload: workload(), extents, dtype: byId("dtype").value, device: byId("device").value, configs: asked.configs });
    chosen = found.standings.find((one) => MODEL.config_text(one.config) === before) || found.standings[0];
    show();
  }

  function show() {
    replaced("advice", found.advice);
    showPlaces(found, chosen, rows, choose);
    showWhy(found, chosen);
    showKnobs(found, chosen, turn);
    showPipeline(chosen);
    showShapes(found, Number(byId("axis").value));
    showRecording(found);
  }

  function choose(one) {
    chosen = one;
    show();
    byId("places").querySelector("tr.chosen button")?.focus();
  }

  // The chosen config with another value becomes the first of an own list.
  function turn(name, value) {
    const config = { ...chosen.config, [name]: value };
    const others = found.configs.slice(0, FIRST_ROWS).filter((other) => other !== chosen.config);
    byId("own").value = asLines([config, ...others]);
    byId("source").value = "own";
    chosen = { config };
    draw();
    byId("knobs").querySelector(`button[data-knob="${name}"][aria-pressed="true"]`)?.focus();
  }

  function changeWorkload() {
    rows = FIRST_ROWS;
    chosen = null;
    const recording = recorded();
    if (recording) replaced("extents");
    else showExtents(workload().shape);
    if (!recording && byId("source").value === "own" && parsedConfigs(byId("own").value, workload()).problem) byId("source").value = "lesson";
    draw();
  }

  function begin() {
    options("workload", DATA.workloads.map((one) => [one.name, one.title]));
    if (DATA.recordings.length) {
      const files = DATA.recordings.map((one, at) => element("option", { value: `${RECORDED}${at}` }, one.title));
      byId("workload").append(element("optgroup", { label: "Recorded" }, files));
    }
    options("device", Object.keys(DATA.devices).map((name) => [name, name]));
    const dtypes = new Set(Object.values(DATA.devices).flatMap((machine) => Object.keys(machine.mma_flops_per_cycle)));
    options("dtype", [...dtypes].map((name) => [name, name]));
    const { first } = DATA;
    byId("workload").value = first.workload;
    byId("device").value = first.device;
    byId("dtype").value = first.dtype;
    byId("own").value = asLines(first.configs);
    byId("source").value = JSON.stringify(first.configs) === JSON.stringify(DATA.lesson) ? "lesson" : "own";
    showExtents(first.shape);
    for (const id of ["device", "dtype", "source", "axis"]) byId(id).addEventListener("change", draw);
    byId("workload").addEventListener("change", changeWorkload);
    byId("own").addEventListener("input", draw);
    byId("more").addEventListener("click", () => {
      rows = Infinity;
      show();
      byId("places").querySelector("button")?.focus();
    });
    byId("controls").addEventListener("submit", (event) => event.preventDefault());
    draw();
  }

  begin();
})();
