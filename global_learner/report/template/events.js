// What happened, and what needs somebody, between two days that the reader chooses.

const FEW_ENTRIES = 12;
const DAY_SECONDS = 86400;
let allEntries = false;

function drawEvents(data) {
  const { entries, left_out: leftOut } = data.events;
  show("events", entries.length > 0);
  if (!entries.length) return;
  const day = (seconds) => moment(seconds).slice(0, 10);
  const [from, to] = [byId("events-from"), byId("events-to")];
  const [first, last] = [day(entries.at(-1).unix_seconds), day(data.made_unix_seconds)];
  for (const input of [from, to]) {
    Object.assign(input, { min: first, max: last });
    // Until the reader chooses, all days are shown, also those that begin while the page is open.
    if (!input.dataset.chosen && document.activeElement !== input) input.value = input === from ? first : last;
    input.onchange = () => { input.dataset.chosen = "yes"; allEntries = false; drawEvents(data); };
  }
  const begin = from.value ? Date.parse(from.value) / 1000 : -Infinity;
  const end = to.value ? Date.parse(to.value) / 1000 + DAY_SECONDS : Infinity;
  const chosen = entries.filter(({ unix_seconds: at }) => at >= begin && at < end);
  const alerts = chosen.filter(({ kind }) => kind === "alert").length;
  put("events-finding", `${counted(alerts, "alert")} and ${counted(chosen.length - alerts, "event")}, ${from.value || first} to ${to.value || last}.`);
  const shown = allEntries ? chosen : chosen.slice(0, FEW_ENTRIES);
  put("events-list", shown.map(happened));
  put("events-note", leftOut ? "Older events are left out; policyctl audit has all." : "");
  more("events-more", chosen.length - shown.length, "event", () => { allEntries = true; drawEvents(data); });
}
