// The sites of the chosen study: maps of sites and heads, the charts of the chosen one, and how errors are spread over all.
const quantitiesOf = (s) => [
  {name: "output error", of: (e) => e.output, form: short, log: true},
  {name: "argmax flips", of: (e) => e.argmax, form: percent},
  {name: "top-5 flips", of: (e) => e.top5, form: percent},
  {name: "mean row sum, distance from 1", of: (e) => e.mean === null ? null : Math.abs(e.mean - 1), form: short, log: true},
  {name: "loss with this site alone", form: s.signed, signed: true},
];
const key = (series, site, bits) => `${series}/${site}/${bits}`;

// What was measured at each series, site and number of bits of a study.
function cellsOf(s) {
  const cells = new Map();
  const cell = (series, site, bits) => {
    const name = key(series, site, bits);
    if (!cells.has(name)) cells.set(name, {series, site, bits, errors: null, alone: null, single: null, heads: new Map()});
    return cells.get(name);
  };
  for (const e of s.errors) {
    const c = cell(e.setting.series, e.site, e.setting.bits);
    // Both are of rows of the float model; where a sweep and a sensitivity run are merged, the sweep's are shown.
    if (e.setting.head !== null) c.heads.set(e.setting.head, e);
    else if (e.setting.site === null) c.errors = e;
    else c.single = e;
  }
  for (const one of s.settings) if (one.site !== null && one.site >= 0 && one.head === null) cell(one.series, one.site, one.bits).alone = one;
  for (const c of cells.values()) c.errors = c.errors || c.single;
  return cells;
}

const withCells = studies.map((s) => ({study: s, cells: cellsOf(s)})).filter(({cells}) => cells.size);
let {study: place, cells} = withCells[0] || {study: studies[0], cells: new Map()};
let listed = [], state = {};

const middle = (values) => {
  const found = values.filter((v) => v !== null).sort((a, b) => a - b);
  return found.length ? d3.median(found) : null;
};

function spread() {
  const found = d3.group([...cells.values()].filter((c) => c.errors && c.bits !== null), (c) => c.series, (c) => c.bits);
  const groups = [...found].flatMap(([series, by]) => [...by].map(([bits, group]) => ({s: {series, bits}, found: group.map((c) => c.errors)})));
  const rows = (key, least, greatest) => groups.map(({s, found}) => ({series: s.series, bits: s.bits,
    mid: middle(found.map((e) => e[key])), min: d3.min(found, (e) => e[least]), max: d3.max(found, (e) => e[greatest])}));
  const sums = rows("s50", "s0", "s100").map((row, i) => ({...row,
    low: d3.min(groups[i].found, (e) => e.s5), high: d3.max(groups[i].found, (e) => e.s95)}));
  draw("chart-sums", sums, {label: "row sums against bits", rule: 1});
  draw("chart-error", rows("output", "output", "output"), {label: "output error against bits", zero: true});
  draw("chart-argmax", rows("argmax", "argmax", "argmax"), {label: "argmax flips against bits", zero: true, form: percent});
  draw("chart-top5", rows("top5", "top5", "top5"), {label: "top-5 flips against bits", zero: true, form: percent});
}

// What a cell of the sites' map shows: a value, and whether it is only the greatest of the heads, which no share of
// all rows exceeds; that is all there is where heads alone were measured.
function ofSite(quantity, c) {
  if (!quantity.of) return {value: c.alone ? c.alone.loss : null, bound: false};
  if (c.errors) return {value: quantity.of(c.errors), bound: false};
  const found = [...c.heads.values()].map(quantity.of).filter((v) => v !== null);
  return {value: found.length ? d3.max(found) : null, bound: found.length > 0};
}

// How strong a value is drawn, 0 to 1, among all values.
function depths(quantity, all) {
  const sizes = all.map(Math.abs).filter((v) => v > 0);
  const greatest = d3.max(sizes) || 1, least = Math.max(d3.min(sizes) || greatest / 10, greatest / 1e4);
  return (v) => quantity.signed ? Math.max(0, v) / greatest : !quantity.log ? v / greatest
    : v <= 0 ? 0 : least === greatest ? 1 : Math.max(0, Math.log(v / least) / Math.log(greatest / least));
}
const range = (quantity, all) => all.length
  ? `Colour: ${quantity.name}, from ${quantity.form(d3.min(all))} (pale) to ${quantity.form(d3.max(all))} (strong) over all methods.` : "";
const widths = (found) => [...new Set(found.map((c) => c.bits))].sort((a, b) => a - b);

// One map for sites and for heads: rows of {id, name}, and `at` gives {value, mark, told} of a row and bits, or null.
function grid(map, {quantity, kind, rows, columns, at, all, chosen, choose}) {
  const depth = depths(quantity, all), table = make("table");
  table.append(make("caption", `${quantity.name}: ${names[state.series]}`));
  const top = make("tr");
  top.append(make("th", kind, {scope: "col"}), ...columns.map((b) => make("th", b === null ? "no bits" : `${b} bits`, {scope: "col"})));
  const head = make("thead"), body = make("tbody");
  head.append(top);
  for (const {id, name} of rows) {
    const row = make("tr");
    row.append(make("th", name, {scope: "row"}));
    for (const bits of columns) {
      const spot = make("td"), found = at(id, bits);
      row.append(spot);
      if (!found) { spot.append(make("span", "-", {class: "absent"})); continue; }
      const {value, mark, told} = found;
      const t = value === null ? 0 : Math.min(1, depth(value));
      const label = `${name}, ${bits} bits: ${quantity.name} ${value === null ? "not known" : quantity.form(value)}${told}`;
      const button = make("button", mark + (value === null ? "-" : quantity.form(value)), {type: "button", tabindex: "-1",
        "aria-label": label, "aria-pressed": String(chosen(id, bits)), [`data-${kind}`]: String(id), "data-bits": String(bits)});
      button.style.setProperty("--t", t.toFixed(3));
      if (t > 0.57) button.classList.add(t > 0.82 ? "deep" : "half");
      button.addEventListener("click", () => {
        choose(id, bits);
        for (const other of map.querySelectorAll("button")) {
          other.setAttribute("aria-pressed", String(other === button));
          other.setAttribute("tabindex", other === button ? "0" : "-1");
        }
      });
      spot.append(button);
    }
    body.append(row);
  }
  table.append(head, body);
  map.replaceChildren(table);
  (table.querySelector('[aria-pressed="true"]') || table.querySelector("button"))?.setAttribute("tabindex", "0");
}

function heat() {
  const map = byId("heat");
  if (!map || !cells.size) return;
  const {quantity, series} = state;
  const all = [...cells.values()].map((c) => ofSite(quantity, c).value).filter((v) => v !== null);
  const bounds = [...cells.values()].some((c) => c.series === series && ofSite(quantity, c).bound);
  byId("heat-range").textContent = range(quantity, all)
    + (bounds ? " \u2264 is before the greatest of the heads, where the site as a whole was not measured." : "");
  grid(map, {
    quantity, all, kind: "site", rows: listed.map((site) => ({id: site, name: place.sites[site][0]})),
    columns: widths([...cells.values()].filter((c) => c.series === series)),
    at: (site, bits) => {
      const c = cells.get(key(series, site, bits));
      if (!c) return null;
      const {value, bound} = ofSite(quantity, c);
      const same = quantity.signed && c.alone && c.alone.verdict === "same";
      return {value, mark: same ? "\u2248 " : bound ? "\u2264 " : "", told: same ? ", not told from float" : bound ? " at most" : ""};
    },
    chosen: (site, bits) => site === state.site && bits === state.bits,
    choose: (site, bits) => { Object.assign(state, {site, bits, head: null}); heads(); panel(); },
  });
}

// The heads of the chosen site; a row for all of them leads back to the site.
function heads() {
  const map = byId("heads");
  if (!map || missing(state.site)) return;
  const own = [...cells.values()].filter((c) => c.site === state.site && c.heads.size);
  const here = own.filter((c) => c.series === state.series);
  byId("heads-part").hidden = !here.length;
  if (!here.length) { state.head = null; return; }
  // The loss is one of sites; heads have errors alone.
  const quantity = state.quantity.of ? state.quantity : quantitiesOf(place)[0];
  const numbers = [...new Set(here.flatMap((c) => [...c.heads.keys()]))].sort((a, b) => a - b);
  const whole = here.some((c) => c.errors);
  if (!whole && state.head === null) {
    const c = here.find((c) => c.bits === state.bits) || here[0];
    Object.assign(state, {bits: c.bits, head: d3.greatest(c.heads.keys(), (head) => quantity.of(c.heads.get(head)) ?? -1)});
  }
  byId("heads-title").textContent = `Heads of ${place.sites[state.site][0]}`;
  const all = own.flatMap((c) => [...c.heads.values(), ...(c.errors ? [c.errors] : [])]).map(quantity.of).filter((v) => v !== null);
  byId("heads-range").textContent = range(quantity, all);
  grid(map, {
    quantity, all, kind: "head", columns: widths(here),
    rows: [...(whole ? [{id: "all", name: "all heads"}] : []), ...numbers.map((head) => ({id: head, name: `head ${head}`}))],
    at: (head, bits) => {
      const c = cells.get(key(state.series, state.site, bits)), e = !c ? null : head === "all" ? c.errors : c.heads.get(head);
      return e ? {value: quantity.of(e), mark: "", told: ""} : null;
    },
    chosen: (head, bits) => head === (state.head ?? "all") && bits === state.bits,
    choose: (head, bits) => {
      Object.assign(state, {head: head === "all" ? null : head, bits});
      press(byId("heat"), (b) => b.dataset.site === String(state.site) && b.dataset.bits === String(bits));
      panel();
    },
  });
  const rows = own.flatMap((c) => [...c.heads].map(([head, e]) => ({...e, series: c.series, bits: c.bits, head})));
  rows.sort((a, b) => a.head - b.head || a.series - b.series || a.bits - b.bits);
  byId("heads-table").replaceChildren(numbersTable(`Errors of the heads of ${place.sites[state.site][0]}`, rows, true));
}

function press(map, chosen) {
  const buttons = [...map.querySelectorAll("button")];
  if (!buttons.some(chosen)) return;
  for (const button of buttons) {
    button.setAttribute("aria-pressed", String(chosen(button)));
    button.setAttribute("tabindex", chosen(button) ? "0" : "-1");
  }
}

function moves(event) {
  const at = event.target.closest("button");
  if (!at || event.ctrlKey || event.metaKey || event.altKey) return;
  const row = at.closest("tr"), column = at.parentElement.cellIndex;
  const across = [...row.querySelectorAll("button")], i = across.indexOf(at);
  const down = [...row.parentElement.rows].map((r) => r.cells[column]?.querySelector("button")).filter(Boolean), j = down.indexOf(at);
  const next = {ArrowRight: across[i + 1], ArrowLeft: across[i - 1], ArrowDown: down[j + 1], ArrowUp: down[j - 1],
    Home: across[0], End: across[across.length - 1], PageUp: down[0], PageDown: down[down.length - 1]}[event.key];
  if (!next) return;
  event.preventDefault();
  at.setAttribute("tabindex", "-1");
  next.setAttribute("tabindex", "0");
  next.focus();
}

function panel() {
  const {site, head} = state;
  if (missing(site)) return;
  const [id, node] = place.sites[site], name = head === null ? id : `${id}, head ${head}`;
  byId("site-title").textContent = `Site ${name}`;
  const found = [...cells.values()].filter((c) => c.site === site).sort((a, b) => a.series - b.series || a.bits - b.bits);
  const rows = found.map((c) => ({c, e: head === null ? c.errors : c.heads.get(head)})).filter(({e}) => e)
    .map(({c, e}) => ({...e, series: c.series, bits: c.bits}));
  const chosen = cells.get(key(state.series, site, state.bits));
  byId("site-facts").textContent = `Node ${node || "without a name"}; ${rows.length ? `${rows[0].rows} rows a setting.` : "no errors were measured."}`
    + (chosen && chosen.alone ? ` This site alone, ${names[state.series]} with ${state.bits} bits: loss ${chosen.alone.loss === null ? "not measured" : place.signed(chosen.alone.loss)}`
      + (chosen.alone.lossLow === null ? "." : ` (${place.signed(chosen.alone.lossLow)} to ${place.signed(chosen.alone.lossHigh)}).`) : "");
  const points = (name) => rows.map((r) => ({series: r.series, bits: r.bits, mid: r[name]}));
  draw("chart-site-sums", rows.map((r) => ({series: r.series, bits: r.bits, mid: r.s50, low: r.s5, high: r.s95, min: r.s0, max: r.s100})),
    {label: `row sums of ${name}`, rule: 1});
  draw("chart-site-error", points("output"), {label: `output error of ${name}`, zero: true});
  draw("chart-site-argmax", points("argmax"), {label: `argmax flips of ${name}`, zero: true, form: percent});
  draw("chart-site-top5", points("top5"), {label: `top-5 flips of ${name}`, zero: true, form: percent});
  byId("site-table").replaceChildren(numbersTable(`Errors of ${name}`, rows, false));
}

function numbersTable(caption, rows, named) {
  const table = make("table"), line = make("tr"), body = make("tbody"), top = make("thead");
  const names = [...(named ? ["head"] : []), "method", "bits", "output error", "row sum least", "5 %", "median", "95 %", "greatest", "mean", "argmax flips", "top-5 flips"];
  line.append(...names.map((n) => make("th", n, {scope: "col"})));
  top.append(line);
  for (const r of rows) {
    const one = make("tr");
    one.append(...(named ? [make("th", `head ${r.head}`, {scope: "row"})] : []), make("th", names[r.series], {scope: "row"}),
      ...[String(r.bits ?? "-"), short(r.output), short(r.s0), short(r.s5), short(r.s50), short(r.s95), short(r.s100),
        short(r.mean), percent(r.argmax), percent(r.top5)].map((t) => make("td", t)));
    body.append(one);
  }
  table.append(make("caption", caption), top, body);
  return table;
}

function enter(next) {
  ({study: place, cells} = next);
  listed = [...new Set([...cells.values()].map((c) => c.site))].sort((a, b) => a - b);
  const used = [...new Set([...cells.values()].map((c) => c.series))].sort((a, b) => ranks.get(a) - ranks.get(b));
  const usable = quantitiesOf(place).filter((q) => [...cells.values()].some((c) => ofSite(q, c).value !== null));
  const best = place.recommended === null ? frontOf(place.points)[0] : place.points.find((p) => p.setting === place.recommended);
  const bits = best && best.record.bits, series = best && used.includes(best.series) ? best.series : used[0];
  state = {series, usable, quantity: usable[0] || quantitiesOf(place)[0], site: null, head: null, bits: null};
  byId("heat-series").replaceChildren(...used.map((s) => make("option", names[s], {value: s})));
  byId("heat-series").value = String(series);
  byId("heat-value").replaceChildren(...usable.map((q) => make("option", q.name)));
  const own = [...cells.values()].filter((c) => c.series === series);
  const width = own.some((c) => c.bits === bits) ? bits : d3.min(own, (c) => c.bits) ?? null;
  const worst = d3.greatest(own.filter((c) => c.bits === width), (c) => ofSite(state.quantity, c).value ?? -1) || own[0];
  Object.assign(state, {site: worst.site, bits: worst.bits});
}

function sites() {
  const seriesBox = byId("heat-series"), valueBox = byId("heat-value"), studyBox = byId("heat-study");
  if (!seriesBox || !withCells.length) return;
  seriesBox.addEventListener("change", () => { state.series = Number(seriesBox.value); heat(); heads(); panel(); });
  valueBox.addEventListener("change", () => { state.quantity = state.usable[valueBox.selectedIndex]; heat(); heads(); });
  if (studyBox) {
    studyBox.append(...withCells.map(({study}, i) => make("option", study.label, {value: i})));
    studyBox.addEventListener("change", () => { enter(withCells[studyBox.selectedIndex]); heads(); heat(); panel(); spread(); });
  }
  enter(withCells[0]);
  byId("choose").hidden = false;
  byId("heat").addEventListener("keydown", moves);
  byId("heads")?.addEventListener("keydown", moves);
  heads();
  heat();
  listeners.push(panel, spread);
}
