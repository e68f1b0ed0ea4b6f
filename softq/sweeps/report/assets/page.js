"use strict";
// Draws the charts of a report from the data in the page. Nothing is written into the page but by textContent.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const settings = data.settings.map(
    ([series, bits, site, head, metric, metricLow, metricHigh, loss, lossLow, lossHigh, verdict], id) =>
      ({id, series, bits, site, head, metric, metricLow, metricHigh, loss, lossLow, lossHigh, verdict}));
  const errors = data.errors.map(
    ([setting, site, output, s0, s5, s50, s95, s100, mean, argmax, top5, rows]) =>
      ({setting: settings[setting], site, output, s0, s5, s50, s95, s100, mean, argmax, top5, rows}));
  const whole = settings.filter((s) => s.site === null && s.head === null);
  const numbered = whole.filter((s) => s.bits !== null);
  const colour = (series) => `var(--s${series % 8})`;
  const symbols = ["circle", "square", "diamond", "triangle", "star", "cross", "wye"];
  const symbol = (series) => symbols[series % symbols.length];
  const byId = (id) => document.getElementById(id);

  function make(name, text, attributes = {}) {
    const node = document.createElement(name);
    if (text !== undefined) node.textContent = text;
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    return node;
  }

  const short = (x) => x === null || x === undefined ? "-" : x === 0 ? "0"
    : Math.abs(x) < 1e-4 || Math.abs(x) >= 1e6 ? x.toExponential(1) : String(Number(x.toPrecision(3)));
  const percent = (x) => x === null || x === undefined ? "-" : `${short(100 * x)} %`;
  const signed = (x) => x === null ? "-" : (x > 0 ? "+" : "") + (data.relative ? percent(x) : short(x));

  // One form of chart for all: for each bits and series a dot, a thick bar from low to high, a thin one from min to max.
  function draw(id, rows, {label, rule = null, band = null, extra = null, form = short, zero = false, share = false}) {
    const figure = byId(id);
    if (!figure) return;
    const place = figure.querySelector(".plot");
    rows = rows.filter((r) => r.mid !== null && r.mid !== undefined && r.bits !== null);
    if (!rows.length) {
      place.replaceChildren(make("p", "No numbers to draw.", {class: "none"}));
      figure.dataset.marks = "none";
      return;
    }
    const present = [...new Set(rows.map((r) => r.series))].sort((a, b) => a - b);
    const step = present.length > 1 ? Math.min(0.14, 0.6 / present.length) : 0;
    const spots = rows.map((r) => ({...r, x: r.bits + step * (present.indexOf(r.series) - (present.length - 1) / 2),
      name: data.series[r.series]}));
    const ticks = [...new Set(rows.map((r) => r.bits))].sort((a, b) => a - b);
    const values = rows.flatMap((r) => [r.mid, r.low, r.high, r.min, r.max]).filter((v) => v !== null && v !== undefined);
    const y = {label: null, grid: true, nice: true, tickFormat: (v) => form(v), ...scale(values, zero)};
    const draws = (a, b) => spots.filter((r) => r[a] !== null && r[a] !== undefined && r[b] !== null && r[b] !== undefined);
    const bar = (a, b, width) => Plot.ruleX(draws(a, b), {x: "x", y1: a, y2: b, stroke: (r) => colour(r.series), strokeWidth: width});
    const told = (r) => `${r.name}, ${r.bits} bits\n${form(r.mid)}${r.low === null || r.low === undefined ? "" : ` (${form(r.low)} to ${form(r.high)})`}${r.note ? `\n${r.note}` : ""}`;
    const width = Math.max(260, Math.min(620, place.clientWidth || 600));
    const lines = present.map((s) => Plot.line(spots.filter((r) => r.series === s).sort((a, b) => a.x - b.x),
      {x: "x", y: "mid", stroke: colour(s), strokeWidth: 1, strokeOpacity: 0.6}));
    const dots = present.map((s) => Plot.dot(spots.filter((r) => r.series === s),
      {x: "x", y: "mid", fill: colour(s), symbol: symbol(s), r: 4, title: told}));
    const marks = [
      ...(band && band[0] !== null && band[1] !== null ? [Plot.rectY([0], {x1: ticks[0] - 0.5, x2: ticks[ticks.length - 1] + 0.5, y1: band[0], y2: band[1], fill: "currentColor", fillOpacity: 0.08})] : []),
      ...(rule === null ? [] : [Plot.ruleY([rule], {stroke: "currentColor", strokeDasharray: "5 3"})]),
      ...(extra === null ? [] : [Plot.ruleY([extra], {stroke: "var(--strong)", strokeDasharray: "2 3"})]),
      bar("min", "max", 1), bar("low", "high", 2.5), ...lines, ...dots,
      Plot.tip(spots, Plot.pointer({x: "x", y: "mid", title: told})),
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

  function legends() {
    const used = [...new Set(numbered.concat(errors.map((e) => e.setting)).map((s) => s.series))].sort((a, b) => a - b);
    for (const place of document.querySelectorAll("[data-legend]")) {
      place.replaceChildren(...used.map((s) => {
        const entry = make("span");
        const mark = Plot.dot([0], {x: [0], y: [0], symbol: symbol(s), fill: colour(s), r: 5});
        const icon = Plot.plot({width: 14, height: 14, margin: 7, axis: null, marks: [mark]});
        icon.setAttribute("aria-hidden", "true");
        entry.append(icon, document.createTextNode(data.series[s]));
        return entry;
      }));
    }
  }

  function accuracy() {
    draw("chart-loss", numbered.map((s) => ({series: s.series, bits: s.bits, mid: s.loss, low: s.lossLow, high: s.lossHigh,
      note: s.verdict === "same" ? "inside the interval: not told from float" : ""})),
      {label: "loss against bits", rule: 0, extra: data.budget, form: signed});
    const [value, low, high] = data.reference;
    draw("chart-metric", numbered.map((s) => ({series: s.series, bits: s.bits, mid: s.loss === null ? null : s.metric, low: s.metricLow, high: s.metricHigh})),
      {label: `${data.metric} against bits`, rule: value, band: [low, high]});
  }

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

  // The heat maps.
  const alone = settings.filter((s) => s.site !== null && s.head === null);
  const quantities = [
    {name: "output error", of: (e) => e.output, form: short, log: true},
    {name: "argmax flips", of: (e) => e.argmax, form: percent},
    {name: "top-5 flips", of: (e) => e.top5, form: percent},
    {name: "mean row sum, distance from 1", of: (e) => e.mean === null ? null : Math.abs(e.mean - 1), form: short, log: true},
    {name: "loss with this site alone", form: signed, signed: true},
  ];
  const cells = new Map();
  const key = (series, site, bits) => `${series}/${site}/${bits}`;
  function cell(series, site, bits) {
    const name = key(series, site, bits);
    if (!cells.has(name)) cells.set(name, {series, site, bits, errors: null, alone: null, single: null, heads: new Map()});
    return cells.get(name);
  }
  for (const e of errors) {
    const c = cell(e.setting.series, e.site, e.setting.bits);
    // Both are of rows of the float model; where a sweep and a sensitivity run are merged, the sweep's are shown.
    if (e.setting.head !== null) c.heads.set(e.setting.head, e);
    else if (e.setting.site === null) c.errors = e;
    else c.single = e;
  }
  for (const s of alone) if (s.site >= 0) cell(s.series, s.site, s.bits).alone = s;
  for (const c of cells.values()) c.errors = c.errors || c.single;
  const shownSites = [...new Set([...cells.values()].map((c) => c.site))].sort((a, b) => a - b);
  const state = {series: 0, quantity: quantities[0], site: null, head: null, bits: null};

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
  function grid(place, {quantity, kind, rows, columns, at, all, chosen, choose}) {
    const depth = depths(quantity, all), table = make("table");
    table.append(make("caption", `${quantity.name}: ${data.series[state.series]}`));
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
          for (const other of place.querySelectorAll("button")) {
            other.setAttribute("aria-pressed", String(other === button));
            other.setAttribute("tabindex", other === button ? "0" : "-1");
          }
        });
        spot.append(button);
      }
      body.append(row);
    }
    table.append(head, body);
    place.replaceChildren(table);
    (table.querySelector('[aria-pressed="true"]') || table.querySelector("button"))?.setAttribute("tabindex", "0");
  }

  function heat() {
    const place = byId("heat");
    if (!place || !cells.size) return;
    const {quantity, series} = state;
    const all = [...cells.values()].map((c) => ofSite(quantity, c).value).filter((v) => v !== null);
    const bounds = [...cells.values()].some((c) => c.series === series && ofSite(quantity, c).bound);
    byId("heat-range").textContent = range(quantity, all)
      + (bounds ? " \u2264 is before the greatest of the heads, where the site as a whole was not measured." : "");
    grid(place, {
      quantity, all, kind: "site", rows: shownSites.map((site) => ({id: site, name: data.sites[site][0]})),
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
    const place = byId("heads");
    if (!place || state.site === null) return;
    const own = [...cells.values()].filter((c) => c.site === state.site && c.heads.size);
    const here = own.filter((c) => c.series === state.series);
    byId("heads-part").hidden = !here.length;
    if (!here.length) { state.head = null; return; }
    // The loss is one of sites; heads have errors alone.
    const quantity = state.quantity.of ? state.quantity : quantities[0];
    const numbers = [...new Set(here.flatMap((c) => [...c.heads.keys()]))].sort((a, b) => a - b);
    const whole = here.some((c) => c.errors);
    if (!whole && state.head === null) {
      const c = here.find((c) => c.bits === state.bits) || here[0];
      Object.assign(state, {bits: c.bits, head: d3.greatest(c.heads.keys(), (head) => quantity.of(c.heads.get(head)) ?? -1)});
    }
    byId("heads-title").textContent = `Heads of ${data.sites[state.site][0]}`;
    const all = own.flatMap((c) => [...c.heads.values(), ...(c.errors ? [c.errors] : [])]).map(quantity.of).filter((v) => v !== null);
    byId("heads-range").textContent = range(quantity, all);
    grid(place, {
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
    byId("heads-table").replaceChildren(numbersTable(`Errors of the heads of ${data.sites[state.site][0]}`, rows, true));
  }

  function press(place, chosen) {
    const buttons = [...place.querySelectorAll("button")];
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
    if (site === null) return;
    const [id, node] = data.sites[site], name = head === null ? id : `${id}, head ${head}`;
    byId("site-title").textContent = `Site ${name}`;
    const found = [...cells.values()].filter((c) => c.site === site).sort((a, b) => a.series - b.series || a.bits - b.bits);
    const rows = found.map((c) => ({c, e: head === null ? c.errors : c.heads.get(head)})).filter(({e}) => e)
      .map(({c, e}) => ({...e, series: c.series, bits: c.bits}));
    const chosen = cells.get(key(state.series, site, state.bits));
    byId("site-facts").textContent = `Node ${node || "without a name"}; ${rows.length ? `${rows[0].rows} rows a setting.` : "no errors were measured."}`
      + (chosen && chosen.alone ? ` This site alone, ${data.series[state.series]} with ${state.bits} bits: loss ${chosen.alone.loss === null ? "not measured" : signed(chosen.alone.loss)}`
        + (chosen.alone.lossLow === null ? "." : ` (${signed(chosen.alone.lossLow)} to ${signed(chosen.alone.lossHigh)}).`) : "");
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
      one.append(...(named ? [make("th", `head ${r.head}`, {scope: "row"})] : []), make("th", data.series[r.series], {scope: "row"}),
        ...[String(r.bits ?? "-"), short(r.output), short(r.s0), short(r.s5), short(r.s50), short(r.s95), short(r.s100),
          short(r.mean), percent(r.argmax), percent(r.top5)].map((t) => make("td", t)));
      body.append(one);
    }
    table.append(make("caption", caption), top, body);
    return table;
  }

  function start() {
    const seriesBox = byId("heat-series"), valueBox = byId("heat-value");
    if (!seriesBox || !cells.size) return;
    const used = [...new Set([...cells.values()].map((c) => c.series))].sort((a, b) => a - b);
    const usable = quantities.filter((q) => [...cells.values()].some((c) => ofSite(q, c).value !== null));
    const best = data.recommended === null ? null : settings[data.recommended];
    state.series = best && used.includes(best.series) ? best.series : used[0];
    state.quantity = usable[0] || quantities[0];
    used.forEach((s) => seriesBox.append(make("option", data.series[s], {value: s})));
    usable.forEach((q) => valueBox.append(make("option", q.name)));
    seriesBox.value = String(state.series);
    seriesBox.addEventListener("change", () => { state.series = Number(seriesBox.value); heat(); heads(); panel(); });
    valueBox.addEventListener("change", () => { state.quantity = usable[valueBox.selectedIndex]; heat(); heads(); });
    const own = [...cells.values()].filter((c) => c.series === state.series);
    const bits = best && own.some((c) => c.bits === best.bits) ? best.bits : d3.min(own, (c) => c.bits) ?? null;
    const worst = d3.greatest(own.filter((c) => c.bits === bits), (c) => ofSite(state.quantity, c).value ?? -1) || own[0];
    Object.assign(state, {site: worst.site, bits: worst.bits});
    byId("choose").hidden = false;
    byId("heat").addEventListener("keydown", moves);
    byId("heads")?.addEventListener("keydown", moves);
    heads();
    heat();
    panel();
  }

  const themes = ["automatic", "light", "dark"];
  function theme() {
    const button = byId("theme");
    button.hidden = false;
    button.addEventListener("click", () => {
      const next = themes[(themes.indexOf(document.documentElement.dataset.theme || "automatic") + 1) % 3];
      document.documentElement.dataset.theme = next;
      button.textContent = `Theme: ${next}`;
    });
  }

  let width = innerWidth;
  function all() { accuracy(); spread(); panel(); }
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; requestAnimationFrame(all); } });
  theme();
  legends();
  start();
  accuracy();
  spread();
})();
