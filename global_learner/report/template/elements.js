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

// A table in a row of its own below a chart: the same figures for whoever cannot see it, or wants to copy them.
function figures(headings, rows) {
  return [
    el("thead", {}, el("tr", {}, headings.map((heading) => el("th", { scope: "col" }, heading)))),
    el("tbody", {}, rows.map(([first, ...rest]) => el("tr", {}, el("th", { scope: "row" }, first), rest.map((text) => cell(text))))),
  ];
}

// The parts of a section with a chart; made once, so that an open table stays open.
function chartParts(partId) {
  if (byId(`${partId}-chart`)) return;
  drawn.delete(`${partId}-chart`);
  byId(partId).replaceChildren(
    el("p", { id: `${partId}-finding`, class: "finding" }),
    el("div", { id: `${partId}-legend`, class: "legend" }),
    el("div", { id: `${partId}-chart`, class: "chart" }),
    el("p", { id: `${partId}-note`, class: "note" }),
    el("details", {}, el("summary", {}, "Figures as a table"),
      el("div", { class: "wide", role: "region", tabindex: "0", "aria-label": "Figures as a table" },
        el("table", { id: `${partId}-figures` }))),
  );
}

function legend(partId, entries) {
  put(`${partId}-legend`, entries.map(([label, kind]) =>
    el("span", { class: "key" }, el("span", { class: `swatch ${kind}`, "aria-hidden": "true" }), label)));
}
