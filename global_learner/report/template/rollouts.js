// Rollouts: a card each, the newest open, and whichever is to be shown; others open on demand, and on paper.

const FEW_MEMBERS = 12;
const FEW_EVENTS = 8;
const HOW_TO_READ = "Evidence: jobs in the system under the new version, compared with the version before. The band is the range that is known, whichever cluster is left out; "
  + "it holds at all moments together, however often it is read. A version passes a stage once the whole band is below the upper line, and is taken back once the whole band is above 0. "
  + "Interventions of the guard, starving jobs, slow decisions and single clusters have tests of their own.";
const allOf = new Set();

function drawRollouts({ rollouts: { cards, left_out: leftOut } }) {
  put("rollouts-note", leftOut ? `${counted(leftOut, "older rollout")} left out; policyctl rollout history shows all.` : "");
  if (!cards.length) {
    put("rollouts-part", empty("No rollout yet.", el("p", {}, "Bring a version to the clusters in stages: ", el("code", {}, "policyctl rollout start latest"))));
    return;
  }
  const part = byId("rollouts-part");
  const wanted = cards.map(({ number }) => `rollout-${number}`);
  if ([...part.children].map(({ id }) => id).join() !== wanted.join()) {
    for (const id of wanted) drawn.delete(`${id}-evidence-chart`);
    part.replaceChildren(...cards.map(rolloutParts));
  }
  cards.forEach(drawRollout);
  put("rollouts-how", cards.some(({ evidence }) => evidence) ? HOW_TO_READ : "");
}

// The parts of a card; made once, so that what was opened stays open.
function rolloutParts({ number, shown }, index) {
  const id = `rollout-${number}`;
  const body = [
    el("ul", { id: `${id}-said`, class: "said" }),
    el("ol", { id: `${id}-stages`, class: "stages" }),
    el("h4", {}, "Evidence"),
    el("div", { id: `${id}-evidence` }),
    el("div", { class: "sides" },
      el("div", {},
        el("h4", {}, "Clusters"),
        wide(null, `Clusters of rollout ${number}`, el("table", { id: `${id}-clusters`, class: "members stacked" })),
        moreOf(`${id}-clusters`)),
      el("div", {},
        el("h4", {}, "What happened"),
        el("ol", { id: `${id}-history`, class: "history" }),
        moreOf(`${id}-history`))),
  ];
  const head = el("div", { id: `${id}-head`, class: "head" });
  return index ? el("details", { id, class: "rollout past", open: shown }, el("summary", {}, head), ...body)
    : el("article", { id, class: "rollout", "aria-labelledby": `${id}-title` }, head, ...body);
}

function drawRollout(card) {
  const id = `rollout-${card.number}`;
  const ended = card.ended_unix_seconds;
  put(`${id}-head`,
    el("h3", { id: `${id}-title` }, card.title, " ", el("span", { class: `pill ${card.tone}` }, card.word)),
    el("p", { class: "meta" }, `Rollout ${card.number}, started ${moment(card.started_unix_seconds)} by ${card.actor}${card.why ? `: “${card.why}”` : ""}`,
      ended === null ? "" : `; ended ${moment(ended)}`));
  put(`${id}-said`, card.said.map((sentence) => el("li", {}, sentence)));
  show(`${id}-said`, card.said.length > 0);
  put(`${id}-stages`, card.stages.map(stageItem));
  drawEvidence(`${id}-evidence`, card);
  drawMembers(id, card);
  drawHistory(id, card);
}

function stageItem(stage) {
  const { began_unix_seconds: began, ended_unix_seconds: ended } = stage;
  const when = began === null ? "" : ended === null ? `since ${moment(began)}` : `${moment(began)}, for ${duration(ended - began)}`;
  return el("li", { class: stage.tone, "aria-current": stage.tone === "now" ? "step" : null },
    el("b", {}, stage.name), " ", el("span", { class: `pill ${stage.tone}` }, stage.word),
    el("span", { class: "plan" }, stage.plan),
    when && el("span", { class: "when" }, when),
    stage.clusters && el("span", { class: "who" }, stage.clusters),
    stage.said.slice(0, 3).map((reason) => el("span", { class: "because" }, reason)),
    stage.said.length > 3 && el("span", { class: "because" }, `and ${stage.said.length - 3} more`));
}

function drawMembers(id, { clusters }) {
  const key = `${id}-clusters`;
  const shown = allOf.has(key) ? clusters : clusters.slice(0, FEW_MEMBERS);
  const shadowed = clusters.some((row) => row.shadow_decisions);
  const headings = ["Cluster", "Takes part since", "Acts on", "Goes back to", "Blocks", ...(shadowed ? ["Decisions alike"] : [])];
  put(key,
    el("thead", {}, headRow(headings, headings.slice(1, 4))),
    el("tbody", {}, named(shown.map((row) => el("tr", {},
      el("th", { scope: "row", class: "first" }, el("span", { class: "cut", title: row.cluster }, row.cluster),
        ["held", "pinned"].includes(row.role) && el("span", { class: `pill ${row.tone}` }, row.role), row.away && el("span", { class: "pill idle" }, "away"),
        row.note && el("small", {}, row.note)),
      el("td", { class: "text short" }, row.stage ?? "–"), el("td", { class: "text short" }, row.acts), el("td", { class: "text short" }, row.back),
      cell(row.blocks ? whole(row.blocks) : "–"),
      shadowed && cell(row.shadow_decisions ? `${Math.floor((100 * row.shadow_agreed) / row.shadow_decisions)}%` : "–"))), headings)));
  more(`${key}-more`, clusters.length - shown.length, "cluster", () => { allOf.add(key); drawMembers(id, { clusters }); });
}

function drawHistory(id, { history }) {
  const key = `${id}-history`;
  const shown = allOf.has(key) ? history : history.slice(0, FEW_EVENTS);
  put(key, shown.map(happened));
  more(`${key}-more`, history.length - shown.length, "event", () => { allOf.add(key); drawHistory(id, { history }); });
}
