// How numbers, times and names are written.

// Numbers that no sound fleet has are written short.
const whole = (value) => (Math.abs(value) < 1e12 ? Math.round(value).toLocaleString("en-US") : value.toExponential(1).replace("+", ""));

const NOT_TOLD = "Not known: the learner’s files hold no reports of clusters.";

const UNITS = [["d", 86400, 3], ["h", 3600, 2], ["min", 60, 2], ["s", 1, 0]];

// The unit in which a duration is best read: 3 days, but 40 h; 3 h, but 100 min.
function unitFor(seconds) {
  return UNITS.find(([, size, least]) => seconds >= size * least) ?? UNITS[3];
}

function digits(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 100 ? whole(value) : value.toFixed(size >= 1 ? 1 : 2);
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const [name, size] = unitFor(seconds);
  return `${digits(seconds / size).replace(/\.0$/, "")} ${name}`;
}

// A ratio as a change, with a real minus sign: −12%.
function changed(ratio) {
  const percent = 100 * (ratio - 1);
  const text = Math.abs(percent) >= 10 ? Math.abs(percent).toFixed(0) : Math.abs(percent).toFixed(1);
  if (Number(text) === 0) return "±0%";
  return `${percent < 0 ? "−" : "+"}${text}%`;
}

const moment = (unixSeconds) => new Date(1000 * unixSeconds).toISOString().slice(0, 16).replace("T", " ");
const clock = (unixSeconds) => new Date(1000 * unixSeconds).toISOString().slice(11, 19);

// Bytes as people say them, in powers of a thousand.
function size(bytes) {
  const [name, unit] = [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]].find(([, least]) => bytes >= least) ?? ["B", 1];
  return `${digits(bytes / unit).replace(/\.0$/, "")} ${name}`;
}

const counted = (number, noun) => `${whole(number)} ${noun}${number === 1 ? "" : "s"}`;

// "north 12, south 9 and 3 more", largest first.
function shares(counts, most) {
  const sorted = Object.entries(counts).sort(([a, n], [b, m]) => m - n || (a < b ? -1 : 1));
  const shown = sorted.length > most + 1 ? sorted.slice(0, most) : sorted;
  const words = shown.map(([name, count]) => `${name} ${whole(count)}`).join(", ");
  return shown.length < sorted.length ? `${words} and ${sorted.length - shown.length} more` : words;
}
