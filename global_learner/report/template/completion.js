// Average completion times: bars by cluster and policy; where they would be too many, a dot each on a line a cluster.

const MOST_BARS = 18;

function drawCompletion({ completion, clusters, told }) {
  if (!completion) {
    byId("completion-part").replaceChildren(empty(!told ? NOT_TOLD : clusters.length ? "No job is completed yet." : "There are no jobs yet."));
    return;
  }
  chartParts("completion-part");
  const { policies, rows, proposed } = completion;
  put("completion-part-finding", completion.finding);
  const kind = (key, index) => (key === proposed ? "p-own" : `p-${Math.min(index, 4)}`);
  legend("completion-part", policies.map(({ key, label }, index) => [label, kind(key, index)]));
  put("completion-part-figures", figures(["Cluster", ...policies.map(({ label }) => label)],
    rows.map((row) => [row.cluster, ...policies.map(({ key }) => duration(row.seconds[key]))])));
  const [unit, size] = unitFor(Math.max(...rows.flatMap((row) => Object.values(row.seconds))));
  const label = `Average completion time by cluster and policy: ${rows.slice(0, 8).map((row) =>
    `${row.cluster} ${policies.map((policy) => `${policy.label} ${duration(row.seconds[policy.key])}`).join(", ")}`).join("; ")}`;
  const bars = rows.length * policies.length <= MOST_BARS;
  put("completion-part-note", completion.note + (bars ? "" : ` Scroll for all ${whole(rows.length)} clusters.`));
  byId("completion-part-chart").classList.toggle("tall", !bars);
  showChart("completion-part-chart", label, completion, (root, width) =>
    (bars ? paintBars : paintDots)(root, width, { policies, rows, kind, unit, size }));
}

function paintBars(root, width, { policies, rows, kind, unit, size }) {
  const [bar, gap, headed] = [23, 14, 20]; // a bar with the space below it
  const most = Math.max(...rows.flatMap((row) => Object.values(row.seconds))) / size || 1;
  const long = (value) => Math.max((value / most) * (width - 64), 1);
  const marks = [];
  let top = 0;
  rows.forEach((row) => {
    root.append(svg("text", { class: "row", x: 0, y: top + 14 }, shortened(row.cluster, Math.floor(width / 8))));
    policies.forEach(({ key, label }, position) => {
      const seconds = row.seconds[key];
      if (seconds === undefined) return;
      const y = top + headed;
      root.append(svg("rect", { class: kind(key, position), x: 0, y, width: long(seconds / size), height: bar - 3, rx: 3 }),
        svg("text", { class: "value", x: long(seconds / size) + 6, y: y + 14 }, `${digits(seconds / size)} ${unit}`));
      marks.push({ x: long(seconds / size), y: y + bar / 2 - 1.5, text: [row.cluster, `${label}: ${duration(seconds)}`] });
      top += bar;
    });
    top += headed + gap;
  });
  return { height: top - gap + 2, marks };
}

function paintDots(root, width, { policies, rows, kind, unit, size }) {
  const row = 19;
  const height = rows.length * row + 48;
  const left = Math.min(170, width * 0.34);
  const high = (Math.max(...rows.flatMap((entry) => Object.values(entry.seconds))) / size) * 1.04 || 1;
  const sx = (value) => left + (value / high) * (width - left - 14);
  root.append(svg("text", { class: "name", x: width - 14, y: 12, "text-anchor": "end" }, `average completion time [${unit}]`));
  for (const value of ticks(0, high, width < 500 ? 4 : 7)) { // above the rows, of which there may be many
    root.append(svg("text", { class: "tick", x: sx(value), y: 32, "text-anchor": "middle" }, plain(value)));
  }
  const marks = [];
  rows.forEach((entry, index) => {
    const y = 50 + index * row;
    const values = Object.values(entry.seconds).map((seconds) => sx(seconds / size));
    root.append(svg("text", { class: "tick", x: left - 8, y: y + 4, "text-anchor": "end" }, shortened(entry.cluster, Math.floor(left / 7))),
      svg("line", { class: "grid", x1: left, x2: width - 14, y1: y, y2: y }),
      svg("line", { class: "span", x1: Math.min(...values), x2: Math.max(...values), y1: y, y2: y }));
    policies.forEach(({ key, label }, position) => {
      const seconds = entry.seconds[key];
      if (seconds === undefined) return;
      root.append(svg("circle", { class: kind(key, position), cx: sx(seconds / size), cy: y, r: 5 }));
      marks.push({ x: sx(seconds / size), y, text: [entry.cluster, `${label}: ${duration(seconds)}`] });
    });
  });
  return { height, marks };
}
