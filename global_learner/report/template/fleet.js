// One row a cluster; those that somebody should look after come first.

const FEW_CLUSTERS = 16;
let allClusters = false;

function drawFleet(data) {
  const { clusters, enrolls } = data;
  show("fleet-wide", clusters.length > 0);
  put("fleet-empty", clusters.length ? [] : empty("No cluster has joined yet.",
    el("p", {}, enrolls ? "Invite one: " : "Start an agent that names this learner: ",
      el("code", {}, enrolls ? "policyctl cluster enroll NAME" : "cluster-agent run --config FILE"))));
  const baselines = clusters.some((row) => row.baseline_jct_seconds);
  const headings = ["Cluster", ...(enrolls ? ["Identity"] : []), "Heard", "Acts on", "Running", "Waiting", "Done",
    "Avg. JCT", ...(baselines ? ["Baseline", "Change"] : []), "Updates", "Duplicate", "Rejected", "Guard"];
  put("fleet-head", el("tr", {}, headings.map((heading, index) => el("th", { scope: "col", class: index ? null : "first" }, heading))));
  const urgent = (row) => (row.state.tone === "bad" ? 0 : 1);
  const sorted = [...clusters].sort((one, other) => urgent(one) - urgent(other) || (one.cluster < other.cluster ? -1 : 1));
  const shown = allClusters ? sorted : sorted.slice(0, FEW_CLUSTERS);
  put("fleet-rows", shown.map((row) => fleetRow(row, enrolls, baselines)));
  put("fleet-note", baselines ? "Times are of the jobs completed so far, while versions came and went; the baseline is simulated on the same jobs." : "");
  more("fleet-more", sorted.length - shown.length, "cluster", () => { allClusters = true; drawFleet(data); });
}

function fleetRow(row, enrolls, baselines) {
  const known = row.registered;
  const number = (value) => cell(known && value !== null ? whole(value) : "–");
  const rejected = Object.values(row.updates_rejected).reduce((sum, count) => sum + count, 0);
  const ratio = row.baseline_jct_seconds && row.avg_jct_seconds ? row.avg_jct_seconds / row.baseline_jct_seconds : null;
  return el("tr", {},
    el("th", { scope: "row", class: "first" }, el("span", { class: "cut", title: row.cluster }, row.cluster),
      row.simulated && el("span", { class: "pill warn" }, "simulated"), " ",
      el("span", { class: `pill ${row.state.tone}`, title: row.state.detail }, row.state.word)),
    enrolls && cell(row.identity ?? "–"),
    cell(row.seconds_since_heard === null ? "–" : `${duration(row.seconds_since_heard < 1 ? 0 : row.seconds_since_heard)} ago`),
    acting(row, known), number(row.jobs_running), number(row.jobs_waiting), number(row.jobs_done),
    cell(duration(row.avg_jct_seconds)),
    baselines && cell(duration(row.baseline_jct_seconds)),
    baselines && cell(ratio === null ? "–" : changed(ratio), { class: ratio === null ? null : ratio < 1 ? "better" : "worse" }),
    number(row.updates_accepted), number(row.updates_duplicate),
    el("td", { class: rejected ? "bad" : null }, known ? whole(rejected) : "–",
      rejected > 0 && el("small", {}, shares(row.updates_rejected, 2))),
    number(row.interventions));
}

// "v12"; "v12, v13 assigned" while a version is under way.
function acting(row, known) {
  if (!known || row.acting_version === null) return cell(row.assigned_version ? `v${row.assigned_version} assigned` : "–");
  const acts = row.acting_version ? `v${row.acting_version}` : "own policy";
  const waits = row.assigned_version && row.assigned_version !== row.acting_version;
  return el("td", {}, acts, waits && el("small", {}, `v${row.assigned_version} assigned`),
    row.held && el("small", {}, "held there"));
}

// The button below a table that shows the rest of it.
function more(id, hidden, noun, showAll) {
  const button = byId(id);
  show(id, hidden > 0);
  button.textContent = `Show ${counted(hidden, `more ${noun}`)}`;
  button.onclick = showAll;
}
