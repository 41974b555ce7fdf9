// Which version acts where, and how each fared: a row a version.

function drawActing({ acting, told }) {
  show("acting", acting.length > 0);
  const headings = ["Version", told ? "Acts in" : "Assigned to", "Took, on the same jobs", "Rollout"];
  put("acting-head", el("tr", {}, headings.map((heading) => el("th", { scope: "col", class: "text" }, heading))));
  put("acting-rows", acting.map((row) => el("tr", {},
    el("th", { scope: "row", class: "first" }, row.version ? `v${row.version}` : "own policy", row.from && el("small", {}, row.from)),
    el("td", { class: "text" }, row.clusters.length > 4 ? counted(row.clusters.length, "cluster") : row.clusters.join(", ") || "no cluster"),
    el("td", { class: "text" }, el("span", { class: row.score === null ? null : row.score < 1 ? "better" : "worse" }, row.fared)),
    el("td", { class: "text" }, row.rollout ? [el("span", { class: `pill ${row.rollout.tone}` }, row.rollout.word),
      row.rollout.said && el("small", {}, row.rollout.said)] : "none"))));
}
