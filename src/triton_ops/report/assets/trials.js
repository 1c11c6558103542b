"use strict";
// The trials of a run: what they are, which are shown, and in which order.

const AT = { number: 0, at: 1, fate: 2, error: 3, ms: 4, relative: 5, spread: 6, compile: 7, registers: 8, spills: 9, shared: 10 };
const FIRST_VALUE = 11;
const SHOWN = 50;
const BEFORE = 3; // of the figures, which stand before the config
const COLUMNS = [
  ["#", AT.number], ["ms", AT.ms], ["vs default", AT.relative], ["spread", AT.spread], ["after s", AT.at],
  ["registers", AT.registers], ["bytes spilled", AT.spills], ["bytes shared", AT.shared], ["compile s", AT.compile],
];

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

// The order of a column; rows without a figure stay last in both directions.
function ordered(trials, order) {
  if (order === null) return trials;
  const sign = order.down ? -1 : 1;
  return [...trials].sort((one, other) => {
    const [a, b] = [one.row[order.column], other.row[order.column]];
    if (a === null || b === null) return (a === null) - (b === null);
    return sign * (a - b);
  });
}

function figure(row, column) {
  const value = row[column];
  if (value === null) return "–";
  if (column === AT.relative) return `${(1 / value).toFixed(2)}x`;
  if (column === AT.spread) return `${(100 * value).toFixed(1)}%`;
  return column === AT.at ? value.toFixed(1) : short(value);
}

function trialRow(trial) {
  const kind = { winner: "winner", tie: "tie" }[trial.fate] ?? (trial.row[AT.ms] === null ? "failed" : null);
  return element("tr", { class: kind },
    ...COLUMNS.slice(0, BEFORE).map(([, column]) => element("td", {}, figure(trial.row, column))),
    element("td", { class: "left" }, trial.fate),
    element("td", { class: "config" }, trial.config),
    ...COLUMNS.slice(BEFORE).map(([, column]) => element("td", {}, figure(trial.row, column))),
    element("td", { class: "reason" }, trial.error));
}
