// One row a cluster; those that somebody should look after come first.

const FEW_CLUSTERS = 16;
let allClusters = false;

function drawFleet(data) {
  const { clusters, enrolls } = data;
  show("fleet-wide", clusters.length > 0);
  put("fleet-empty", clusters.length ? [] : empty("No cluster has joined yet.",
    el("p", {}, enrolls ? "Invite one: " : "Start an agent that names this learner: ",
      el("code", {}, enrolls ? "policyctl cluster enroll NAME" : "cluster-agent run --config FILE"))));
  const rare = { Duplicate: (row) => row.updates_duplicate, Rejected: rejectedOf, Guard: (row) => row.interventions };
  const shows = {
    identity: enrolls, baseline: clusters.some((row) => row.compared_jct_seconds),
    // What did not happen anywhere has no column.
    ...Object.fromEntries(Object.entries(rare).map(([heading, of]) => [heading, clusters.some((row) => of(row))])),
  };
  const names = new Set(clusters.map((row) => row.compared_with).filter(Boolean));
  shows.which = names.size > 1;
  const baseline = shows.which ? "Baseline" : [...names][0];
  const headings = ["Cluster", ...(shows.identity ? ["Identity"] : []), "Heard", "Acts on", "Running", "Waiting", "Done",
    "Avg. JCT", ...(shows.baseline ? [baseline, "Change"] : []), "Updates", ...Object.keys(rare).filter((heading) => shows[heading])];
  put("fleet-head", headRow(headings));
  const urgent = (row) => (row.state.tone === "bad" ? 0 : 1);
  const sorted = [...clusters].sort((one, other) => urgent(one) - urgent(other) || (one.cluster < other.cluster ? -1 : 1));
  const shown = allClusters ? sorted : sorted.slice(0, FEW_CLUSTERS);
  put("fleet-rows", named(shown.map((row) => fleetRow(row, shows)), headings));
  put("fleet-note", shows.baseline ? `Times are of the jobs completed so far, while versions came and went; ${shows.which ? "the baseline" : baseline} is simulated on the same jobs.` : "");
  more("fleet-more", sorted.length - shown.length, "cluster", () => { allClusters = true; drawFleet(data); });
}

const rejectedOf = (row) => Object.values(row.updates_rejected).reduce((sum, count) => sum + count, 0);

function fleetRow(row, shows) {
  const known = row.registered;
  const number = (value) => cell(known && value !== null ? whole(value) : "–");
  const rejected = rejectedOf(row);
  const ratio = row.compared_jct_seconds && row.avg_jct_seconds ? row.avg_jct_seconds / row.compared_jct_seconds : null;
  return el("tr", {},
    el("th", { scope: "row", class: "first" }, el("span", { class: "cut", title: row.cluster }, row.cluster),
      row.simulated && el("span", { class: "pill warn" }, "simulated"), " ",
      el("span", { class: `pill ${row.state.tone}`, title: row.state.detail }, row.state.word)),
    shows.identity && cell(row.identity ?? "–"),
    cell(row.seconds_since_heard === null ? "–" : `${duration(row.seconds_since_heard < 1 ? 0 : row.seconds_since_heard)} ago`),
    acting(row, known), number(row.jobs_running), number(row.jobs_waiting), number(row.jobs_done),
    cell(duration(row.avg_jct_seconds)),
    shows.baseline && el("td", {}, duration(row.compared_jct_seconds), shows.which && row.compared_with && el("small", {}, row.compared_with)),
    shows.baseline && cell(ratio === null ? "–" : changed(ratio), { class: ratio === null ? null : ratio < 1 ? "better" : "worse" }),
    number(row.updates_accepted), shows.Duplicate && number(row.updates_duplicate),
    shows.Rejected && el("td", { class: rejected ? "bad" : null }, known ? whole(rejected) : "–",
      rejected > 0 && el("small", {}, shares(row.updates_rejected, 2))),
    shows.Guard && number(row.interventions));
}

// "v12"; "v12, v13 assigned" while a version is under way.
function acting(row, known) {
  if (!known || row.acting_version === null) return cell(row.assigned_version ? `v${row.assigned_version} assigned` : "–");
  const acts = row.acting_version ? `v${row.acting_version}` : "own policy";
  const waits = row.assigned_version && row.assigned_version !== row.acting_version;
  return el("td", {}, acts, waits && el("small", {}, `v${row.assigned_version} assigned`),
    row.held && el("small", {}, "held there"));
}
