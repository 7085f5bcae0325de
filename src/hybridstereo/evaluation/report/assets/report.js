"use strict";

const root = document.documentElement;

// ---- Colours: a picture with a palette is shown in another one by replacing its PLTE chunk. ----

const palettes = JSON.parse(document.getElementById("palettes").textContent);
const chosen = { disparity: Object.keys(palettes.disparity)[0], error: Object.keys(palettes.error)[0] };
const PALETTE_TYPE = 37, PALETTE = 41, PALETTE_CRC = 809; // byte offsets, see report_pictures.py

const crcTable = Uint32Array.from({ length: 256 }, (_, value) => {
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? 0xedb88320 ^ (value >>> 1) : value >>> 1;
  return value;
});

function crc32(bytes) {
  let crc = 0xffffffff;
  for (const byte of bytes) crc = crcTable[(crc ^ byte) & 255] ^ (crc >>> 8);
  return ~crc >>> 0;
}

function fromBase64(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

// What an image shows at first: its data, the kind of its palette (none: a photograph), its text.
const originals = new WeakMap();

function original(image) {
  if (!originals.has(image)) {
    originals.set(image, { source: image.src, kind: image.dataset.palette, alt: image.alt });
  }
  return originals.get(image);
}

// What an image shows now: one of the originals, in a named palette.
const shown = new WeakMap();

function show(image, content) {
  const name = content.kind ? chosen[content.kind] : "photograph";
  const now = shown.get(image);
  if (now && now.content === content && now.name === name) return;
  if (image.src.startsWith("blob:")) URL.revokeObjectURL(image.src);
  image.src = content.kind ? recoloured(content.source, palettes[content.kind][name]) : content.source;
  image.alt = content.alt;
  shown.set(image, { content, name });
}

function recoloured(source, palette) {
  const bytes = fromBase64(source.slice(source.indexOf(",") + 1));
  bytes.set(fromBase64(palette), PALETTE);
  new DataView(bytes.buffer).setUint32(PALETTE_CRC, crc32(bytes.subarray(PALETTE_TYPE, PALETTE_CRC)));
  return URL.createObjectURL(new Blob([bytes], { type: "image/png" }));
}

function refresh(image) {
  const now = shown.get(image);
  show(image, now ? now.content : original(image));
}

// Only pictures in view are recoloured, or a report of hundreds of scenes would stall.
const inView = new IntersectionObserver(
  (entries) => entries.forEach((entry) => entry.isIntersecting && refresh(entry.target)),
  { rootMargin: "800px" },
);

function chooseColors(kind, name) {
  chosen[kind] = name;
  if (kind === "error") root.dataset.errors = name;
  inView.disconnect();
  document.querySelectorAll("img[data-palette]").forEach((image) => inView.observe(image));
  if (viewer.open) refresh(viewerImage);
}

for (const kind of ["disparity", "error"]) {
  const select = document.getElementById(`${kind}-colors`);
  select.addEventListener("change", () => chooseColors(kind, select.value));
}

// ---- Flipping between a map and the truth, an error map and the left image. ----

function partner(button) {
  const scene = button.closest(".scene");
  return scene.querySelector(`.given [data-kind="${button.dataset.other}"] img`);
}

function flip(button) {
  const flipped = button.getAttribute("aria-pressed") !== "true";
  const image = button.querySelector("img"), badge = button.querySelector(".badge");
  const own = original(image);
  badge.dataset.own ??= badge.textContent;
  show(image, flipped ? original(partner(button)) : own);
  badge.textContent = flipped ? button.dataset.badge : badge.dataset.own;
  button.setAttribute("aria-pressed", flipped);
}

for (const button of document.querySelectorAll("button.picture")) {
  button.addEventListener("click", () => flip(button));
  button.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    event.preventDefault();
    flip(button);
  });
}

// ---- The large view of one method on one scene. ----

const viewer = document.getElementById("viewer");
const viewerImage = document.getElementById("viewer-image");
const viewerBadge = document.getElementById("viewer-badge");
const viewed = { tiles: [], index: 0, kind: "disparity", flipped: false };

function drawViewer() {
  const tile = viewed.tiles[viewed.index];
  const button = tile.querySelector(`[data-kind="${viewed.kind}"]`);
  const image = viewed.flipped ? partner(button) : button.querySelector("img");
  show(viewerImage, original(image));
  const scene = tile.closest(".scene").querySelector("h3").textContent;
  document.getElementById("viewer-title").textContent = `${scene} – ${tile.dataset.method}`;
  const own = viewed.kind === "error" ? "Error map" : "Disparity map";
  viewerBadge.textContent = viewed.flipped ? button.dataset.badge : own;
  viewerBadge.classList.toggle("flipped", viewed.flipped);
  viewer.querySelector('[data-act="kind"]').textContent = viewed.kind === "error" ? "Disparity" : "Errors";
  viewer.querySelector('[data-act="flip"]').setAttribute("aria-pressed", viewed.flipped);
}

function step(by) {
  viewed.index = (viewed.index + by + viewed.tiles.length) % viewed.tiles.length;
}

const acts = {
  previous: () => step(-1),
  next: () => step(1),
  kind: () => { viewed.kind = viewed.kind === "error" ? "disparity" : "error"; },
  flip: () => { viewed.flipped = !viewed.flipped; },
  close: () => viewer.close(),
};
const keys = { ArrowUp: "previous", ArrowDown: "next", ArrowLeft: "flip", ArrowRight: "flip" };

function act(name) {
  acts[name]();
  if (viewer.open) drawViewer();
}

for (const button of document.querySelectorAll(".enlarge")) {
  button.addEventListener("click", () => {
    const tile = button.closest(".tile");
    viewed.tiles = [...tile.parentElement.querySelectorAll(".tile:has(button.picture)")];
    viewed.index = viewed.tiles.indexOf(tile);
    viewed.flipped = false;
    viewer.showModal();
    drawViewer();
  });
}
viewer.addEventListener("click", (event) => {
  const button = event.target.closest("[data-act]");
  if (button) act(button.dataset.act);
  else if (event.target.closest(".stage")) act("flip");
  else if (event.target === viewer) viewer.close(); // beside the window
});
viewer.addEventListener("keydown", (event) => {
  if (!(event.key in keys)) return;
  event.preventDefault();
  act(keys[event.key]);
});

// ---- Sorting. ----

const words = new Intl.Collator(undefined, { numeric: true });

function compare(a, b) {
  return a !== "" && b !== "" && !isNaN(a) && !isNaN(b) ? a - b : words.compare(a, b);
}

function sortBy(header) {
  const table = header.closest("table"), body = table.tBodies[0];
  const ascending = header.getAttribute("aria-sort") !== "ascending";
  const value = (row) => row.cells[header.cellIndex]?.dataset.value ?? "";
  const rows = [...body.rows].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === "" || y === "") return (x === "") - (y === ""); // what has no value comes last
    return ascending ? compare(x, y) : compare(y, x);
  });
  table.querySelectorAll("thead th").forEach((other) => other.setAttribute("aria-sort", "none"));
  header.setAttribute("aria-sort", ascending ? "ascending" : "descending");
  body.append(...rows);
}

for (const header of document.querySelectorAll(".sortable thead th")) {
  header.querySelector("button").addEventListener("click", () => sortBy(header));
}

// ---- Groups of figures. ----

const group = document.getElementById("group");
group.addEventListener("change", () => {
  for (const table of document.querySelectorAll(".sortable")) {
    const there = table.querySelector(`[data-group="${group.value}"]`);
    // Figures of single scenes cannot be pooled: show the same pixels.
    const wanted = there ? group.value : group.value.startsWith("all") ? "all" : "main";
    for (const cell of table.querySelectorAll("[data-group]")) {
      cell.hidden = cell.dataset.group !== wanted;
    }
  }
});

// ---- Dark and light: what the system says, until the reader says otherwise. ----

const themeButton = document.getElementById("theme");
const systemDark = matchMedia("(prefers-color-scheme: dark)");

function isDark() {
  return root.dataset.theme ? root.dataset.theme === "dark" : systemDark.matches;
}

function nameTheme() {
  themeButton.textContent = isDark() ? "☀ Light" : "☾ Dark";
}

themeButton.addEventListener("click", () => {
  root.dataset.theme = isDark() ? "light" : "dark";
  nameTheme();
});
systemDark.addEventListener("change", nameTheme);
themeButton.hidden = false;
nameTheme();
