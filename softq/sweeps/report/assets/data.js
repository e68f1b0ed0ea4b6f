// The page's data, how numbers are written, and what is shown. Nothing is written into the page but by textContent.
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

function make(name, text, attributes = {}) {
  const node = document.createElement(name);
  if (text !== undefined) node.textContent = text;
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}

const missing = (x) => x === null || x === undefined;
const short = (x) => missing(x) ? "-" : x === 0 ? "0"
  : Math.abs(x) < 1e-4 || Math.abs(x) >= 1e6 ? x.toExponential(1) : String(Number(x.toPrecision(3)));
// Numbers of columns: whole ones as they are, since a size in bytes is read digit by digit.
const amount = (x) => Number.isInteger(x) ? x.toLocaleString("en") : short(x);
const percent = (x) => missing(x) ? "-" : `${short(100 * x)} %`;
const signed = (relative) => (x) => missing(x) ? "-" : (x < 0 ? "" : "+") + (relative ? percent(x) : short(x));

// Method and options are a series; of equal ones in several studies there is one.
const names = [...new Set(data.studies.flatMap((s) => s.series))];
const studies = data.studies.map((s, number) => {
  const series = s.series.map((name) => names.indexOf(name));
  const settings = s.settings.map(([one, bits, site, head, loss, lossLow, lossHigh, verdict], id) =>
    ({id, series: series[one], bits, site, head, loss, lossLow, lossHigh, verdict}));
  const errors = s.errors.map(([setting, site, output, s0, s5, s50, s95, s100, mean, argmax, top5, rows]) =>
    ({setting: settings[setting], site, output, s0, s5, s50, s95, s100, mean, argmax, top5, rows}));
  const records = s.records.map((values) => Object.fromEntries(s.fields.map((name, i) => [name, values[i]])));
  const points = records.map((record) => ({study: number, setting: record.setting, series: settings[record.setting].series,
    key: `${number}/${record.setting}`, record}));
  return {...s, number, series, settings, errors, points, signed: signed(s.relative)};
});
const several = studies.length > 1;
const points = studies.flatMap((s) => s.points);
const columns = [
  {name: "bits", title: "bits", unit: "", what: "Bits of a code."}, ...data.columns];
const phrase = (column, text) => [column.title, text, column.unit].filter(Boolean).join(" ");
const heading = (column) => column.unit ? `${column.title}, ${column.unit}` : column.title;

const view = {hidden: new Set(), away: new Set(), across: data.axis, down: "loss", pinned: null};
const listeners = [];
// Draw again what depends on `view`.
function changed() { for (const listener of listeners) listener(); }

const isShown = (p) => !view.hidden.has(p.series) && !view.away.has(p.study);
const shownPoints = () => points.filter(isShown);
