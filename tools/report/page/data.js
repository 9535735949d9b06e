// The page's data as objects; tools/report/report_data.h says what the arrays hold.
const raw = JSON.parse(document.getElementById("plan-data").textContent);
const names = raw.names;
const COMPUTE = names.lanes.indexOf("compute");
const PEER = names.lanes.indexOf("peer");

// Characters that would hide or reorder others are spelled out.
const hidden = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
const strings = raw.strings.map(
  text => text.replace(hidden, c => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0")));

const buckets = raw.buckets.map((row, id) => {
  const [name, kind, residency, flags, bytes, prefetches, offloads, count, ...tensors] = row;
  return { id, name: strings[name], kind, residency, onHost: (flags & 1) > 0, pinned: (flags & 2) > 0, bytes,
    prefetches, offloads, count, tensors: tensors.map(t => strings[t]), lifetimes: [], seconds: 0 };
});

function rows(flat, width) {
  const list = [];
  for (let i = 0; i < flat.length; i += width) list.push(flat.slice(i, i + width));
  return list;
}

const lifetimes = rows(raw.lifetimes, 5).map(([bucket, first, last, offset, end], id) => {
  const lifetime = { id, bucket: buckets[bucket], first, last, offset, end, touched: [] };
  lifetime.bucket.lifetimes.push(lifetime);
  return lifetime;
});

const ops = rows(raw.ops, 4).map(([name, kernel, phase, unit]) => (
  { name: strings[name], kernel: strings[kernel], phase, unit: unit < 0 ? "" : strings[unit] }));

const instructions = rows(raw.instructions, 6).map(([kind, lane, op, lifetime, begin, end], id) => (
  { id, kind, lane, op: op < 0 ? null : ops[op], lifetime: lifetime < 0 ? null : lifetimes[lifetime],
    begin: begin * 1e-9, end: end * 1e-9, uses: raw.uses[id].map(u => lifetimes[u]), waits: raw.waits[id],
    position: -1 }));
for (const i of instructions) {
  if (i.lifetime) i.lifetime.touched.push(i);
  for (const use of i.uses) use.touched.push(i);
}
const launches = instructions.filter(i => i.lane === COMPUTE || i.lane === PEER);
const hasPeers = launches.some(i => i.lane === PEER);
launches.forEach((i, position) => { i.position = position; });

const titleOf = i => i.op ? i.op.name : i.lifetime.bucket.name;

// --- for people

function trimmed(value, digits) {
  return String(Number(value.toFixed(digits)));
}

function bytesText(bytes, digits = 2) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let unit = 0;
  while (bytes >= 1023.995 && unit + 1 < units.length) { bytes /= 1024; ++unit; }
  return (unit === 0 ? String(bytes) : digits < 0 ? trimmed(bytes, 2) : bytes.toFixed(digits)) + " " + units[unit];
}

function secondsText(seconds) {
  const size = Math.abs(seconds);
  if (size === 0) return "0 s";
  if (size < 1e-3) return Number((seconds * 1e6).toPrecision(4)) + " µs";
  if (size < 1) return Number((seconds * 1e3).toPrecision(5)) + " ms";
  return Number(seconds.toPrecision(5)) + " s";
}

const shortened = (text, most = 160) => text.length > most ? text.slice(0, most) + "…" : text;
const percentText = part => (100 * part).toFixed(part < 0.1 ? 1 : 0) + "%";

// --- elements

function element(tag, parent, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  if (parent) parent.append(made);
  return made;
}

function addSwatch(parent, colour, text) {
  const item = element("span", parent);
  element("span", item, "", "swatch").style.background = colour;
  item.append(text);
}
