// What Python means and JavaScript has no operator for. Dicts are objects, lists and tuples are arrays.

const $own = (value, key) => Object.prototype.hasOwnProperty.call(value, key);

const $list = (value) => (typeof value === "object" && value !== null && !(Symbol.iterator in value) ? Object.keys(value) : [...value]);
const $tuple = $list;
const $items = (value) => Object.entries(value);
const $values = (value) => Object.values(value);
const $keys = (value) => Object.keys(value);
const $dict = (value = {}) => (Array.isArray(value) ? Object.fromEntries(value) : { ...value });
const $get = (value, key, other = null) => ($own(value, key) ? value[key] : other);
const $len = (value) => (typeof value === "string" ? value.length : $list(value).length);

const $add = (one, other) => (Array.isArray(one) ? [...one, ...other] : one + other);

function $bool(value) {
  if (value === null || value === undefined || value === false || value === 0 || value === "") return false;
  if (Array.isArray(value)) return value.length > 0;
  if (typeof value === "object" && Object.getPrototypeOf(value) === Object.prototype) return Object.keys(value).length > 0;
  return true;
}

function $and(...parts) {
  let value;
  for (const part of parts) {
    value = part();
    if (!$bool(value)) break;
  }
  return value;
}

function $or(...parts) {
  let value;
  for (const part of parts) {
    value = part();
    if ($bool(value)) break;
  }
  return value;
}

function $in(value, container) {
  if (typeof container === "string") return container.includes(value);
  return Array.isArray(container) ? container.includes(value) : $own(container, value);
}

function $best(iterable, key, other, better) {
  const values = $list(iterable);
  if (values.length === 0) {
    if (other === undefined) throw new RangeError("the largest of nothing");
    return other;
  }
  const rank = key || ((value) => value);
  return values.reduce((best, value) => (better(rank(value), rank(best)) ? value : best));
}
const $max = (values, key, other) => $best(values, key, other, (one, best) => one > best);
const $min = (values, key, other) => $best(values, key, other, (one, best) => one < best);

function $compared(one, other) {
  if (!Array.isArray(one)) return one < other ? -1 : one > other ? 1 : 0;
  for (let at = 0; at < Math.min(one.length, other.length); at += 1) {
    const found = $compared(one[at], other[at]);
    if (found !== 0) return found;
  }
  return one.length - other.length;
}
const $sorted = (values, key) => $list(values).sort((a, b) => (key ? $compared(key(a), key(b)) : $compared(a, b)));

const $sum = (values, start = 0) => $list(values).reduce((sum, value) => sum + Number(value), start);
const $any = (values) => $list(values).some($bool);
const $all = (values) => $list(values).every($bool);
const $reversed = (values) => $list(values).reverse();
const $zip = (...lists) => $list(lists[0]).map((_, at) => lists.map((list) => $list(list)[at]));
const $enumerate = (values) => $list(values).map((value, at) => [at, value]);
const $divmod = (a, b) => [Math.floor(a / b), a - b * Math.floor(a / b)];

function $range(first, end, step = 1) {
  const [from, to] = end === undefined ? [0, first] : [first, end];
  return Array.from({ length: Math.max(0, Math.ceil((to - from) / step)) }, (_, at) => from + at * step);
}

// Halves go to the even neighbour.
function $round(value, digits = 0) {
  const scaled = value * 10 ** digits;
  const below = Math.floor(scaled);
  const half = Math.abs(scaled - below - 0.5) < Number.EPSILON * Math.abs(scaled);
  return (half ? below + (below % 2 === 0 ? 0 : 1) : Math.round(scaled)) / 10 ** digits;
}

function $isinstance(value, kind) {
  if (kind === "bool") return typeof value === "boolean";
  if (kind === "int") return Number.isInteger(value) || typeof value === "boolean";
  if (kind === "str") return typeof value === "string";
  throw new TypeError(`what a ${kind} is was not translated`);
}

const $getattr = (value, name, other) => (value !== null && value !== undefined && name in value ? value[name] : other);
const $startswith = (text, start) => text.startsWith(start);
const $replace = (value, changes) => Object.assign(Object.create(Object.getPrototypeOf(value)), value, changes);

function $str(value) {
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  return value instanceof Error ? value.message : String(value);
}

const $grouped = (text) => text.replace(/\B(?=(\d{3})+(?!\d))/g, ",");

function $general(value, digits) {
  if (!Number.isFinite(value)) return value > 0 ? "inf" : value < 0 ? "-inf" : "nan";
  if (value === 0) return "0";
  const [mantissa, exponent] = value.toExponential(digits - 1).split("e");
  const power = Number(exponent);
  if (power < -4 || power >= digits) {
    const short = mantissa.includes(".") ? mantissa.replace(/\.?0+$/, "") : mantissa;
    return `${short}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
  }
  const fixed = value.toFixed(Math.max(0, digits - 1 - power));
  return fixed.includes(".") ? fixed.replace(/\.?0+$/, "") : fixed;
}

// Python takes the even neighbour where a number lies halfway, which only binary fractions do; JavaScript the larger one.
function $fixed(value, digits) {
  const half = Number.isInteger(value * 2 ** (digits + 1)) && Math.abs((value * 10 ** digits) % 1) === 0.5;
  return (half ? $round(value, digits) : value).toFixed(digits);
}

function $format(value, spec) {
  if (spec === "") return $str(value);
  if (spec === "r") return typeof value === "string" ? `'${value}'` : $str(value);
  const found = /^(,?)(?:\.(\d+))?([fg%d]?)$/.exec(spec);
  if (!found) throw new TypeError(`the format ${spec} was not translated`);
  const [, comma, digits, kind] = found;
  if (kind === "g") return $general(value, Number(digits ?? 6));
  if (kind === "%") return `${$fixed(value * 100, Number(digits ?? 6))}%`;
  const text = kind === "f" ? $fixed(value, Number(digits ?? 6)) : String(value);
  const [whole, fraction] = text.split(".");
  return (comma ? $grouped(whole) : whole) + (fraction === undefined ? "" : `.${fraction}`);
}
