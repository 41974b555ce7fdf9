// One job's workers and parameter servers over its time in the system, with what the guard did meanwhile.

const FEWEST_RESIZES = 3;
const READABLE_RESIZES = 25;
const MORE_PS = "Parameter servers may outnumber workers: of a large model, sharing the parameters among more of them can"
  + " gain more than another worker does. ";
let chosenJob = null;

function drawJob({ jobs, told }) {
  show("job-choice", jobs.length > 0);
  if (!jobs.length) {
    byId("job-part").replaceChildren(!told ? empty(NOT_TOLD) : empty("No cluster tells the timelines of its jobs.",
      el("p", {}, "They stay in the cluster unless its operator sets ", el("code", {}, "learner.job_timelines"), ".")));
    return;
  }
  if (!jobs.some(({ id }) => id === chosenJob)) chosenJob = telling(jobs).id;
  const clusters = [...new Set(jobs.map(({ cluster }) => cluster))];
  offer("job", chosenJob, clusters.map((cluster) => el("optgroup", { label: cluster },
    jobs.filter((job) => job.cluster === cluster).map((job) => el("option", { value: job.id }, caption(job))))), (id) => { chosenJob = id; drawJob({ jobs }); });
  chartParts("job-part");
  drawLife(jobs.find(({ id }) => id === chosenJob));
}

// A job like others: the middle one by resizes, of those that were resized a few times and mostly had several workers;
// without such jobs the one that was resized most, as far as its resizes can still be told apart.
function telling(jobs) {
  const readable = jobs.filter(({ resizes }) => resizes <= READABLE_RESIZES);
  const usual = readable.filter((job) => job.resizes >= FEWEST_RESIZES && mostlySeveralWorkers(job))
    .sort((one, other) => one.resizes - other.resizes);
  if (usual.length) return usual[(usual.length - 1) >> 1];
  return (readable.length ? readable : jobs).reduce((best, job) => (job.resizes > best.resizes ? job : best));
}

function mostlySeveralWorkers({ held }) {
  const trains = held.filter(([, workers]) => workers > 0);
  return 2 * trains.filter(([, workers]) => workers > 1).length > trains.length;
}

const caption = (job) => `${job.name} · ${job.job_type} · ${job.completed ? duration(job.seconds) : "running"}`;

function drawLife(job) {
  put("job-part-finding", `${job.name[0].toUpperCase()}${job.name.slice(1)} (${job.job_type}, ${job.cluster}) `
    + (job.completed ? `took ${duration(job.seconds)}` : `has been in the system for ${duration(job.seconds)}`)
    + ` and was resized ${job.resizes === 1 ? "once" : `${whole(job.resizes)} times`}`
    + (job.interventions.length ? `; the guard stepped in ${job.interventions.length === 1 ? "once" : `${job.interventions.length} times`}.` : "."));
  legend("job-part", [["workers", "c0"], ["parameter servers", "line c1"], ["waiting", "waits"],
    ...(job.interventions.length ? [["guard intervention", "guard"]] : [])]);
  const cut = job.held.length && job.held[0][0] > 0;
  const morePs = job.held.some(([, workers, ps]) => workers && ps > workers);
  put("job-part-note", morePs ? MORE_PS : "", cut ? "Of a job that is resized very often the latest changes are shown." : "");
  put("job-part-figures", figures(["From", "Workers", "PS", "Guard"], [
    ...job.held.map(([at, workers, ps], index) => {
      const until = job.held[index + 1]?.[0] ?? Infinity;
      const reasons = job.interventions.filter(([when]) => when >= at && when < until).map(([, reason]) => reason);
      return [duration(at), workers, ps, reasons.join(", ") || "–"];
    }),
    [duration(job.seconds), job.completed ? "completed" : "now", "", ""],
  ]));
  const most = Math.max(...job.held.map(([, workers, ps]) => Math.max(workers, ps)), 0);
  const label = `Workers and parameter servers of ${job.name} of ${job.cluster} over ${duration(job.seconds)}; at most ${most}`;
  showChart("job-part-chart", label, job, (root, width) => paintLife(root, width, job, most));
}

function paintLife(root, width, job, most) {
  const height = chartHeight(width, 220, 300, 0.32);
  const [unit, size] = unitFor(Math.max(job.seconds, 1));
  const first = job.held[0]?.[0] > 0 ? job.held[0][0] / size : 0;
  const end = Math.max(job.seconds / size, first + 1e-9);
  const high = Math.max(most, 1) * 1.12;
  const { sx, sy } = frame(root, {
    width, height,
    x: { low: first, high: end, ticks: ticks(first, end, width < 500 ? 5 : 10), name: `time since submission [${unit}]` },
    y: { low: 0, high, ticks: ticks(0, high, 4).filter((value) => Number.isInteger(value)), name: "tasks" },
  });
  const spans = job.held.map((point, index) => [point, (job.held[index + 1]?.[0] ?? job.seconds) / size]);
  for (const [[at, workers, ps], until] of spans) {
    if (!workers && !ps) root.append(svg("rect", { class: "waits", x: sx(at / size), y: sy(high), width: Math.max(sx(until) - sx(at / size), 0), height: sy(0) - sy(high) }));
  }
  const steps = (which) => spans.map(([point, until], index) =>
    `${index ? "L" : "M"}${sx(point[0] / size)} ${sy(point[which])}L${sx(until)} ${sy(point[which])}`).join("");
  if (spans.length) {
    root.append(svg("path", { class: "area c0", d: `${steps(1)}L${sx(end)} ${sy(0)}L${sx(first)} ${sy(0)}Z` }),
      svg("path", { class: "line broad c0", d: steps(1) }), svg("path", { class: "line narrow c1", d: steps(2) }));
  }
  const marks = spans.map(([[at, workers, ps], until]) => ({
    x: (sx(at / size) + sx(until)) / 2, y: sy(workers),
    text: [`${duration(at)} to ${duration(until * size)}`, workers || ps ? `${counted(workers, "worker")}, ${whole(ps)} PS` : "waits"],
  }));
  for (const [at, reason] of job.interventions) {
    const [x, y] = [sx(Math.max(at / size, first)), sy(high) + 8];
    root.append(svg("path", { class: "guard", d: `M${x - 6} ${y - 7}h12l-6 11z` }), svg("line", { class: "guard", x1: x, x2: x, y1: y, y2: sy(0) }));
    marks.push({ x, y, text: ["guard intervention", `${reason}, after ${duration(at)}`] });
  }
  return { height, marks: marks.sort((one, other) => one.x - other.x) };
}
