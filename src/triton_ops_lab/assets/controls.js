"use strict";
// The controls: what they say is the state, and every change draws the page anew.

(() => {
  const RECORDED = "recording:";
  const served = DATA.grid === null;
  let ranking = null;
  let chosen = null;
  let rows = FIRST_ROWS;
  let questions = 0;

  const recording = () => {
    const value = byId("workload").value;
    return value.startsWith(RECORDED) ? DATA.recordings[Number(value.slice(RECORDED.length))] : null;
  };
  const workload = () => DATA.workloads.find((one) => one.name === byId("workload").value);
  const extentInputs = () => [...byId("extents").querySelectorAll("input")];

  function showExtents(shape) {
    const { sizes, extents } = workload();
    options("size", Object.entries(sizes).map(([name, size]) => [name, `${name}: ${size.join("x")}`]));
    replaced("extents", !served ? null : extents.map((name, at) => element("label", {}, name,
      element("input", { type: "number", min: 1, step: 1, value: shape[at], id: `extent-${at}`, oninput: () => draw() }))));
    options("axis", extents.map((name) => [name, name]));
  }

  // What is chosen stands behind the # of the address, so that it can be sent and is there after a reload.
  const KEPT = ["workload", "device", "size", "dtype", "source", "own"];

  function keepState() {
    const state = KEPT.filter((id) => !byId(id).disabled && byId(id).value !== "").map((id) => [id, byId(id).value]);
    if (!recording() && served) state.push(["extents", extentInputs().map((input) => input.value).join(",")]);
    history.replaceState(null, "", `#${new URLSearchParams(state)}`);
  }

  function takeState() {
    const state = new URLSearchParams(location.hash.slice(1));
    for (const id of KEPT) {
      const value = state.get(id);
      const known = value !== null && (byId(id).options === undefined || [...byId(id).options].some((one) => one.value === value && !one.disabled));
      if (known) byId(id).value = value;
      if (id === "workload" && known && !recording()) showExtents(workload().shape);
    }
    const extents = (state.get("extents") ?? "").split(",");
    if (!recording() && extents.length === extentInputs().length) extentInputs().forEach((input, at) => { input.value = extents[at]; });
  }

  // The ranking that a file has, or the one that its server calculates.
  async function asked(config) {
    if (!served) return DATA.grid[workload().name][byId("device").value][byId("size").value];
    const question = new URLSearchParams({
      workload: workload().name, extents: extentInputs().map((input) => input.value).join(","), dtype: byId("dtype").value,
      device: byId("device").value, source: byId("source").value, own: byId("source").value === "own" ? byId("own").value : "", config,
    });
    try {
      const answer = await fetch(`ranking.json?${question}`);
      if (answer.ok) return await answer.json();
      return { problem: `The server answered ${answer.status}.` };
    } catch {
      return { problem: "The server does not answer any more; start it again." };
    }
  }

  async function draw(config = chosen ? chosen.config : "") {
    const overlay = recording();
    for (const id of ["device", "size", "dtype", "source"]) byId(id).disabled = Boolean(overlay);
    byId("own-label").hidden = !served || Boolean(overlay) || byId("source").value !== "own";
    showLimits();
    keepState();
    const number = ++questions;
    byId("answer").setAttribute("aria-busy", "true");
    const answer = overlay || await asked(config);
    if (number !== questions) return; // another question came after this one
    byId("answer").setAttribute("aria-busy", "false");
    replaced("problem", answer.problem || "");
    if (answer.problem) return;
    ranking = answer;
    chosen = ranking.rows.find((one) => one.config === config) || ranking.rows[0];
    show();
  }

  function show() {
    replaced("sides", ranking.note);
    replaced("advice", ranking.advice);
    showPlaces(ranking, chosen, rows, choose);
    showWhy(chosen);
    showKnobs(ranking, served ? turn : null);
    showPipeline(ranking);
    showShapes(ranking, byId("axis").value);
    showRecording(ranking);
  }

  // What the file does not have, and the command that has it.
  function showLimits() {
    if (served || !DATA.lesson) return; // a TARGET is not served
    const name = recording() ? DATA.first.workload : workload().name;
    const command = `triton-ops simulate ${name} --gpu "${byId("device").value}" --serve`;
    replaced("limits", `This file has the sizes above in ${DATA.first.dtype}, each with the same configs. For other sizes, dtypes and configs, type `,
      element("code", {}, command), " and open the page that it serves.");
  }

  async function choose(one) {
    chosen = one;
    if (served && !recording()) await draw();
    else show();
    byId("places").querySelector("tr.chosen button")?.focus();
  }

  // The config whose knobs are shown becomes, with another value, the first of an own list.
  async function turn(name, value) {
    const parts = ranking.chosen.split(" ");
    const at = parts.findIndex((part) => part.startsWith(`${name}=`));
    parts.splice(at < 0 ? parts.length : at, 1, `${name}=${value}`);
    const config = parts.join(" ");
    const others = ranking.rows.slice(0, FIRST_ROWS).map((one) => one.config).filter((other) => other !== ranking.chosen);
    byId("own").value = [config, ...others].join("\n");
    byId("source").value = "own";
    await draw(config);
    byId("knobs").querySelector(`button[data-knob="${name}"][aria-pressed="true"]`)?.focus();
  }

  function changeWorkload() {
    rows = FIRST_ROWS;
    chosen = null;
    if (byId("source").value === "own") byId("source").value = "lesson"; // the list is of another workload's configs
    if (recording()) replaced("extents");
    else showExtents(workload().shape);
    draw();
  }

  function begin() {
    options("workload", DATA.workloads.map((one) => [one.name, one.title]));
    if (DATA.recordings.length) {
      const files = DATA.recordings.map((one, at) => element("option", { value: `${RECORDED}${at}` }, one.title));
      byId("workload").append(element("optgroup", { label: "Recorded" }, files));
    }
    options("device", DATA.devices.map((name) => [name, name]));
    byId("device").append(element("optgroup", { label: "No model of the architecture" },
      DATA.silent_devices.map((name) => element("option", { value: name, disabled: true }, name))));
    options("dtype", DATA.dtypes.map((name) => [name, name]));
    byId("lesson").textContent = `${DATA.lesson} textbook configs`;
    for (const id of ["dtype-label", "source-label"]) byId(id).hidden = !served;
    byId("size-label").hidden = served;
    const { first } = DATA;
    for (const id of ["workload", "device", "dtype", "own"]) byId(id).value = first[id];
    byId("source").value = first.own ? "own" : "lesson";
    showExtents(first.shape);
    byId("size").value = first.size;
    if (DATA.on_recording) byId("workload").value = `${RECORDED}0`;
    takeState();
    if (recording()) replaced("extents");
    for (const id of ["device", "size", "dtype", "source"]) byId(id).addEventListener("change", () => draw());
    byId("axis").addEventListener("change", show);
    byId("workload").addEventListener("change", changeWorkload);
    byId("own").addEventListener("input", () => draw());
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
