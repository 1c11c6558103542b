"use strict";
// What the page calculates: a question in, an answer out. Nothing here touches the document.

const restored = (kind, fields) => Object.assign(Object.create(kind.prototype), fields);

function machineOf(fields) {
  return restored(MODEL.Machine, {
    ...fields,
    costs: restored(MODEL.Costs, fields.costs),
    limits: restored(MODEL.UnitLimits, fields.limits),
  });
}

function tilesOf({ family, ...fields }) {
  const product = fields.product ? restored(MODEL.tiles_gemm, fields.product) : undefined;
  return restored(MODEL[`tiles_${family}`], product ? { ...fields, product } : fields);
}

const workloadNamed = (name) => DATA.workloads.find((one) => one.name === name);

// A number, a truth or a word, as the command line reads them.
function valueOf(text) {
  if (/^(true|false)$/i.test(text)) return text.toLowerCase() === "true";
  return text.trim() !== "" && Number.isFinite(Number(text)) ? Number(text) : text;
}

// The configs in a text with one on each line, such as `BM=128 BN=64 BK=32`; and what is wrong with the text.
function parsedConfigs(text, workload) {
  const configs = [];
  const needed = Object.keys(MODEL.least_sides(workload.family, "bfloat16"));
  for (const [at, line] of text.split("\n").entries()) {
    const config = {};
    for (const part of line.split(/[\s,]+/).filter(Boolean)) {
      const [name, value, ...rest] = part.split("=");
      if (!workload.tunables.includes(name)) return { problem: `Line ${at + 1}: ${workload.name} has no tunable ${name}.` };
      if (!value || rest.length) return { problem: `Line ${at + 1}: ${part} is not NAME=VALUE.` };
      if (name in config) return { problem: `Line ${at + 1}: ${name} is given twice.` };
      config[name] = valueOf(value);
    }
    if (Object.keys(config).length === 0) continue;
    const missing = needed.filter((name) => !(name in config));
    if (missing.length) return { problem: `Line ${at + 1}: there is no ${missing.join(", ")}.` };
    configs.push(config);
  }
  if (configs.length === 0) return { problem: "There is no config to rank." };
  if (configs.length > DATA.limits.configs) return { problem: `More than ${DATA.limits.configs} configs are too many.` };
  return { configs };
}

function wholeSpace(space) {
  const longer = (configs, [name, values]) => configs.flatMap((config) => values.map((value) => ({ ...config, [name]: value })));
  return Object.entries(space).reduce(longer, [{}]);
}

// What is wrong with the extents, in a sentence; empty if nothing is.
function extentProblem(workload, extents) {
  const at = extents.findIndex((extent) => !Number.isInteger(extent) || extent < 1 || extent > DATA.limits.extent);
  if (at < 0) return "";
  return `${workload.extents[at]} must be a whole number from 1 to ${DATA.limits.extent.toLocaleString("en")}.`;
}

// The ranking of configs of a workload.
function answer({ workload, extents, dtype, device, configs }) {
  const machine = machineOf(DATA.devices[device]);
  const work = MODEL.work_of(workload.family, extents, dtype);
  const sides = MODEL.least_sides(workload.family, dtype);
  const standings = MODEL.ranked(work, machine, configs, sides);
  return { workload, extents, dtype, machine, work, sides, configs, standings, advice: MODEL.advice(standings, workload.rule) };
}

const calculated = new Map(); // recordings do not change, and all of them are in the table of every redraw
const orderOf = (one) => (one.place > 0 ? one.place : Infinity);

// The configs of a recording with both times; what cannot be calculated here was calculated when the page was made.
function recordedAnswer(recording) {
  if (!calculated.has(recording)) calculated.set(recording, calculatedAnswer(recording));
  return calculated.get(recording);
}

function calculatedAnswer(recording) {
  const machine = machineOf(DATA.devices[recording.device]);
  const configs = recording.rows.map((row) => Object.fromEntries(recording.names.map((name, at) => [name, row[at]])));
  const measured = new Map(configs.map((config, at) => [config, recording.measured_ms[at]]));
  let work = null;
  let standings = [];
  if (recording.work) {
    work = { ...recording.work, tiles: tilesOf(recording.work.tiles) };
    standings = MODEL.ranked(work, machine, configs, {});
  }
  const expected = recording.work
    ? new Map(standings.map((one) => [one.config, one.place ? one.forecast.expected_ms : Infinity]))
    : new Map(configs.map((config, at) => [config, recording.expected_ms[at] === "inf" ? Infinity : recording.expected_ms[at]]));
  const known = configs.filter((config) => expected.get(config) !== null);
  if (!recording.work) standings = givenStandings(known, expected);
  const spearman = MODEL.spearman(known.map((config) => expected.get(config)), known.map((config) => measured.get(config)));
  const first = [...standings].sort((a, b) => orderOf(a) - orderOf(b))[0];
  const share = Math.min(...recording.measured_ms) / measured.get(first.config);
  const advice = MODEL.advice(standings, "");
  return { recording, machine, work, sides: {}, configs, standings, measured, expected, spearman, share, advice };
}

// Places of configs of which only the expected times are known.
function givenStandings(configs, expected) {
  const order = [...configs].sort((a, b) => expected.get(a) - expected.get(b));
  const best = expected.get(order[0]);
  return order.map((config, at) => ({
    config,
    forecast: null,
    place: Number.isFinite(expected.get(config)) ? at + 1 : 0,
    score: (100 * best) / expected.get(config),
    why_not: Number.isFinite(expected.get(config)) ? "" : "does not fit on the device",
    limited_by: "",
    occupancy: 0,
    of_shared: 0,
  }));
}
