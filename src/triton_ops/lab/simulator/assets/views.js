"use strict";
// Each part of the page from an answer.

const FIRST_ROWS = 30;

function cells(name, ...texts) {
  return texts.map(([text, kind]) => element(name, { class: kind, scope: name === "th" ? "col" : null }, text));
}

function showPlaces(found, chosen, rows, onChoose) {
  const both = Boolean(found.measured);
  const taken = both ? [...found.measured.values()].sort((a, b) => a - b) : [];
  const head = cells("th", ["place", ""], ["config", "left"], ["speed", "left spare"], ["expected", ""], ["score", ""],
    ...(both ? [["measured", ""], ["place measured", "spare"]] : []),
    ["waves", "spare"], ["occupancy", "spare"], ["shared", "spare"], ["limited by", "left spare"]);
  const body = found.standings.slice(0, rows).map((one) => placeRow(found, one, one === chosen, taken, onChoose));
  replaced("places", element("thead", {}, element("tr", {}, head)), element("tbody", {}, body));
  const rest = found.standings.length - rows;
  const more = replaced("more", `Show all ${found.standings.length}`);
  more.hidden = rest <= 0;
}

function placeRow(found, one, isChosen, taken, onChoose) {
  const winner = one.place === 1;
  const name = MODEL.config_text(one.config);
  const choose = element("button", { type: "button", "aria-pressed": String(isChosen), onclick: () => onChoose(one) }, name);
  const kind = [winner && "winner", isChosen && "chosen", !one.place && "refused"].filter(Boolean).join(" ");
  const place = element("td", {}, winner ? "1 ★ winner" : one.place ? String(one.place) : "–");
  const config = element("td", { class: "config" }, choose);
  if (!one.place) return element("tr", { class: kind }, place, config, element("td", { class: "reason", colspan: 9 }, one.why_not));
  const ms = found.measured ? found.measured.get(one.config) : null;
  const expected = one.forecast ? one.forecast.expected_ms : found.expected.get(one.config);
  const figures = cells("td", [inMs(expected), ""], [one.score.toFixed(1), ""],
    ...(found.measured ? [[inMs(ms), ""], [String(taken.indexOf(ms) + 1), "spare"]] : []),
    ...(one.forecast
      ? [[one.forecast.waves.toFixed(2), "spare"], [inPercent(one.occupancy), "spare"], [inPercent(one.of_shared), "spare"]]
      : [["–", "spare"], ["–", "spare"], ["–", "spare"]]),
    [one.limited_by, "left spare"]);
  const drawn = element("td", { class: "left spare" }, bar(one.score / 100, winner, `${one.score.toFixed(0)} % of the winner's speed`));
  return element("tr", { class: kind }, place, config, drawn, figures);
}

function showWhy(found, one) {
  const said = one.forecast || one.why_not ? MODEL.reasons(one, found.machine) : [["expected", "by work that was read of the kernel, when this page was made"]];
  const list = said.filter(([name]) => name !== "alone").flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)]);
  const bars = one.forecast && one.place ? termBars(one.forecast.terms.slice(0, 8)) : null;
  replaced("why", element("p", { class: "mono" }, MODEL.config_text(one.config)), element("dl", {}, list),
    bars && element("p", { class: "note" }, "What each resource would take if all others cost nothing:"),
    bars && element("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": "Time of each resource" }, bars));
}

function showKnobs(found, one, onTurn) {
  const able = found.work && one.place > 0 && Object.keys(found.sides).length > 0;
  document.getElementById("knob-section").hidden = !able;
  if (!able) return;
  const dials = MODEL.dials(found.work, found.machine, one.config, found.sides).sort((a, b) => b.range - a.range);
  replaced("knobs", dials.map((dial) => knob(dial, (value) => onTurn(dial.name, value))));
}

function knob(dial, onTurn) {
  const best = Math.min(...dial.turns.filter((turn) => !turn.why_not).map((turn) => turn.expected_ms));
  const turns = dial.turns.map((turn) => {
    const meter = element("span", {});
    meter.style.width = turn.why_not ? "0" : `${(100 * best) / turn.expected_ms}%`;
    const said = turn.why_not ? "cannot run" : inMs(turn.expected_ms);
    const attributes = { type: "button", "aria-pressed": String(turn.own), "data-knob": dial.name, "data-value": turn.value, title: turn.why_not || null };
    return element("button", { ...attributes, onclick: () => onTurn(turn.value) },
      String(turn.value), element("small", {}, said), element("span", { class: "meter", "aria-hidden": "true" }, meter));
  });
  return element("div", { class: "knob", role: "group", "aria-label": dial.name },
    element("h3", {}, dial.name, element("small", {}, ` ${dial.range.toFixed(2)} × from best to worst`)), turns);
}

function showPipeline(one) {
  const found = one.forecast && one.place ? MODEL.timelines(one) : [];
  document.getElementById("pipeline-section").hidden = found.length === 0;
  const legend = element("p", { class: "legend note" }, element("span", { class: "load" }), "loaded", element("span", { class: "wait" }),
    "waits", element("span", { class: "compute" }), "computed");
  const figures = found.map((line) => element("figure", {}, element("figcaption", {},
    `num_stages=${line.stages}: computing ${inPercent(line.busy)} of the time${line.stages === one.stages ? " ← this config" : ""}`),
    timelineDrawing(line)));
  replaced("pipeline", legend, element("div", { class: "pipes" }, figures));
}

function showShapes(found, axis) {
  document.getElementById("shape-section").hidden = !found.workload;
  if (!found.workload) return;
  const compared = found.configs.length <= DATA.limits.compared
    ? found.configs
    : found.standings.slice(0, DATA.limits.compared).map((one) => one.config);
  const shapes = MODEL.series(found.extents, axis, DATA.limits.shapes);
  const points = MODEL.over_shapes(found.workload.family, shapes, found.dtype, found.machine, compared);
  const head = [["config", "left"], ...points.map((point) => [String(point.extents[axis]), ""])];
  const rows = compared.map((config, at) => element("tr", {}, element("th", { scope: "row", class: "left mono" }, MODEL.config_text(config)),
    points.map((point) => heatCell(point.slower[at], at === point.winner))));
  replaced("shapes", element("thead", {}, element("tr", {}, cells("th", ...head))), element("tbody", {}, rows));
}

function heatCell(slower, best) {
  const cell = element("td", { class: best ? "best" : null }, slower ? `${slower.toFixed(2)}${best ? " ★" : ""}` : "–");
  if (slower) cell.style.backgroundColor = `rgba(var(--heat), ${Math.min(0.5, 0.45 * Math.log2(Math.max(1, slower)))})`;
  return cell;
}

function showRecording(found) {
  document.getElementById("recording-section").hidden = DATA.recordings.length === 0;
  if (DATA.recordings.length === 0) return;
  replaced("recordings", element("thead", {}, element("tr", {}, cells("th", ["recording", "left"], ["configs", ""], ["Spearman", ""],
    ["asked", ""], ["", "left"], ["first's share of the best", ""]))), element("tbody", {}, DATA.recordings.map(recordingRow)));
  if (!found.recording) {
    replaced("agreement", "Choose a recording as the workload to see its configs.");
    replaced("scatter");
    return;
  }
  const reached = `is ${verdict(found.spearman, found.recording.asked)}`;
  replaced("agreement", `Spearman's correlation of expected and measured times is ${found.spearman.toFixed(3)} over ` +
    `${found.expected.size} configs of ${found.recording.title} on ${found.recording.device}; ${found.recording.asked} is asked of ` +
    `${found.recording.kind}, and ${reached}. ${found.recording.work ? "" : "The work was read of the kernel, and these times do not change. "}` +
    `The config that is expected to win has ${(100 * found.share).toFixed(1)} % of the best measured speed.`);
  const pairs = [...found.expected].filter(([, ms]) => Number.isFinite(ms)).map(([config, ms]) => [ms, found.measured.get(config)]);
  const first = found.standings[0].config;
  replaced("scatter", scatter(pairs, [found.expected.get(first), found.measured.get(first)]));
}

const verdict = (spearman, asked) => (spearman >= asked ? "reached" : "missed");

function recordingRow(recording) {
  const found = recordedAnswer(recording);
  return element("tr", {}, cells("td", [`${recording.title} (${recording.file})`, "left"], [String(found.configs.length), ""],
    [found.spearman.toFixed(3), ""], [String(recording.asked), ""],
    [verdict(found.spearman, recording.asked), "left"], [inPercent(found.share), ""]));
}
