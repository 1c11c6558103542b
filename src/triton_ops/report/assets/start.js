"use strict";
// The controls: what they say is the state, and every change draws anew what depends on it.

const PAGE = (() => {
  let run = null;
  let trials = [];
  let order = null;
  let shown = SHOWN;

  function sortBy(column) {
    order = order?.column === column ? (order.down ? null : { column, down: true }) : { column, down: false };
    drawTrials();
    byId("trials").querySelector(`button[data-column="${column}"]`).focus();
  }

  function head([name, column]) {
    const sorted = order?.column === column ? (order.down ? "descending" : "ascending") : null;
    return element("th", { scope: "col", class: typeof column === "string" ? "left" : null, "aria-sort": sorted },
      element("button", { type: "button", "data-column": column, onclick: () => sortBy(column) }, name));
  }

  function drawTrials() {
    const found = ordered(filtered(trials, byId("words").value, byId("fate").value), order);
    const left = run.all > run.rows.length ? `; the page holds the fastest ${run.rows.length} of ${run.all}` : "";
    byId("count").textContent = `${found.length} of ${run.rows.length} trials${left}`;
    replaced("trials",
      element("thead", {}, element("tr", {}, COLUMNS.map(head))),
      element("tbody", {}, found.slice(0, shown).map(trialRow)));
    byId("more").hidden = found.length <= shown;
    return found;
  }

  function filter() {
    shown = SHOWN;
    showParallel(run, drawTrials());
  }

  const drawHeat = () => showHeat(run, trials, Number(byId("heat-rows").value), Number(byId("heat-columns").value));

  function drawResources() {
    const chosen = COLUMNS.find(([, column]) => String(column) === byId("resource").value);
    showResources(run, trials, chosen[1], chosen[0]);
  }

  function prepareHeat() {
    const several = run.names.map((name, column) => [String(column), name]).filter(([column]) => run.values[column].length > 1);
    byId("heat-section").hidden = several.length < 2;
    if (several.length < 2) return;
    const by = (knob) => several.find(([, name]) => name === knob?.name)?.[0];
    for (const id of ["heat-rows", "heat-columns"]) options(id, several);
    byId("heat-rows").value = by(run.knobs[0]) ?? several[0][0];
    byId("heat-columns").value = by(run.knobs[1]) ?? several.find(([column]) => column !== byId("heat-rows").value)[0];
    if (byId("heat-rows").value === byId("heat-columns").value) byId("heat-columns").value = several.find(([column]) => column !== byId("heat-rows").value)[0];
    drawHeat();
  }

  function prepareResources() {
    const known = RESOURCES.filter(([, column]) => run.rows.some((row) => row[column] !== null));
    byId("resources-section").hidden = known.length === 0;
    if (known.length === 0) return;
    options("resource", known.map(([name, column]) => [String(column), name]));
    drawResources();
  }

  function draw() {
    order = null;
    byId("words").value = "";
    take();
    filter();
    showContents();
  }

  // A later state of the run takes the place of the one before; what was chosen on the page stays as it is.
  function renew(later) {
    const chosen = ["fate", "heat-rows", "heat-columns", "resource"].map((id) => [byId(id), byId(id).value]);
    const focused = document.activeElement?.dataset.column;
    DATA.runs[0] = later;
    take();
    for (const [select, value] of chosen) if ([...select.options].some((option) => option.value === value)) select.value = value;
    if (!byId("heat-section").hidden) drawHeat();
    if (!byId("resources-section").hidden) drawResources();
    showParallel(run, drawTrials());
    showContents();
    if (focused !== undefined) byId("trials").querySelector(`button[data-column="${focused}"]`)?.focus();
  }

  function take() {
    run = DATA.runs[Number(byId("run").value)];
    trials = prepared(run);
    document.title = `${pageState(run)}${run.title}: tuning report`;
    byId("title").textContent = `${run.title}, ${run.device}`;
    showVerdict(run);
    listed("environment", run.environment);
    options("fate", [["", "anything"], ...run.fates.map((fate) => [fate, fate])]);
    showPaste(run);
    showCurve(run, trials);
    showTies(run);
    showRoof(run, trials);
    showKnobs(run);
    showLists(run);
    prepareHeat();
    prepareResources();
  }

  // Charts are as wide as the page lets them be.
  function drawCharts() {
    showCurve(run, trials);
    showRoof(run, trials);
    if (!byId("resources-section").hidden) drawResources();
    showParallel(run, ordered(filtered(trials, byId("words").value, byId("fate").value), order));
  }

  let resized = 0;
  addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(drawCharts, 100); });
  options("run", DATA.runs.map((one, number) => [String(number), `${one.id} ${one.title}`]));
  byId("run-choice").hidden = DATA.runs.length < 2;
  byId("run").addEventListener("change", draw);
  byId("words").addEventListener("input", filter);
  byId("fate").addEventListener("change", filter);
  byId("filter").addEventListener("submit", (event) => event.preventDefault());
  byId("heat-rows").addEventListener("change", drawHeat);
  byId("heat-columns").addEventListener("change", drawHeat);
  byId("resource").addEventListener("change", drawResources);
  byId("more").addEventListener("click", () => { shown *= 4; drawTrials(); });
  showMap();
  showComparisons();
  draw();
  return { renew };
})();
