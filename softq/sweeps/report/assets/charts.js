// The charts of errors: one form for all, and a scale for values that lie decades apart.

// For each number of bits and series a dot, a thick bar from low to high, a thin one from min to max.
function draw(id, rows, {label, rule = null, form = short, zero = false}) {
  const figure = byId(id);
  if (!figure) return;
  const place = figure.querySelector(".plot"), known = told();
  rows = rows.filter((r) => !missing(r.mid) && r.bits !== null && !view.hidden.has(r.series));
  if (!rows.length) {
    place.replaceChildren(make("p", "No numbers to draw.", {class: "none"}));
    figure.dataset.marks = "none";
    return;
  }
  const present = [...new Set(rows.map((r) => r.series))].sort((a, b) => known.has(a) - known.has(b) || ranks.get(a) - ranks.get(b));
  const step = present.length > 1 ? Math.min(0.14, 0.6 / present.length) : 0;
  const spots = rows.map((r) => ({...r, x: r.bits + step * (present.indexOf(r.series) - (present.length - 1) / 2), name: names[r.series]}));
  const ticks = [...new Set(rows.map((r) => r.bits))].sort((a, b) => a - b);
  const values = rows.flatMap((r) => [r.mid, r.low, r.high, r.min, r.max]).filter((v) => !missing(v));
  const y = {label: null, grid: true, nice: true, tickFormat: (v) => form(v), ...scale(values, zero)};
  const paint = (s) => known.has(s) ? colour(s) : "var(--mute)";
  const draws = (a, b) => spots.filter((r) => known.has(r.series) && !missing(r[a]) && !missing(r[b]));
  const bar = (a, b, width) => Plot.ruleX(draws(a, b), {x: "x", y1: a, y2: b, stroke: (r) => paint(r.series), strokeWidth: width});
  const said = (r) => `${r.name}, ${r.bits} bits\n${form(r.mid)}${missing(r.low) ? "" : ` (${form(r.low)} to ${form(r.high)})`}`;
  const width = Math.max(260, Math.min(620, place.clientWidth || 600));
  const lines = present.filter((s) => known.has(s)).map((s) => Plot.line(spots.filter((r) => r.series === s).sort((a, b) => a.x - b.x),
    {x: "x", y: "mid", stroke: paint(s), strokeWidth: 1, strokeOpacity: 0.6}));
  const dots = present.map((s) => Plot.dot(spots.filter((r) => r.series === s),
    {x: "x", y: "mid", fill: paint(s), symbol: known.has(s) ? symbol(s) : "circle", r: known.has(s) ? 4 : 2, title: said}));
  const marks = [
    ...(rule === null ? [] : [Plot.ruleY([rule], {stroke: "currentColor", strokeDasharray: "5 3"})]),
    bar("min", "max", 1), bar("low", "high", 2.5), ...lines, ...dots,
    Plot.tip(spots, Plot.pointer({x: "x", y: "mid", title: said})),
  ];
  const what = figure.querySelector("figcaption strong").textContent;
  const svg = Plot.plot({
    width, height: 280, marginLeft: 62, marginBottom: 36, marks, y,
    x: {label: "bits", ticks, tickFormat: String, domain: [ticks[0] - 0.5, ticks[ticks.length - 1] + 0.5]},
    ariaLabel: `${what}: ${label}`, ariaDescription: "The numbers are in the table below.",
  });
  svg.setAttribute("role", "img");
  place.replaceChildren(svg);
  figure.dataset.marks = String(spots.length);
}

// Values that lie decades apart are drawn so that the small ones can still be told from 0.
function scale(values, zero) {
  const sizes = values.map(Math.abs).filter((v) => v > 0).sort((a, b) => a - b);
  if (!sizes.length) return {domain: zero ? [0, 1] : [-1, 1]};
  const middle = sizes[Math.floor(sizes.length / 2)], greatest = sizes[sizes.length - 1];
  if (greatest < 20 * middle) return zero ? {domain: [0, Math.max(...values)]} : {};
  if (values.every((v) => v > 0) && !zero) return {type: "log", ticks: 5};
  const powers = [];
  for (let p = Math.ceil(Math.log10(middle)); p <= Math.log10(greatest); p++) powers.push(10 ** p);
  if (powers.length < 3) powers.push(...powers.map((p) => 3 * p).filter((p) => p <= greatest));
  if (powers.length < 3) powers.push(...[middle, greatest].map((v) => Number(v.toPrecision(1))));
  const least = Math.min(...values);
  const ticks = [...powers.map((p) => -p).filter((p) => p >= least), 0, ...powers];
  return {type: "symlog", constant: middle, ticks, ...(zero ? {domain: [0, greatest]} : {})};
}
