"use strict";
// The parts of the page that show one run, each drawn from the run alone.

const LINES = 200;
const DOTS = 1500;

const cells = (kind, texts) => texts.map((text) => element(kind, {}, text));
const show = (id, shown) => { document.getElementById(id).hidden = !shown; };

function listed(id, facts) {
  replaced(id, Object.entries(facts).flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)]));
}

// A head whose button sorts the rows of its table by the figures or texts of its column.
function sortableHead(text) {
  if (text === "") return element("td", {});
  return element("th", { scope: "col", class: "left" }, element("button", { type: "button", onclick: (event) => sortRows(event.target.closest("th")) }, text));
}

function sortRows(head) {
  const down = head.getAttribute("aria-sort") === "ascending";
  for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const body = head.closest("table").tBodies[0];
  const text = (row) => row.cells[head.cellIndex].textContent;
  const figure = (row) => (/^[-+]?\d/.test(text(row)) ? Number.parseFloat(text(row)) : Infinity);
  const sign = down ? -1 : 1;
  body.append(...[...body.rows].sort((one, other) => {
    const [a, b] = [figure(one), figure(other)];
    return sign * (a === b ? text(one).localeCompare(text(other), undefined, { numeric: true }) : a < b ? -1 : 1);
  }));
}

function filledTable(table, header, rows) {
  table.replaceChildren();
  return put(table, element("thead", {}, element("tr", {}, header.map(sortableHead))), element("tbody", {}, rows));
}

// What one wants to know first: the gain, how far to rely on it, and the winner.
function showVerdict(run) {
  const { gain, confidence, ...winner } = run.verdict;
  const [level, ...why] = (confidence ?? "").split(": ");
  const [ratio, ...rest] = (gain ?? "").split(" ");
  replaced("verdict",
    gain ? element("p", { class: "gain" }, element("strong", {}, ratio), ` ${rest.join(" ")}`) : null,
    confidence ? element("p", {}, element("span", { class: `badge ${level}` }, level === "unproven" ? level : `confidence ${level}`), why.length ? ` ${why.join(": ")}` : "") : null,
    ...Object.entries(winner).map(([name, config]) => element("p", {}, `${name} `, element("strong", { class: "mono" }, config))));
  const first = ["kernel", "device", ...Object.keys(run.verdict)]; // the title has kernel and device
  listed("facts", Object.fromEntries(Object.entries(run.facts).filter(([name]) => !first.includes(name))));
}

// Links to the parts that have something to show.
function showContents() {
  const parts = [...document.querySelectorAll("main > section:not([hidden]) > h2")];
  replaced("contents", element("ul", {}, parts.map((part) => element("li", {}, element("a", { href: `#${part.id}` }, part.textContent)))));
}

const tableOf = (id, header, rows) => filledTable(document.getElementById(id), header, rows);

function showPaste(run) {
  show("paste-section", Object.keys(run.paste).length > 0);
  replaced("paste", Object.entries(run.paste).map(([name, text]) => {
    const shown = element("pre", { tabindex: 0, role: "region", "aria-label": name }, text);
    return element("div", {}, element("div", { class: "paste" }, element("h3", {}, name),
      element("button", { type: "button", "aria-label": `Copy ${name}`, onclick: (event) => copy(shown, event.target) }, "Copy")), shown);
  }));
}

// Copies a text; where the browser does not allow that to a file, the text is selected instead.
async function copy(shown, button) {
  try {
    await navigator.clipboard.writeText(shown.textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(shown);
    button.textContent = "Selected";
  }
}

function showCurve(run, trials) {
  show("curve-section", run.curve.length > 0);
  if (!run.curve.length) return;
  const height = run.relative ? AT.relative : AT.ms;
  const dots = trials.filter(({ row }) => row[AT.at] !== null && row[height] !== null).slice(0, DOTS).map(({ row }) => [row[AT.at], row[height]]);
  const steps = run.curve.map(([at, rank, ms, config]) => [at, rank, `${inMs(ms)}: ${config}`]);
  const last = steps.at(-1);
  document.getElementById("curve-note").textContent =
    `By screening, after ${run.elapsed_s.toFixed(1)} s of tuning: ${last[2]}${dots.length === DOTS ? `. Of the other trials the fastest ${DOTS} are dots` : ""}`;
  replaced("curve", plot(roomOf("curve"), `The best so far improved ${steps.length} times, at last after ${last[0].toFixed(1)} s`,
    "seconds", run.relative ? "time over the default's" : "ms", dots, steps, run.elapsed_s));
}

function tiesTable(table, contenders) {
  const gaps = contenders.map((one) => one[5]).filter(Boolean);
  const range = extent([0, ...gaps.flat()]);
  return filledTable(table, ["", "ms", "slower than the winner", "rounds", "outcome", "config"], contenders.map((one) => element("tr", { class: { winner: "winner", tie: "tie" }[one[3]] },
    element("td", {}, one[5] ? interval(one[5], range, one[3] === "winner") : "–"),
    ...cells("td", one.slice(0, 4)), element("td", { class: "config" }, one[4]))));
}

function showTies(run) {
  show("ties-section", run.contenders.length > 0);
  tiesTable(document.getElementById("ties"), run.contenders);
  replaced("confirmations", run.confirmations.map(([process, found]) => {
    const name = `Compared again, in fresh process ${process}`;
    return element("div", {}, element("h3", {}, name),
      element("div", { class: "scroll", role: "region", "aria-label": name, tabindex: 0 }, tiesTable(element("table"), found)));
  }));
}

function showRoof(run, trials) {
  show("roof-section", Object.keys(run.roof_facts).length > 0);
  listed("roof-facts", run.roof_facts);
  if (run.roof === null) { replaced("roof"); return; }
  const ran = trials.filter(({ row }) => row[AT.ms] > 0 && Number.isFinite(run.roof.flops / row[AT.ms]));
  replaced("roof", roofline(roomOf("roof"), run.roof, ran.slice(0, LINES).map(({ row, fate, config }) => ({ ms: row[AT.ms], winner: fate === "winner", text: config }))));
}

function showMap() {
  const found = DATA.map;
  show("map-section", found !== null);
  if (found === null) return;
  const worst = Math.max(...found.rows.flatMap((row) => row[4]).filter(Number.isFinite), 1.01);
  const cell = (slower) => {
    const made = element("td", { class: slower === 1 ? "best" : null }, Number.isFinite(slower) ? `${slower.toFixed(2)}x` : slower ?? "–");
    if (Number.isFinite(slower)) made.style.background = `rgba(var(--heat), ${(0.6 * Math.max(0, Math.log(slower) / Math.log(worst))).toFixed(3)})`;
    return made;
  };
  filledTable(document.getElementById("map"), ["problem", "ms", "of limit", "vs default", ...found.configs],
    found.rows.map(([name, ...facts]) => element("tr", {}, element("th", { class: "left", scope: "row" }, name),
      cells("td", facts.slice(0, 3)), facts[3].map(cell))));
}

function showKnobs(run) {
  document.getElementById("knobs-note").textContent = run.unclear ||
    `${Math.round(100 * run.explained)} % of the differences come from tunables alone. Of each value: how much slower it makes a config than the tunable's best value.`;
  tableOf("knobs", run.knobs.length ? ["tunable", "share", "by value"] : [], run.knobs.map((knob) => element("tr", {},
    element("th", { class: "left", scope: "row" }, knob.name),
    element("td", {}, `${Math.round(100 * knob.share)}%`),
    element("td", { class: "left" }, knob.values.map(([value, , failed, slower]) =>
      `${value}: ${slower === null ? "none ran" : `+${Math.round(100 * slower)}%`}${failed ? ` (${failed} failed)` : ""}`).join(", ")))));
}

function showParallel(run, chosen) {
  const ran = chosen.filter(({ row }) => row[AT.ms] !== null);
  const lines = ordered(ran, { column: AT.ms, down: false }).slice(0, LINES);
  show("parallel-section", lines.length > 1);
  if (lines.length < 2) return;
  document.getElementById("parallel-note").textContent = `The fastest ${lines.length} of the trials that the filter shows; the fastest of them is green.`;
  replaced("parallel", parallel(roomOf("parallel"), run.names, run.values, lines.map(({ row }) => row.slice(FIRST_VALUE)), lines.map(({ row }) => row[AT.ms])));
}

function showHeat(run, trials, rows, columns) {
  const best = new Map();
  for (const { row } of trials) {
    const key = `${row[FIRST_VALUE + rows]}:${row[FIRST_VALUE + columns]}`;
    if (row[AT.ms] !== null && !(best.get(key) <= row[AT.ms])) best.set(key, row[AT.ms]);
  }
  const [low, high] = extent(best.values());
  const heat = (ms) => (high > low ? Math.log(ms / low) / Math.log(high / low) : 0);
  const cell = (ms) => {
    const made = element("td", {}, ms === undefined ? "–" : short(ms));
    if (ms !== undefined) made.style.background = `rgba(var(--heat), ${(0.6 * heat(ms)).toFixed(3)})`;
    return made;
  };
  replaced("heat",
    element("thead", {}, element("tr", {}, element("td", {}), run.values[columns].map((value) => element("th", { scope: "col" }, `${run.names[columns]}=${value}`)))),
    element("tbody", {}, run.values[rows].map((value, row) => element("tr", {}, element("th", { scope: "row", class: "left" }, `${run.names[rows]}=${value}`),
      run.values[columns].map((_, column) => cell(best.get(`${row}:${column}`)))))));
}

function showResources(run, trials, column, name) {
  const dots = trials.filter(({ row }) => row[AT.ms] !== null && row[column] !== null).slice(0, DOTS).map(({ row }) => [row[column], row[AT.ms]]);
  replaced("resources", dots.length ? plot(roomOf("resources"), `${name} and times of ${dots.length} configs`, name, "ms", dots) : element("p", { class: "note" }, "Not known."));
}

function showLists(run) {
  show("dropped-section", run.dropped.length > 0);
  tableOf("dropped", ["configs", "dropped by"], run.dropped.map(([by, count]) => element("tr", {}, element("td", { class: "left" }, count), element("td", { class: "left" }, by))));
  show("failures-section", run.failures.length > 0);
  tableOf("failures", ["configs", "status", "reason of the first", "the first"], run.failures.map(([count, status, reason, first]) => element("tr", {},
    element("td", { class: "left" }, count), element("td", { class: "left" }, status), element("td", { class: "reason" }, reason), element("td", { class: "config" }, first))));
}

function showComparisons() {
  show("comparison-section", DATA.comparisons.length > 0);
  replaced("comparisons", DATA.comparisons.map((one) => element("div", {},
    element("p", {}, one.common),
    element("div", { class: "scroll", role: "region", "aria-label": `${one.first} and ${one.second}`, tabindex: 0 },
      filledTable(element("table"), ["what", one.first, one.second], one.differences.map(([name, ...both]) => element("tr", {},
        element("th", { class: "left", scope: "row" }, name), both.map((text) => element("td", { class: "reason" }, text)))))))));
}
