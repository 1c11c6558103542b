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

const short = (value) => Number(value.toPrecision(4)).toString();
const inMs = (ms) => (Number.isFinite(ms) ? `${short(ms)} ms` : "–");
