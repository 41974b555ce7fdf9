// Page of real jobs that trained on one machine.

byId("parts").append(
  chartSection("sizes", "Workers and parameter servers of every job"),
  pair(chartSection("loss", "Loss of every job"), chartSection("accuracy", "Accuracy on data that no job trained on")),
  pair(chartSection("beliefs", "Believed and measured speeds"), tableSection("versions", "Versions that decided here", "stacked")),
  tableSection("resizes", "Every resize, and how long it kept workers waiting", "stacked"),
);

const SECONDS = (at) => `${plain(at)} s`;
const SHARE = (share) => `${plain(100 * share)}%`;
const power = (exponent) => plain(10 ** exponent);

// A logarithmic axis between two of the steps 1, 2, 5, 10, …, so that also values within one power of ten have a height.
function powers(values) {
  const logs = values.map(Math.log10);
  const [least, most] = [Math.min(...logs), Math.max(...logs)];
  const steps = [];
  for (let exponent = Math.floor(least) - 1; exponent <= Math.ceil(most) + 1; exponent += 1) steps.push(...[1, 2, 5].map((step) => exponent + Math.log10(step)));
  const low = steps.findLast((step) => step <= least);
  const high = steps.find((step) => step >= most && step > low);
  const within = steps.filter((step) => step >= low && step <= high);
  const whole = within.filter(Number.isInteger);
  return { low, high, ticks: whole.length > 2 ? whole : within, format: power };
}

function draw({ headline, lead, made, tiles, seconds, jobs, loss, accuracy, beliefs, tables }) {
  put("headline", headline);
  put("headline-note", lead);
  put("updated", made);
  drawTiles(tiles);
  show("parts", true);
  drawPart("sizes", "Workers and parameter servers of every job over time", { jobs, seconds }, jobs.length, paintLanes, {
    note: "Workers stand above each line, parameter servers below it. Where the bar is thin, a grey job waits, and a coloured one starts its "
      + "processes or goes on from its checkpoint. ▲ marks the end of a resize, a suspension, or a resumption.",
  });
  drawLines("loss", "Loss over time", { lines: loss, seconds, log: true }, "As its script printed it of single batches, smoothed.");
  drawLines("accuracy", "Accuracy over time", { lines: accuracy, seconds }, "As its script printed it.");
  drawPart("beliefs", "Believed over measured speed", beliefs, beliefs.points.length, paintBeliefs, {
    legend: beliefs.types.map((name, index) => [name, `c${index % 6}`]),
    note: "A point is one interval of one job: its speed as its coordinator counted it, and the speed that was believed of that size "
      + "before. Pale is early, dense is late; on the dashed line the belief was right.",
  });
  for (const [id, table] of Object.entries(tables)) drawTable(id, table);
}

function drawPart(id, label, content, any, paint, words) {
  if (!any) {
    byId(`${id}-part`).replaceChildren(empty("Nothing was seen."));
    return;
  }
  chartParts(`${id}-part`, false);
  legend(`${id}-part`, words.legend ?? []);
  put(`${id}-part-note`, words.note);
  showChart(`${id}-part-chart`, label, content, (root, width) => paint(root, width, content));
}

function drawLines(id, label, content, note) {
  const lines = content.lines.filter(({ points }) => points.length);
  drawPart(id, label, { ...content, lines }, lines.length, paintRun, { legend: lines.map(({ name, color }) => [name, `c${color}`]), note });
}

// All jobs below each other: workers up, parameter servers down, one height a task.
function paintLanes(root, width, { jobs, seconds }) {
  const narrow = width < 700; // names stand above the lines, not beside them
  const [left, above, right] = narrow ? [2, 24, 2] : [138, 0, 18];
  const tasks = (which) => Math.max(1, ...jobs.flatMap(({ held }) => held.map((entry) => entry[which])));
  const unit = Math.min(18, 54 / tasks(1));
  const [up, down] = [unit * tasks(1) + 8, 0.7 * unit * tasks(2) + 8];
  const height = jobs.length * (above + up + down) + 30;
  const times = { low: 0, high: seconds, ticks: ticks(0, seconds, narrow ? 4 : 8), format: SECONDS, name: "" };
  const { sx } = frame(root, { width, height, left, right, top: 0, bottom: 24, x: times, y: { low: 0, high: 1, ticks: [], name: "" } });
  for (const at of times.ticks) root.append(svg("line", { class: "grid", x1: sx(at), x2: sx(at), y1: 0, y2: height - 24 }));
  const marks = jobs.flatMap((job, place) => {
    const base = place * (above + up + down) + above + up;
    root.append(svg("line", { class: "axis", x1: left, x2: width - right, y1: base, y2: base }));
    const [name, end] = narrow ? [{ x: 0, y: base - up - 5 }, { x: width, y: base - up - 5, "text-anchor": "end" }] : [{ x: 0, y: base - 4 }, { x: 0, y: base + 11 }];
    root.append(svg("text", { class: "row", ...name }, shortened(job.name, narrow ? 32 : 18)), svg("text", { class: "tick", ...end }, job.end));
    return [...paintHeld(root, job, base, unit, sx), ...job.marks.map(([at, words]) => {
      root.append(svg("path", { class: "mark", d: `M${sx(at)} ${base + down - 8}l-4 7h8z` }));
      return { x: sx(at), y: base + down - 4, text: [job.name, words] };
    })];
  });
  return { height, marks };
}

function paintHeld(root, { name, submitted, ended, held, color }, base, unit, sx) {
  return [[submitted, 0, 0, "queued"], ...held].map(([at, workers, ps, state], index, all) => {
    const until = index + 1 < all.length ? all[index + 1][0] : ended;
    const [x, long] = [sx(at), Math.max(sx(until) - sx(at), 0)];
    const box = (kind, y, tall) => root.append(svg("rect", { class: kind, x, y, width: long, height: tall }));
    if (!workers) box(state === "starting" ? `c${color} starts` : "waits", base - 3, 6);
    box(`c${color}`, base - unit * workers, unit * workers);
    box(`c${color} ps`, base, 0.7 * unit * ps);
    for (let row = 1; row < workers; row += 1) {
      root.append(svg("line", { class: "between", x1: x, x2: x + long, y1: base - unit * row, y2: base - unit * row }));
    }
    const size = workers ? `${counted(workers, "worker")}, ${whole(ps)} PS` : state;
    return { x: x + long / 2, y: base - (unit * workers) / 2, text: [name, size, `${SECONDS(Math.round(at))} to ${SECONDS(Math.round(until))}`] };
  });
}

// Lines over the run's time: shares of one, or values on a logarithmic axis.
function paintRun(root, width, { lines, seconds, log }) {
  const height = 250;
  const of = (value) => (log ? Math.log10(value) : value);
  const values = lines.flatMap(({ points }) => points.map(([, value]) => value));
  const low = Math.min(...values, 0.9);
  const { sx, sy } = frame(root, {
    width, height,
    x: { low: 0, high: seconds, ticks: ticks(0, seconds, 6), format: SECONDS, name: "" },
    y: { ...(log ? powers(values) : { low, high: 1, ticks: ticks(low, 1, 5), format: SHARE }), name: "" },
  });
  const marks = lines.flatMap(({ name, color, points }) => {
    const at = points.map(([when, value]) => [sx(when), sy(of(value))]);
    root.append(svg("path", { class: `line c${color}`, d: pathOf(at) }), svg("circle", { class: `c${color}`, cx: at.at(-1)[0], cy: at.at(-1)[1], r: 3 }));
    return points.map(([when, value], index) => ({ x: at[index][0], y: at[index][1], text: [name, log ? digits(value) : SHARE(value), `after ${duration(when)}`] }));
  });
  return { height, marks };
}

// Believed over measured samples/s, on logarithmic axes.
function paintBeliefs(root, width, { points }) {
  const height = 360;
  const axis = powers(points.flatMap(({ measured, believed }) => [measured, believed]).filter((value) => value > 0));
  const { low, high } = axis;
  const { sx, sy } = frame(root, { width, height, left: 62, x: { ...axis, name: "measured samples/s" }, y: { ...axis, name: "believed before, samples/s" } });
  root.append(svg("line", { class: "line reference", x1: sx(low), y1: sy(low), x2: sx(high), y2: sy(high) }));
  const marks = points.map(({ measured, believed, type, late, words }) => {
    const [x, y] = [sx(Math.log10(measured)), sy(believed > 0 ? Math.log10(believed) : low)];
    root.append(svg("circle", { class: `c${type}`, cx: x, cy: y, r: 5, "fill-opacity": 0.25 + 0.7 * late }));
    return { x, y, text: words };
  });
  return { height, marks };
}

draw(JSON.parse(byId("data").textContent));
