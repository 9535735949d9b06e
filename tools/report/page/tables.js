// Totals by kind and residency, and the list of all buckets.
const sumOf = (list, value) => list.reduce((sum, item) => sum + value(item), 0);
const moved = b => b.bytes * (b.prefetches + b.offloads);

function cellOf(row, list, className) {
  const cell = element("td", row, list.length > 0 ? bytesText(sumOf(list, b => b.bytes)) : "", className);
  if (list.length === 0) return;
  const traffic = sumOf(list, moved);
  element("small", cell, list.length === 1 ? "1 bucket" : `${list.length} buckets`);
  if (traffic > 0) element("small", cell, `moves ${bytesText(traffic)}`);
}

function drawTotals() {
  const table = document.getElementById("totals");
  table.replaceChildren();
  const kinds = names.kinds.map((_, k) => k).filter(k => buckets.some(b => b.kind === k));
  const places = names.residencies.map((_, r) => r).filter(r => buckets.some(b => b.residency === r));
  const head = element("tr", element("thead", table));
  element("th", head, "kind", "text");
  for (const r of places) addSwatch(element("th", head), colourOfResidency(r), names.residencies[r]);
  element("th", head, "all");
  const body = element("tbody", table);
  for (const k of kinds) {
    const row = element("tr", body);
    addSwatch(element("td", row, undefined, "text"), colourOfKind(k), names.kinds[k].replaceAll("_", " "));
    for (const r of places) cellOf(row, buckets.filter(b => b.kind === k && b.residency === r));
    cellOf(row, buckets.filter(b => b.kind === k), "sum");
  }
  const row = element("tr", body);
  element("td", row, "all", "text sum");
  for (const r of places) cellOf(row, buckets.filter(b => b.residency === r), "sum");
  cellOf(row, buckets, "sum");
}

const columns = [
  { title: "bucket", text: b => shortened(b.name), by: b => b.name, className: "text name" },
  { title: "kind", text: b => names.kinds[b.kind].replaceAll("_", " "), by: b => b.kind, className: "text", colour: b => colourOfKind(b.kind) },
  { title: "residency", text: b => names.residencies[b.residency], by: b => b.residency, className: "text", colour: b => colourOfResidency(b.residency) },
  { title: "bytes", text: b => bytesText(b.bytes), by: b => b.bytes },
  { title: "tensors", text: b => String(b.count), by: b => b.count },
  { title: "on device", text: b => b.seconds > 0 && stepSeconds > 0 ? percentText(b.seconds / stepSeconds) : "–", by: b => b.seconds, hint: "share of the step in which it holds arena bytes" },
  { title: "on host", text: b => b.pinned ? "pinned" : b.onHost ? "yes" : "–", by: b => b.onHost + b.pinned, className: "text" },
  { title: "in / step", text: b => b.prefetches ? `${b.prefetches} ×` : "–", by: b => b.prefetches },
  { title: "out / step", text: b => b.offloads ? `${b.offloads} ×` : "–", by: b => b.offloads },
  { title: "moved / step", text: b => moved(b) ? bytesText(moved(b)) : "–", by: moved },
];
let order = { column: columns[3], down: true };

function sortedBuckets() {
  const wanted = document.getElementById("filter").value.trim().toLowerCase();
  const holds = b => [b.name, columns[1].text(b), columns[2].text(b), ...b.tensors].some(t => t.toLowerCase().includes(wanted));
  const { by } = order.column;
  const sign = order.down ? -1 : 1;
  const compare = (a, b) => typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
  return buckets.filter(b => wanted === "" || holds(b)).sort((a, b) => sign * compare(by(a), by(b)) || a.id - b.id);
}

function drawBucketHead(table) {
  const row = element("tr", element("thead", table));
  for (const column of columns) {
    const cell = element("th", row, undefined, column.className);
    const isOrder = order.column === column;
    if (isOrder) cell.setAttribute("aria-sort", order.down ? "descending" : "ascending");
    const button = element("button", cell, column.title + (isOrder ? (order.down ? " ▾" : " ▴") : ""));
    if (column.hint) button.title = column.hint;
    button.addEventListener("click", () => {
      order = { column, down: isOrder ? !order.down : !(column.className || "").startsWith("text") };
      drawBuckets();
    });
  }
}

function drawBuckets() {
  const table = document.getElementById("buckets");
  table.replaceChildren();
  drawBucketHead(table);
  const body = element("tbody", table);
  const list = sortedBuckets();
  for (const bucket of list) {
    const row = element("tr", body);
    row.dataset.bucket = bucket.id;
    if (bucket === view.chosen) row.className = "chosen";
    for (const { text, className, colour } of columns) {
      const cell = element("td", row, colour ? undefined : text(bucket), className);
      if (colour) addSwatch(cell, colour(bucket), text(bucket));
    }
  }
  document.getElementById("shown").textContent =
    `${list.length} of ${buckets.length} buckets, ${bytesText(sumOf(list, b => b.bytes))}; click one to find it above`;
}

// Marks a bucket, or none, in the picture and in the list.
function choose(bucket) {
  view.chosen = bucket;
  for (const row of document.querySelectorAll("#buckets tbody tr")) {
    row.classList.toggle("chosen", bucket !== null && row.dataset.bucket === String(bucket.id));
  }
  redraw();
}

document.getElementById("buckets").addEventListener("click", event => {
  const row = event.target.closest("tbody tr");
  if (!row) return;
  const bucket = buckets[Number(row.dataset.bucket)];
  choose(bucket === view.chosen ? null : bucket);
  if (view.chosen) canvas.scrollIntoView({ block: "nearest" });
});
document.getElementById("filter").addEventListener("input", drawBuckets);

function drawEverything() {
  readTheme();
  drawLegend();
  draw();
  drawRun();
  drawCurve();
  drawTotals();
  drawBuckets();
}

// Paper is light.
function print(on) {
  printing = on;
  document.documentElement.classList.toggle("light", on);
  drawEverything();
}
addEventListener("beforeprint", () => print(true));
addEventListener("afterprint", () => print(false));
addEventListener("resize", () => { redraw(); drawRun(); drawCurve(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawEverything);
drawEverything();
