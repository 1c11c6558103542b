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

const short = (value) => Number(value.toPrecision(4)).toString();
const inMs = (ms) => (Number.isFinite(ms) ? `${short(ms)} ms` : "–");
