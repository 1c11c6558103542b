"use strict";
// Each part of the page from a ranking.

const FIRST_ROWS = 30;

function cells(name, ...texts) {
  return texts.map(([text, kind]) => element(text === "" ? "td" : name, { class: kind, scope: name === "th" && text !== "" ? "col" : null }, text));
}

function showPlaces(ranking, chosen, rows, onChoose) {
  const head = cells("th", ["rank", ""], ["config", "left"], ["speed", "left spare"], ["expected", ""], ["score", ""],
    ...(ranking.points ? [["measured", ""], ["rank measured", "spare"]] : []),
    ["waves", "spare"], ["occupancy", "spare"], ["shared", "spare"], ["limited by", "left spare"]);
  const body = ranking.rows.slice(0, rows).map((one) => placeRow(one, one === chosen, onChoose));
  replaced("places", element("thead", {}, element("tr", {}, head)), element("tbody", {}, body));
  replaced("more", `Show all ${ranking.rows.length}`).hidden = ranking.rows.length <= rows;
  replaced("rest", ranking.count > ranking.rows.length ? `${ranking.count - ranking.rows.length} further configs are not on this page.` : "");
}

function placeRow(one, isChosen, onChoose) {
  const winner = one.place === 1;
  const choose = element("button", { type: "button", "aria-pressed": String(isChosen), onclick: () => onChoose(one) }, one.config);
  const kind = [winner && "winner", isChosen && "chosen", !one.place && "refused"].filter(Boolean).join(" ");
  const place = element("td", {}, winner ? "1 ★ winner" : one.place ? String(one.place) : "–");
  const config = element("td", { class: "config" }, choose);
  const [, expected, score, waves, occupancy, shared, limit] = one.cells;
  if (!one.place) return element("tr", { class: kind }, place, config, element("td", { class: "reason", colspan: 9 }, limit));
  const measured = one.measured ? [[one.measured[0], ""], [one.measured[1], "spare"]] : [];
  const figures = cells("td", [expected, ""], [score, ""], ...measured,
    [waves, "spare"], [occupancy, "spare"], [shared, "spare"], [limit, "left spare"]);
  const drawn = element("td", { class: "left spare" }, meter(one.score / 100, `${one.score.toFixed(0)} % of the winner's speed`, winner));
  return element("tr", { class: kind }, place, config, drawn, figures);
}

function showWhy(one) {
  const list = one.reasons.filter(([name]) => !name.startsWith("alone: ")).flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)]);
  const longest = Math.max(...one.terms.map(([, ms]) => ms));
  replaced("why", element("p", { class: "mono" }, one.config), element("dl", {}, list),
    one.terms.length ? element("p", { class: "note" }, "What each resource would take if all others cost nothing:") : null,
    element("dl", { class: "terms" }, one.terms.flatMap(([name, ms]) => [element("dt", {}, name), element("dd", {}, meter(ms / longest), inMs(ms))])));
}

// Each knob of a config; without `onTurn` its values cannot be chosen.
function showKnobs(ranking, onTurn) {
  document.getElementById("knob-section").hidden = ranking.knobs.length === 0;
  replaced("knob-hint", onTurn ? "Choose a value to change the config." : "");
  replaced("knob-config", ranking.chosen);
  replaced("knobs", [...ranking.knobs].sort((a, b) => b.range - a.range).map((dial) => knob(dial, onTurn)));
}

function knob(dial, onTurn) {
  const best = Math.min(...dial.turns.filter((turn) => !turn.why_not).map((turn) => turn.expected_ms));
  const turns = dial.turns.map((turn) => {
    const time = turn.why_not ? "cannot run" : inMs(turn.expected_ms);
    const contents = [String(turn.value), element("small", {}, time), meter(turn.why_not ? 0 : best / turn.expected_ms)];
    const attributes = { class: turn.own ? "turn own" : "turn", "data-knob": dial.name, "data-value": turn.value, title: turn.why_not || null };
    if (!onTurn) return element("span", attributes, contents);
    return element("button", { ...attributes, type: "button", "aria-pressed": String(turn.own), onclick: () => onTurn(dial.name, turn.value) }, contents);
  });
  return element("div", { class: "knob", role: "group", "aria-label": dial.name },
    element("h3", {}, dial.name, element("small", {}, ` ${dial.range.toFixed(2)} × from best to worst`)), turns);
}

function showPipeline(ranking) {
  document.getElementById("pipeline-section").hidden = ranking.pipeline.length === 0;
  replaced("pipeline-config", ranking.chosen);
  const legend = element("p", { class: "legend note" }, element("span", { class: "load" }), "loaded", element("span", { class: "wait" }),
    "waits", element("span", { class: "compute" }), "computed");
  const figures = ranking.pipeline.map((line) => element("figure", {}, element("figcaption", {},
    `num_stages=${line.stages}: computing ${line.busy} of the time${line.stages === ranking.stages ? " ← this config" : ""}`),
    timelineDrawing(line)));
  replaced("pipeline", legend, element("div", { class: "pipes" }, figures));
}

function showShapes(ranking, axis) {
  const points = ranking.shapes[axis];
  document.getElementById("shape-section").hidden = !points;
  if (!points) return;
  const head = [["config", "left"], ...points.extents.map((extent) => [String(extent), ""])];
  const rows = ranking.compared.map((config, at) => element("tr", {}, element("th", { scope: "row", class: "left mono" }, config),
    points.slower.map((slower, point) => heatCell(slower[at], at === points.winners[point]))));
  replaced("shapes", element("thead", {}, element("tr", {}, cells("th", ...head))), element("tbody", {}, rows));
}

function heatCell(slower, best) {
  const cell = element("td", { class: best ? "best" : null }, slower ? `${slower.toFixed(2)}${best ? " ★" : ""}` : "–");
  if (slower) cell.style.backgroundColor = `rgba(var(--heat), ${Math.min(0.5, 0.45 * Math.log2(Math.max(1, slower)))})`;
  return cell;
}

function showRecording(ranking) {
  document.getElementById("recording-section").hidden = DATA.recordings.length === 0;
  if (DATA.recordings.length === 0) return;
  replaced("recordings", element("thead", {}, element("tr", {}, cells("th", ["recording", "left"], ["configs", ""], ["Spearman", ""],
    ["asked", ""], ["", "left"], ["first's share of the best", ""]))), element("tbody", {}, DATA.recordings.map(recordingRow)));
  replaced("agreement", ranking.agreement || "Choose a recording as the workload to see its configs.");
  replaced("scatter", ranking.points && scatter(ranking.points));
}

function recordingRow(recording) {
  const [configs, spearman, asked, verdict, share] = recording.figures;
  return element("tr", {}, cells("td", [`${recording.title} (${recording.file})`, "left"], [configs, ""],
    [spearman, ""], [asked, ""], [verdict, "left"], [share, ""]));
}
