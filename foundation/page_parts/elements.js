// Building the page: every text becomes a text node, never markup, whoever wrote it.

const byId = (id) => document.getElementById(id);

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value !== undefined && value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

const el = (name, attributes, ...children) => filled(document.createElement(name), attributes, children);
const svg = (name, attributes, ...children) =>
  filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

// Put this in, unless it is there already: nothing flickers, and what is being read stays where it is.
function put(id, ...children) {
  const node = byId(id);
  const next = filled(node.cloneNode(false), {}, children);
  if (!node.isEqualNode(next)) node.replaceChildren(...next.childNodes);
}

function show(id, shown) {
  byId(id).hidden = !shown;
}

const empty = (text, ...more) => el("div", { class: "empty" }, el("p", {}, text), ...more);

const cell = (text, attributes) => el("td", attributes, text);

// Parts of a page: a section with its title, two beside each other, and what a section holds.
const section = (id, title, ...children) =>
  el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title), ...children);
const chartSection = (id, title, ...children) => section(id, title, ...children, el("div", { id: `${id}-part` }));
const tableSection = (id, title, kind) => section(id, title, el("div", { id: `${id}-empty` }),
  wide(`${id}-wide`, title, el("table", { class: kind }, el("thead", { id: `${id}-head` }), el("tbody", { id: `${id}-rows` }))), noteOf(id), moreOf(id));
const pair = (...sections) => el("div", { class: "pair" }, ...sections);
const choice = (id, label) => el("p", { id: `${id}-choice`, class: "choice" },
  el("label", { for: `${id}-select` }, label), el("select", { id: `${id}-select` }));
const wide = (id, label, ...children) => el("div", { id, class: "wide", role: "region", tabindex: "0", "aria-label": label }, ...children);
const noteOf = (id) => el("p", { id: `${id}-note`, class: "note" });
const findingOf = (id) => el("p", { id: `${id}-finding`, class: "finding" });
const moreOf = (id) => el("button", { id: `${id}-more`, type: "button", class: "more", hidden: true });

// Headings of a table; those of words, not of figures, stand at the left.
const headRow = (headings, words = []) => el("tr", {}, headings.map((heading, index) =>
  el("th", { scope: "col", class: words.includes(heading) ? "text" : index ? null : "first" }, heading)));

// Rows of a table. On a telephone a row stands by itself, where every figure has its heading beside it.
function named(rows, headings) {
  for (const row of rows) [...row.children].forEach((node, index) => { if (index) node.dataset.name = headings[index]; });
  return rows;
}

const rowOf = ([first, ...rest]) => el("tr", {}, el("th", { scope: "row", class: "first" }, first), rest.map((text) => cell(text)));

// A section's table from its content.
function drawTable(id, { headings, rows, note }) {
  show(`${id}-wide`, rows.length > 0);
  put(`${id}-empty`, rows.length ? [] : empty("None."));
  put(`${id}-head`, headRow(headings));
  put(`${id}-rows`, named(rows.map(rowOf), headings));
  put(`${id}-note`, note);
}

// The figures of a chart for whoever cannot see it, or wants to copy them.
const figures = (headings, rows) => [el("thead", {}, headRow(headings)), el("tbody", {}, rows.map(rowOf))];

// The parts of a section with a chart; made once, so that an open table stays open.
function chartParts(partId, withFigures = true) {
  if (byId(`${partId}-chart`)) return;
  drawn.delete(`${partId}-chart`);
  byId(partId).replaceChildren(
    findingOf(partId),
    el("div", { id: `${partId}-legend`, class: "legend" }),
    el("div", { id: `${partId}-chart`, class: "chart" }),
    noteOf(partId),
    ...(withFigures ? [el("details", {}, el("summary", {}, "Figures as a table"),
      wide(null, "Figures as a table", el("table", { id: `${partId}-figures` })))] : []),
  );
}

function legend(partId, entries) {
  put(`${partId}-legend`, entries.map(([label, kind]) =>
    el("span", { class: "key" }, el("span", { class: `swatch ${kind}`, "aria-hidden": "true" }), label)));
}

function drawTiles(tiles) {
  put("tiles", tiles.map(([name, value, below]) => el("div", {}, el("dt", {}, name), el("dd", {}, el("b", {}, value), el("span", {}, below)))));
}

// One event of a history: when, by whom, what and why.
const happened = ({ unix_seconds: at, actor, text, why, kind }) => el("li", {}, el("span", { class: "when" }, moment(at)),
  el("span", {}, kind === "alert" && [el("span", { class: "pill bad" }, "alert"), " "], actor && [el("b", {}, actor), " "], text, why && `: “${why}”`));

// The button below a table or a list that shows the rest of it.
function more(id, hidden, noun, showAll) {
  const button = byId(id);
  show(id, hidden > 0);
  button.textContent = `Show ${counted(hidden, `more ${noun}`)}`;
  button.onclick = showAll;
}

// A choice among names, the first one unless the reader has chosen.
function offer(id, chosen, options, onChoice) {
  put(`${id}-select`, options);
  const select = byId(`${id}-select`);
  select.value = chosen;
  select.onchange = () => onChoice(select.value);
}
