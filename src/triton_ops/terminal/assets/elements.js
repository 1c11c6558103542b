"use strict";
// Elements and drawings of every page. Texts become text nodes, never markup, wherever they come from.

const SVG = "http://www.w3.org/2000/svg";

function put(parent, ...children) {
  for (const child of children.flat()) if (child !== null && child !== undefined) parent.append(child);
  return parent;
}

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  return put(made, ...children);
}

function shape(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return put(made, ...children);
}

function drawing(width, height, label, ...children) {
  return shape("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label }, ...children);
}

function replaced(id, ...children) {
  const found = document.getElementById(id);
  found.replaceChildren();
  return put(found, ...children);
}

// Round numbers within a range, at most seven: 1, 2 or 5 times a power of ten, or all steps of such a number.
function roundTicks(low, high, curved) {
  if (curved) {
    const marks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
      for (const factor of [1, 2, 5]) marks.push(Number((factor * 10 ** power).toPrecision(1)));
    const within = marks.filter((mark) => mark >= low && mark <= high);
    const powers = within.filter((mark) => /^[0.]*1/.test(mark.toExponential()));
    if (within.length > 7 && powers.length > 1) return powers.filter((_, at) => at % Math.ceil(powers.length / 7) === 0);
    if (within.length > 1) return within;
  }
  const rough = (high - low) / 6;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough);
  const count = Math.floor(high / step + 1e-9) - Math.ceil(low / step - 1e-9) + 1;
  return Array.from({ length: count }, (_, at) => Number(((Math.ceil(low / step - 1e-9) + at) * step).toPrecision(9)));
}

const byId = (id) => document.getElementById(id);
const options = (id, values) => replaced(id, values.map(([value, text]) => element("option", { value }, text)));
const short = (value) => Number(value.toPrecision(4)).toString();
const inMs = (ms) => (Number.isFinite(ms) ? `${short(ms)} ms` : "–");

const ROOM = { left: 64, right: 16, top: 12, bottom: 36 };

// Places on an axis, logarithmic where all figures are above zero and spread.
function axis(low, high, begin, end) {
  const spread = high > low ? high - low : Math.abs(high) || 1;
  const [from, to] = high > low ? [low, high] : [low - spread / 2, high + spread / 2];
  const curved = from > 0 && to / from > 5;
  const along = (value) => curved ? Math.log(value / from) / Math.log(to / from) : (value - from) / (to - from);
  return { place: (value) => begin + along(value) * (end - begin), marks: high > low ? roundTicks(from, to, curved) : [low] };
}

// The columns of pixels that a part of the page has for a chart.
function roomOf(id) {
  return Math.max(320, document.getElementById(id).clientWidth);
}

function extent(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

function frame(width, height, x, y, xName, yName) {
  const [bottom, right] = [height - ROOM.bottom, width - ROOM.right];
  return [
    shape("path", { class: "axis", fill: "none", d: `M${ROOM.left} ${ROOM.top}V${bottom}H${right}` }),
    ...x.marks.map((mark) => shape("text", { class: "quiet", x: x.place(mark), y: bottom + 15, "text-anchor": "middle" }, short(mark))),
    ...y.marks.map((mark) => shape("text", { class: "quiet", x: ROOM.left - 6, y: y.place(mark) + 4, "text-anchor": "end" }, short(mark))),
    shape("text", { x: right, y: height - 4, "text-anchor": "end" }, xName),
    shape("text", { x: ROOM.left + 6, y: ROOM.top + 4 }, yName),
  ];
}

// Figures over figures; `steps` is a line that goes on at its height until its next point, `further` is drawn below it.
function plot(width, label, xName, yName, dots, steps = [], until = null, further = () => []) {
  const height = 300;
  const points = [...dots, ...steps];
  const [lowX, highX] = extent(points.map((point) => point[0]));
  const x = axis(lowX, Math.max(highX, until ?? highX), ROOM.left + 8, width - ROOM.right);
  const y = axis(...extent(points.map((point) => point[1])), height - ROOM.bottom - 8, ROOM.top + 18);
  const path = steps.map(([at, value], number) =>
    number ? `H${x.place(at)}V${y.place(value)}` : `M${x.place(at)} ${y.place(value)}`).join("") + (steps.length && until !== null ? `H${x.place(until)}` : "");
  return drawing(
    width, height, label, ...frame(width, height, x, y, xName, yName),
    ...further(x, y),
    ...dots.map((dot) => shape("circle", { class: "dot", cx: x.place(dot[0]), cy: y.place(dot[1]), r: 2.5 })),
    shape("path", { class: "step", d: path }),
    ...steps.map((step) => shape("circle", { class: "dot winner", cx: x.place(step[0]), cy: y.place(step[1]), r: 3.5 },
      shape("title", {}, step[2]))),
  );
}
