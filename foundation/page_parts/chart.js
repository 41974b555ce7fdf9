// What all charts share: size, axes, and a pointer that says what is under it, by mouse, finger or arrow keys.

const drawn = new Map();
const observer = new ResizeObserver((entries) => entries.forEach(({ target }) => redraw(target.id)));

// Draw into a container, again whenever its width changes.
// paint(root, width) draws and returns {height, marks}; a mark is {x, y, text: [line, …]}.
function showChart(id, label, facts, paint) {
  const known = drawn.get(id);
  const wanted = JSON.stringify([label, facts]);
  if (known?.wanted === wanted) return;
  if (!known) observer.observe(byId(id));
  drawn.set(id, { label, wanted, paint, width: 0 });
  redraw(id);
}

function redraw(id) {
  const chart = drawn.get(id);
  const container = byId(id);
  const width = container ? Math.floor(container.clientWidth) : 0;
  if (!chart || width < 40 || chart.width === width) return;
  chart.width = width;
  const root = svg("svg", { role: "img", "aria-label": chart.label, tabindex: "0" });
  const { height, marks } = chart.paint(root, width);
  filled(root, { viewBox: `0 0 ${width} ${height}`, width, height }, []);
  root.append(svg("circle", { class: "cursor", r: 5, visibility: "hidden" }));
  explain(root, marks, width);
  container.replaceChildren(root);
}

function explain(root, marks, width) {
  let at = -1;
  const cursor = root.lastElementChild;
  const point = (index, spoken) => {
    at = index;
    const mark = marks[index];
    filled(cursor, { cx: mark.x, cy: mark.y, visibility: "visible" }, []);
    showTip(root, mark, width);
    if (spoken) byId("spoken").textContent = mark.text.join(", ");
  };
  const leave = () => {
    cursor.setAttribute("visibility", "hidden");
    byId("tip").hidden = true;
  };
  root.addEventListener("pointermove", (event) => {
    const box = root.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const far = marks.map((mark) => Math.abs(mark.x - x) + 0.4 * Math.abs(mark.y - y));
    if (marks.length) point(far.indexOf(Math.min(...far)), false);
  });
  root.addEventListener("pointerleave", leave);
  root.addEventListener("blur", leave);
  root.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") leave();
    if (!step || !marks.length) return;
    event.preventDefault();
    point(at < 0 ? 0 : (at + step + marks.length) % marks.length, true);
  });
}

function showTip(root, mark, width) {
  const tip = byId("tip");
  const box = root.getBoundingClientRect();
  tip.replaceChildren(...mark.text.map((line, index) => el(index ? "span" : "b", {}, line)));
  tip.hidden = false;
  const left = mark.x > width / 2 ? mark.x - tip.offsetWidth - 14 : mark.x + 14;
  tip.style.left = `${Math.min(Math.max(box.left + left, 4), document.documentElement.clientWidth - tip.offsetWidth - 4)}px`;
  tip.style.top = `${Math.max(box.top + mark.y - tip.offsetHeight / 2, 4)}px`;
}

// Round numbers from 0 or `low` up to `high`, about `count` of them.
function ticks(low, high, count) {
  const raw = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= raw);
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.max(Math.floor(high / step + 1e-9) - first + 1, 1) }, (_, index) => (first + index) * step);
}

const plain = (value) => Number(value.toPrecision(6)).toLocaleString("en-US");

// Grid, axes and their words; returns the scales. `y` counts from the bottom.
function frame(root, { width, height, x, y, left = 46, bottom = 42, top = 26, right = 14 }) {
  const sx = (value) => left + ((value - x.low) / (x.high - x.low || 1)) * (width - left - right);
  const sy = (value) => height - bottom - ((value - y.low) / (y.high - y.low || 1)) * (height - bottom - top);
  for (const value of y.ticks) {
    root.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: sy(value), y2: sy(value) }),
      svg("text", { class: "tick", x: left - 7, y: sy(value) + 4, "text-anchor": "end" }, (y.format ?? plain)(value)));
  }
  root.append(svg("line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }));
  for (const value of x.ticks) {
    root.append(svg("text", { class: "tick", x: sx(value), y: height - bottom + 17, "text-anchor": "middle" }, (x.format ?? plain)(value)));
  }
  root.append(svg("text", { class: "name", x: 0, y: 12 }, y.name),
    svg("text", { class: "name", x: width - right, y: height - 6, "text-anchor": "end" }, x.name));
  return { sx, sy, left, right, top, bottom };
}

// A name that would not fit is cut; the tip and the table say all of it.
const shortened = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

// A line through points of the picture, with gaps where one is not known; a point alone between gaps is a dot.
function pathOf(points) {
  return points.map(([x, y], index) => {
    if (y === null) return "";
    const begins = index === 0 || points[index - 1][1] === null;
    const alone = begins && points.length > 1 && (index === points.length - 1 || points[index + 1][1] === null);
    return `${begins ? "M" : "L"}${x} ${y}${alone ? "h1" : ""}`;
  }).join("");
}

const chartHeight = (width, least, most, share) => Math.max(least, Math.min(most, width * share));
