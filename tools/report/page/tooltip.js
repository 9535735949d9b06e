// What stands under the pointer, and what the tooltip says of it.
const tooltip = document.getElementById("tooltip");

// The span at no distance, or the nearest one within two pixels.
function nearest(spans, distanceTo) {
  let best = null;
  let distance = 2;
  for (const span of spans) {
    const away = distanceTo(span);
    if (away < distance) { best = span; distance = away; }
    if (away === 0) break;
  }
  return best;
}

const outside = (low, high, place) => Math.max(low - place, place - high, 0);
const besideTime = (span, x) => outside(xOf(span.from), xOf(span.to), x);
const besideBytes = (l, y) => outside(yOf(l.offset + l.bucket.bytes), yOf(l.offset), y);

function hit(x, y) {
  if (x < LEFT || x > LEFT + plotWidth()) return null;
  if (y >= MAP.top && y < MAP.top + MAP.height) {
    return nearest(view.spans.lifetimes, span => Math.max(besideTime(span, x), besideBytes(span.item, y)));
  }
  const row = lanesDrawn.findIndex((_, r) => y >= laneTop(r) && y < laneTop(r) + LANES.height);
  return row < 0 ? null : nearest(view.spans.lanes[lanesDrawn[row]], span => besideTime(span, x));
}

const around = (begin, end) => `${secondsText(begin)} – ${secondsText(end)} (${secondsText(end - begin)})`;
const few = (list, most) => list.slice(0, most).join(", ") + (list.length > most ? `, and ${list.length - most} more` : "");

function factsOfLifetime(l) {
  const b = l.bucket;
  const more = b.count - b.tensors.length;
  const moves = l.touched.filter(i => i.lifetime === l).map(i => `#${i.id} ${names.instructions[i.kind]} at ${secondsText(i.begin)}`);
  const facts = [
    ["what", `${names.kinds[b.kind].replaceAll("_", " ")}, ${names.residencies[b.residency]}`],
    ["bytes", `${bytesText(b.bytes)} (${b.bytes.toLocaleString("en")})`],
    ["offset", `${bytesText(l.offset)} (${l.offset.toLocaleString("en")})`],
    ["positions", `${l.first} to ${l.last} of ${positions}`],
    ["time", around(starts[l.first], starts[l.last])],
    ["tensors", b.tensors.map(t => shortened(t, 80)).join(", ") + (more > 0 ? `, and ${more} more` : "")],
  ];
  if (moves.length > 0) facts.push(["moved by", few(moves, 3)]);
  if (l.end >= 0) facts.push(["dead after", waitText(l.end)]);
  if (b.onHost) facts.push(["on host", b.pinned ? "yes, pinned" : "yes"]);
  return [b.name, facts];
}

function waitText(wait) {
  const [id, when] = wait < 0 ? [-1 - wait, " of the step before"] : [wait, ""];
  const other = instructions[id];
  return `#${id} ${names.instructions[other.kind].replaceAll("_", " ")} ${shortened(titleOf(other), 60)}${when}`;
}

function factsOfInstruction(i) {
  const facts = [["what", `#${i.id} ${names.instructions[i.kind].replaceAll("_", " ")} on ${names.lanes[i.lane]}`]];
  if (i.op) {
    facts.push(["op", `${shortened(i.op.kernel, 60)}, ${names.phases[i.op.phase]}` + (i.op.unit ? `, ${shortened(i.op.unit, 60)}` : "")]);
  }
  if (i.lifetime) facts.push(["bytes", `${bytesText(i.lifetime.bucket.bytes)} (${names.kinds[i.lifetime.bucket.kind].replaceAll("_", " ")})`]);
  if (i.uses.length > 0) {
    const bytes = i.uses.reduce((sum, l) => sum + l.bucket.bytes, 0);
    facts.push(["uses", `${bytesText(bytes)} in ${i.uses.length} buckets`]);
  }
  if (i.position >= 0) facts.push(["position", String(i.position)]);
  facts.push(["time", around(i.begin, i.end)]);
  facts.push(["waits for", i.waits.length > 0 ? few(i.waits.map(waitText), 4) : "its lane only"]);
  return [titleOf(i), facts];
}

function factsOfPlace(value) {
  const span = view.spans.live.find(s => s.from <= value && value < s.to);
  if (!span) return null;
  const running = view.spans.lanes[COMPUTE].find(s => s.from <= value && value < s.to);
  return [view.axis.text(value), [["live", bytesText(span.item.bytes)],
    ["compute", running ? titleOf(running.item) : "waits"]]];
}

function factsAt(x, y) {
  if (view.hover) return view.hover.item.bucket ? factsOfLifetime(view.hover.item) : factsOfInstruction(view.hover.item);
  const inPlot = x >= LEFT && x <= LEFT + plotWidth();
  return inPlot && y >= RIBBON.top && y < LIVE.top + LIVE.height ? factsOfPlace(valueAt(x)) : null;
}

// Beside the pointer, inside the window.
function showTooltip(facts, clientX, clientY) {
  tooltip.hidden = facts === null;
  if (facts === null) return;
  tooltip.replaceChildren();
  element("b", tooltip, shortened(facts[0]));
  const list = element("dl", tooltip);
  for (const [name, text] of facts[1]) {
    element("dt", list, name);
    element("dd", list, text);
  }
  const { width, height } = tooltip.getBoundingClientRect();
  const left = clientX + 16 + width > innerWidth ? clientX - 16 - width : clientX + 16;
  tooltip.style.left = Math.max(4, left) + "px";
  tooltip.style.top = Math.max(4, Math.min(clientY + 14, innerHeight - height - 6)) + "px";
}
