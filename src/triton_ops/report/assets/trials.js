"use strict";
// The trials of a run: what they are, which are shown, and in which order.

const AT = { number: 0, at: 1, fate: 2, error: 3, ms: 4, relative: 5, spread: 6, compile: 7, registers: 8, spills: 9, shared: 10, gain: 11 };
const FIRST_VALUE = 12;
const SHOWN = 50;
// The columns in their order: a name, and a place in a row or a text of a trial.
const COLUMNS = [
  ["#", AT.number], ["ms", AT.ms], ["vs default", AT.relative], ["outcome", "fate"], ["config", "config"],
  ["spread", AT.spread], ["after s", AT.at], ["registers", AT.registers], ["bytes spilled", AT.spills],
  ["bytes shared", AT.shared], ["compile s", AT.compile], ["reason", "error"],
];
const RESOURCES = COLUMNS.filter(([, column]) => column >= AT.compile);

// The state of a run that is followed, as a tab's title begins; empty for other pages.
const pageState = (run) => (DATA.state ? `${DATA.state}${run.ended && run.verdict.gain ? ` ${run.verdict.gain.split(" ")[0]}` : ""} · ` : "");

function configText(run, row) {
  const parts = [];
  run.names.forEach((name, column) => {
    const value = row[FIRST_VALUE + column];
    if (value >= 0) parts.push(`${name}=${run.values[column][value]}`);
  });
  return parts.join(" ") || "(empty)";
}

// Every row with what is searched in it, made once for each run.
function prepared(run) {
  return run.rows.map((row) => {
    const config = configText(run, row);
    const [fate, error] = [run.fates[row[AT.fate]], run.errors[row[AT.error]]];
    return { row, config, fate, error, text: `${config} ${fate} ${error}`.toLowerCase() };
  });
}

function filtered(trials, words, fate) {
  const asked = words.toLowerCase().split(/\s+/).filter(Boolean);
  return trials.filter((trial) => (fate === "" || trial.fate === fate) && asked.every((word) => trial.text.includes(word)));
}

// The order of a column, of ratios the fastest last; rows without a figure stay last in both directions.
function ordered(trials, order) {
  if (order === null) return trials;
  const sign = order.down ? -1 : 1;
  return [...trials].sort((one, other) => {
    const [a, b] = [one, other].map((trial) => trial.row[order.column] ?? trial[order.column] ?? null);
    if (a === null || b === null) return (a === null) - (b === null);
    return sign * (typeof a === "string" ? a.localeCompare(b, undefined, { numeric: true }) : a - b);
  });
}

function figure(row, column) {
  const value = row[column];
  if (value === null) return "–";
  if (column === AT.relative) return row[AT.gain] ?? `${(1 / value).toFixed(2)}x`;
  if (column === AT.spread) return `${(100 * value).toFixed(1)}%`;
  return column === AT.at ? value.toFixed(1) : short(value);
}

function trialRow(trial) {
  const kind = { winner: "winner", tie: "tie" }[trial.fate] ?? (trial.row[AT.ms] === null ? "failed" : null);
  const classes = { fate: "left", config: "config", error: "reason" };
  return element("tr", { class: kind }, COLUMNS.map(([, column]) =>
    element("td", { class: classes[column] }, column in classes ? trial[column] : figure(trial.row, column))));
}
