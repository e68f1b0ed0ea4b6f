// The chart of the accuracy: a point for each setting, the front joined and named, points that the mouse and keys reach.
// Studies whose losses are of one metric share a chart.
const groups = [...d3.group(studies.filter((s) => s.points.length), (s) => `${s.metric} ${s.relative}`).values()];
const margin = {top: 30, right: 14, bottom: 42, left: 62};
const quantities = {
  loss: {title: () => "Loss against float", mid: (r) => r.loss, low: (r) => r.loss_low, high: (r) => r.loss_high, form: (s) => s.signed},
  metric: {title: (s) => s.metric, mid: (r) => r.metric, low: (r) => r.metric_low, high: (r) => r.metric_high, form: () => short},
};

function says(p) {
  const r = p.record, s = studies[p.study], column = columns.find((c) => c.name === view.across);
  const within = (value, low, high, form) => missing(low) ? form(value) : `${form(value)} (${form(low)} to ${form(high)})`;
  return [several ? `${r.name}, ${s.label}` : r.name, `loss ${within(r.loss, r.loss_low, r.loss_high, s.signed)}`,
    `${s.metric} ${within(r.metric, r.metric_low, r.metric_high, short)}`,
    ...(view.across === "bits" ? [] : [phrase(column, within(across(p), r[`${column.name}_low`], r[`${column.name}_high`], amount))]),
    ...(r.verdict === "same" ? ["not distinguishable from float"] : []),
    ...(r.within_budget === null ? [] : [r.within_budget ? "within the budget" : "not within the budget"])];
}

function abscissa(found, right) {
  const values = [...new Set(found.map(across))].sort((a, b) => a - b), range = [margin.left, right];
  if (values.length <= 12 && values.every(Number.isInteger)) return {at: d3.scalePoint(values, range).padding(0.55), ticks: values, slots: true};
  const [low, high] = d3.extent(values), log = low > 0 && high > 5 * low;
  // To the next decade would be too far.
  const at = (log ? d3.scaleLog().domain([low / 1.15, high * 1.15]) : d3.scaleLinear().domain([low, high]).nice()).range([range[0] + 8, range[1] - 8]);
  return {at, ticks: at.ticks(Math.max(3, Math.round((right - margin.left) / 90))).filter((t) => !log || /^[125]/.test(t.toExponential())), slots: false};
}

function ordinate(values, bottom) {
  const {type, constant, ticks, domain} = scale(values, false);
  const at = type === "symlog" ? d3.scaleSymlog().constant(constant) : type === "log" ? d3.scaleLog() : d3.scaleLinear();
  at.domain(domain ?? d3.extent(values)).range([bottom - 8, margin.top + 8]);
  if (!type) at.nice();
  return {at, ticks: Array.isArray(ticks) ? ticks : at.ticks(5)};
}

// Where a point stands: those of one slot stand side by side, first the methods that are told apart, then by loss.
function stand(found, x, y, known) {
  const order = (a, b) => known.has(b.p.series) - known.has(a.p.series)
    || (known.has(a.p.series) ? ranks.get(a.p.series) - ranks.get(b.p.series) || a.p.study - b.p.study : a.p.record.loss - b.p.record.loss);
  const slots = d3.group(found, (m) => across(m.p)), apart = d3.min(d3.pairs([...slots.keys()].sort((a, b) => a - b).map(x.at), (a, b) => b - a));
  for (const slot of slots.values()) {
    const room = Math.min(0.82 * (x.slots ? x.at.step() : apart) / slot.length, 11);
    slot.sort(order).forEach((m, i) => { m.x = x.at(across(m.p)) + room * (i - (slot.length - 1) / 2); m.y = y(m.mid); });
  }
}

// Names beside the points of the front, each where none is yet.
function label(marks, right, bottom) {
  const taken = marks.map((m) => [m.x - 6, m.y - 6, m.x + 6, m.y + 6]);
  return marks.map((m) => {
    const text = names[m.p.series], width = 6.7 * text.length + 4;
    const left = Math.max(margin.left + 2, Math.min(m.x - width / 2, right - width));
    const tries = [-12, 20, -26, 34, -40, 48, -54, 62, -68, 76].map((dy) => [left, m.y + dy - 11, left + width, m.y + dy + 3]);
    const free = tries.find(([a, b, c, d]) => b > 0 && d < bottom && !taken.some(([e, f, g, h]) => a < g && c > e && b < h && d > f)) || tries[0];
    taken.push(free);
    return {m, text, x: free[0] + 2, y: free[3] - 3, far: Math.abs(free[3] - m.y) > 30};
  });
}

function plot(figure, group) {
  const place = figure.querySelector(".plot"), first = group[0], quantity = quantities[view.down], form = quantity.form(first);
  const inside = shownPoints().filter((p) => group.includes(studies[p.study]));
  const found = inside.filter((p) => !missing(across(p)) && p.record.loss !== null)
    .map((p) => ({p, mid: quantity.mid(p.record), low: quantity.low(p.record), high: quantity.high(p.record)}));
  const column = columns.find((c) => c.name === view.across);
  const title = quantity.title(first), outside = inside.filter((p) => missing(across(p)));
  figure.querySelector("strong").textContent = title;
  figure.querySelector("figcaption span").textContent = `by ${heading(column)}${groups.length > 1 ? `: ${group.map((s) => s.label).join(", ")}` : ""}`;
  figure.querySelector(".outside").textContent = outside.length
    ? `${outside.length} settings have no ${column.title} and stand in the table alone: ${outside.map((p) => p.record.name).join(", ")}.` : "";
  figure.dataset.marks = String(found.length);
  if (!found.length) { place.replaceChildren(make("p", "No numbers to draw.", {class: "none"})); return; }
  const known = told(), frontPoints = new Set(fronts().flat()), few = used.filter((s) => !view.hidden.has(s)).length <= MANY;
  const isTold = (m) => known.has(m.p.series), onFront = (m) => frontPoints.has(m.p);
  const width = Math.max(280, place.clientWidth || 600), height = width < 500 ? 320 : 430;
  const right = width - margin.right, bottom = height - margin.bottom;
  const bars = found.filter((m) => (known.size <= MANY ? isTold(m) : onFront(m)) && !missing(m.low) && !missing(m.high));
  const rule = view.down === "loss" ? [0] : [...new Set(group.map((s) => s.reference[0]).filter((v) => v !== null))];
  const budgets = view.down === "loss" ? [...new Set(group.map((s) => s.budget).filter((b) => b !== null))] : [];
  const x = abscissa(found.map((m) => m.p), right);
  const y = ordinate([...found.map((m) => m.mid), ...bars.flatMap((m) => [m.low, m.high]), ...rule, ...budgets], bottom);
  stand(found, x, y.at, known);
  const svg = d3.create("svg").attr("width", width).attr("height", height).attr("viewBox", `0 0 ${width} ${height}`).attr("role", "group")
    .attr("aria-label", `${title} against ${heading(column)}: ${found.length} points. Arrow keys move, Home goes to the front, Enter keeps a point.`);
  const axis = svg.append("g").attr("class", "axis").attr("aria-hidden", "true");
  for (const tick of y.ticks) {
    axis.append("line").attr("class", "grid").attr("x1", margin.left).attr("x2", right).attr("y1", y.at(tick)).attr("y2", y.at(tick));
    axis.append("text").attr("x", margin.left - 8).attr("y", y.at(tick)).attr("dy", "0.32em").attr("text-anchor", "end").text(form(tick));
  }
  const wide = d3.max(x.ticks, (t) => amount(t).length) * 7 + 6, every = x.slots ? Math.ceil(wide / x.at.step()) : 1;
  x.ticks.forEach((tick, i) => { if (i % every === 0) axis.append("text").attr("x", x.at(tick)).attr("y", bottom + 18).attr("text-anchor", "middle").text(amount(tick)); });
  axis.append("text").attr("x", right).attr("y", height - 6).attr("text-anchor", "end").text(`${heading(column)} \u2192`);
  const levels = [...rule.map((at) => ({at, kind: "rule", text: "float"})), ...budgets.map((at) => ({at, kind: "budget", text: `budget ${form(at)}`}))];
  for (const {at, kind} of levels) axis.append("line").attr("class", kind).attr("x1", margin.left).attr("x2", right).attr("y1", y.at(at)).attr("y2", y.at(at));
  const paint = (m) => isTold(m) || several ? tint(m.p) : "var(--mute)";
  const bar = (to, m, kind) => to.append("line").attr("class", kind).attr("x1", m.x).attr("x2", m.x).attr("y1", y.at(m.low)).attr("y2", y.at(m.high)).style("stroke", paint(m));
  const ofSeries = d3.group(found, (m) => `${m.p.study} ${m.p.series}`);
  const path = d3.line((m) => m.x, (m) => m.y), sorted = (marks) => marks.slice().sort((a, b) => across(a.p) - across(b.p));
  const behind = svg.append("g").attr("aria-hidden", "true");
  for (const m of bars) bar(behind, m, "bar");
  if (few || (!several && known.size <= MANY)) for (const marks of ofSeries.values()) if (isTold(marks[0])) behind.append("path").attr("class", "series").attr("d", path(sorted(marks))).style("stroke", paint(marks[0]));
  const of = new Map(found.map((m) => [m.p, m]));
  const chains = group.map((s) => frontOf(s.points.filter(isShown)).map((p) => of.get(p)).filter(Boolean));
  for (const chain of chains) if (chain.length > 1) behind.append("path").attr("class", "front").attr("d", path(chain)).style("stroke", several ? tint(chain[0].p) : null);
  const active = svg.append("g").attr("class", "active").attr("aria-hidden", "true");
  const start = view.pinned && of.get(view.pinned) || of.get(first.points.find((p) => p.setting === first.recommended)) || chains.find((c) => c.length)?.[0] || found[0];
  const layers = found.slice().sort((a, b) => onFront(a) - onFront(b) || isTold(a) - isTold(b));
  for (const m of layers) {
    m.node = svg.append("path").attr("class", `point${onFront(m) ? " on-front" : ""}${isTold(m) ? " told" : several ? " pale" : ""}`)
      .attr("d", d3.symbol(shapes[isTold(m) || several ? shape(m.p) : "circle"], onFront(m) ? 95 : isTold(m) ? 55 : 26)())
      .attr("transform", `translate(${m.x},${m.y})`).style("fill", paint(m)).attr("data-key", m.p.key).attr("tabindex", m === start ? "0" : "-1")
      .attr("role", "button").attr("aria-pressed", String(m.p === view.pinned)).attr("aria-label", `${says(m.p).join(", ")}${onFront(m) ? ", on the front" : ""}`).node();
  }
  const texts = svg.append("g").attr("class", "labels").attr("aria-hidden", "true");
  for (const {at, kind, text} of levels) texts.append("text").attr("class", kind).attr("x", right).attr("y", y.at(at) - 4).attr("text-anchor", "end").text(text);
  for (const {m, text, x: at, y: down, far} of label(chains.flat(), right, bottom)) {
    if (far) texts.append("line").attr("x1", m.x).attr("x2", m.x).attr("y1", m.y + (down < m.y ? -6 : 6)).attr("y2", down < m.y ? down + 3 : down - 11);
    texts.append("text").attr("x", at).attr("y", down).text(text).style("fill", several ? tint(m.p) : null);
  }
  const tip = make("div", undefined, {class: "tip", hidden: ""});
  place.replaceChildren(svg.node(), tip);

  function show(m) {
    active.selectAll("*").remove();
    tip.hidden = !m;
    if (!m) return;
    active.append("path").attr("class", "series").attr("d", path(sorted(ofSeries.get(`${m.p.study} ${m.p.series}`)))).style("stroke", tint(m.p));
    if (!missing(m.low) && !missing(m.high) && m.low >= y.at.domain()[0]) bar(active, m, "bar");
    active.append("circle").attr("cx", m.x).attr("cy", m.y).attr("r", 9);
    tip.replaceChildren(...says(m.p).map((text, i) => make(i ? "div" : "b", text)));
    const wide = Math.min(tip.offsetWidth, width);
    tip.style.left = `${Math.max(0, Math.min(m.x - wide / 2, width - wide))}px`;
    tip.style.top = m.y > tip.offsetHeight + 16 ? `${m.y - tip.offsetHeight - 14}px` : `${m.y + 16}px`;
  }

  function nearest(event) {
    const box = svg.node().getBoundingClientRect(), at = [event.clientX - box.left, event.clientY - box.top];
    const best = d3.least(found, (m) => Math.hypot(m.x - at[0], m.y - at[1]));
    return Math.hypot(best.x - at[0], best.y - at[1]) < 28 ? best : null;
  }

  const focused = () => found.find((m) => m.node === document.activeElement) || null;
  const node = svg.node();
  node.addEventListener("pointermove", (event) => show(nearest(event) || focused()));
  node.addEventListener("pointerleave", () => show(focused()));
  node.addEventListener("click", (event) => { const m = nearest(event); if (m) keep(m.p, figure); });
  node.addEventListener("focusin", () => show(focused()));
  node.addEventListener("focusout", () => show(null));
  node.addEventListener("keydown", (event) => {
    const m = focused();
    if (!m || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); keep(m.p, figure); return; }
    if (event.key === "Escape") { if (view.pinned) keep(view.pinned, figure); return; }
    const own = sorted(ofSeries.get(`${m.p.study} ${m.p.series}`)), i = own.indexOf(m);
    const here = found.filter((o) => across(o.p) === across(m.p)).sort((a, b) => a.mid - b.mid || a.x - b.x), j = here.indexOf(m);
    const chain = chains.flat();
    const next = {ArrowRight: own[i + 1], ArrowLeft: own[i - 1], ArrowUp: here[j + 1], ArrowDown: here[j - 1], Home: chain[0], End: chain[chain.length - 1]}[event.key];
    if (!next) return;
    event.preventDefault();
    m.node.setAttribute("tabindex", "-1");
    next.node.setAttribute("tabindex", "0");
    next.node.focus();
  });
  if (view.pinned && of.get(view.pinned)) show(of.get(view.pinned));
}

// Keeps a point, or lets go of the one that is kept.
function keep(p, figure) {
  view.pinned = view.pinned === p ? null : p;
  changed();
  figure.querySelector(`[data-key="${p.key}"]`)?.focus({preventScroll: true});
}

function chosen() {
  const place = byId("chosen"), p = view.pinned;
  if (!place) return;
  place.hidden = !p;
  if (!p) { place.replaceChildren(); return; }
  const [name, ...facts] = says(p), list = make("ul");
  list.append(...facts.map((fact) => make("li", fact)),
    ...columns.filter((c) => c.name !== view.across && c.name !== "bits" && !missing(p.record[c.name])).map((c) => make("li", phrase(c, amount(p.record[c.name])))));
  const only = make("button", "Show this method alone", {type: "button"}), row = make("button", "Go to its row", {type: "button"}), off = make("button", "Let go", {type: "button"});
  only.addEventListener("click", () => hideBut(new Set([p.series])));
  row.addEventListener("click", () => goTo(p));
  off.addEventListener("click", () => { view.pinned = null; changed(); });
  const line = make("p");
  line.append(only, " ", row, " ", off);
  place.replaceChildren(make("b", name), list, line);
}

function accuracy() {
  const place = byId("plots");
  if (!place) return;
  if (!place.children.length) {
    place.append(...groups.map((_, i) => {
      const figure = make("figure", undefined, {class: "chart main", id: `chart-main-${i}`}), caption = make("figcaption");
      caption.append(make("strong"), " ", make("span"));
      figure.append(caption, make("div", undefined, {class: "plot"}), make("p", undefined, {class: "fine outside"}));
      return figure;
    }));
  }
  groups.forEach((group, i) => plot(place.children[i], group));
  chosen();
}

function choices() {
  const downBox = byId("down"), acrossBox = byId("across");
  if (!downBox) return;
  downBox.append(make("option", "the loss", {value: "loss"}), make("option", "the metric", {value: "metric"}));
  const usable = columns.filter((c) => points.some((p) => !missing(p.record[c.name])));
  // Without bits the first number that settings have is what they are drawn against.
  if (!usable.some((c) => c.name === view.across)) view.across = (usable[0] || columns[0]).name;
  acrossBox.append(...usable.map((c) => make("option", heading(c), {value: c.name})));
  acrossBox.value = view.across;
  downBox.addEventListener("change", () => { view.down = downBox.value; changed(); });
  acrossBox.addEventListener("change", () => { view.across = acrossBox.value; changed(); });
}
