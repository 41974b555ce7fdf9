// Which version acts where and how each fared, a row a version; and the versions' cards, newest first.

const FEW_VERSIONS = 10;
let allVersions = false;

function drawVersions(data) {
  const { versions, versions_left_out: leftOut, learner, score_over: over } = data;
  show("versions-wide", versions.length > 0);
  put("versions-empty", versions.length ? [] : empty("No version has been published yet."));
  const scored = versions.some((row) => row.score !== null || !["", "off"].includes(row.score_state));
  const headings = ["Version", "From", "Step", "Updates", ...(scored ? ["Score"] : []), "Staleness", "Contributors", "Assigned to", "Published", "Size", "Digest"];
  put("versions-head", headRow(headings, ["Contributors", "Assigned to", "Digest"]));
  const inUse = (row) => row.aliases.length > 0 || row.assigned.length > 0;
  const shown = allVersions ? versions : versions.filter((row, index) => index < FEW_VERSIONS || inUse(row));
  put("versions-rows", named(shown.map((row) => versionRow(row, scored)), headings));
  const parts = Object.entries(learner.disk_bytes).filter(([, bytes]) => bytes).map(([part, bytes]) => `${part} ${size(bytes)}`);
  put("versions-note", over ? `Score: average completion time over that of ${over}, as in the learning curve; lower is better. ` : "",
    leftOut ? `${counted(leftOut, "older version")} left out; policyctl version list shows all. ` : "",
    parts.length ? `The learner keeps on disk: ${parts.join(", ")}.` : "");
  more("versions-more", versions.length - shown.length, "version", () => { allVersions = true; drawVersions(data); });
}

function versionRow(row, scored) {
  const contributors = Object.keys(row.contributions).length;
  return el("tr", {},
    el("th", { scope: "row", class: "first" }, `v${row.version}`, ...row.aliases.flatMap((alias) => [" ", el("span", { class: "pill now" }, alias)]), row.pinned && " ", row.pinned && el("span", { class: "pill idle" }, "pinned")),
    cell(row.parent ? `v${row.parent}` : "–"), cell(whole(row.head_step)), cell(whole(row.updates)),
    scored && (row.score === null ? cell(row.score_state === "scored" ? "on other replays" : row.score_state || "–")
      : cell(row.score.toFixed(3), { class: row.score < 1 ? "better" : "worse" })),
    cell(row.updates ? digits(row.staleness_p50) : "–"),
    el("td", { class: "text" }, contributors ? shares(row.contributions, 3) : row.origin || (row.parent ? "no update" : "first policy")),
    el("td", { class: "text" }, row.assigned.length > 3 ? counted(row.assigned.length, "cluster") : row.assigned.join(", ") || "–"),
    cell(moment(row.created_unix_seconds)), cell(size(row.size_bytes)),
    el("td", { class: "text short" }, el("code", { title: row.digest }, row.digest.slice(0, 12))));
}

function drawActing({ acting, told }) {
  show("acting", acting.length > 0);
  const headings = ["Version", told ? "Acts in" : "Assigned to", "Took, on the same jobs", "Rollout"];
  put("acting-head", headRow(headings, headings));
  put("acting-rows", acting.map((row) => el("tr", {},
    el("th", { scope: "row", class: "first" }, row.version ? `v${row.version}` : "own policy", row.from && el("small", {}, row.from)),
    el("td", { class: "text" }, row.clusters.length > 4 ? counted(row.clusters.length, "cluster") : row.clusters.join(", ") || "no cluster"),
    el("td", { class: "text" }, el("span", { class: row.score === null ? null : row.score < 1 ? "better" : "worse" }, row.fared)),
    el("td", { class: "text" }, row.rollout ? [el("span", { class: `pill ${row.rollout.tone}` }, row.rollout.word),
      row.rollout.said && el("small", {}, row.rollout.said)] : "none"))));
}
