// Colours and symbols of methods and studies, and the legends that switch them on and off.
const MANY = 8;
const symbols = ["circle", "square", "diamond", "triangle", "star", "cross", "wye"];
const shapes = {circle: d3.symbolCircle, square: d3.symbolSquare, diamond: d3.symbolDiamond2, triangle: d3.symbolTriangle,
  star: d3.symbolStar, cross: d3.symbolCross, wye: d3.symbolWye};

// The front's methods come first, so that their colours differ.
const ranks = (() => {
  const first = fronts().flat().map((p) => p.series);
  const order = [...new Set([...first, ...names.keys()])];
  return new Map(order.map((series, rank) => [series, rank]));
})();
const colour = (series) => `var(--s${ranks.get(series) % 8})`;
const symbol = (series) => symbols[ranks.get(series) % symbols.length];
// Of several studies a colour tells the study, and so does the symbol.
const tint = (p) => several ? `var(--s${p.study % 8})` : colour(p.series);
const shape = (p) => several ? symbols[p.study % symbols.length] : symbol(p.series);

function icon(fill, kind) {
  const svg = d3.create("svg").attr("width", 14).attr("height", 14).attr("viewBox", "-7 -7 14 14").attr("aria-hidden", "true");
  svg.append("path").attr("d", d3.symbol(shapes[kind], 55)()).style("fill", fill);
  return svg.node();
}

// The methods that charts tell apart: all that are shown if they are few, else those of the front and of what was chosen.
function told() {
  const shown = new Set([...names.keys()].filter((s) => !view.hidden.has(s)));
  if (shown.size <= MANY) return shown;
  const found = new Set(fronts().flat().map((p) => p.series));
  if (view.pinned) found.add(view.pinned.series);
  return found;
}

const used = [...new Set([...points.map((p) => p.series), ...studies.flatMap((s) => s.errors.map((e) => e.setting.series))])]
  .sort((a, b) => ranks.get(a) - ranks.get(b));

function hideBut(kept) {
  view.hidden = new Set(used.filter((s) => !kept.has(s)));
  changed();
}

function toggle(set, one, all, alone) {
  const shown = all.filter((x) => !set.has(x));
  if (alone) {
    const only = shown.length === 1 && shown[0] === one;
    set.clear();
    if (!only) for (const other of all) if (other !== one) set.add(other);
  } else if (!set.delete(one)) set.add(one);
  changed();
}

function keys(place, entries, set) {
  place.replaceChildren(...entries.map(({id, name, fill, kind}) => {
    const button = make("button", undefined, {type: "button", class: "key", "data-id": String(id)});
    button.append(icon(fill, kind), document.createTextNode(name));
    button.addEventListener("click", (event) => toggle(set(), id, entries.map((e) => e.id), event.altKey || event.shiftKey));
    return button;
  }));
  listeners.push(() => {
    for (const button of place.children) button.setAttribute("aria-pressed", String(!set().has(Number(button.dataset.id))));
  });
}

function legends() {
  const place = byId("methods");
  if (place) {
    byId("methods-part").hidden = false;
    keys(place, used.map((s) => ({id: s, name: names[s], fill: several ? "var(--soft)" : colour(s), kind: several ? "circle" : symbol(s)})),
      () => view.hidden);
    if (several) keys(byId("studies"), studies.map((s) => ({id: s.number, name: s.label, fill: tint({study: s.number}), kind: shape({study: s.number})})),
      () => view.away);
    // On a narrow screen the plot comes first.
    byId("methods-box").open = innerWidth > 700 || used.length <= MANY;
    listeners.push(() => {
      const front = new Set(fronts().flat().map((p) => p.series));
      byId("methods-count").textContent = `Methods: ${used.filter((s) => !view.hidden.has(s)).length} of ${used.length} shown`;
      for (const button of place.children) button.classList.toggle("on-front", front.has(Number(button.dataset.id)));
    });
    const integers = new Set(points.filter((p) => p.record.integer_only).map((p) => p.series));
    const kept = {
      all: () => new Set(used),
      front: () => { view.hidden = new Set(); return new Set(fronts().flat().map((p) => p.series)); },
      integer: () => integers,
    };
    for (const button of document.querySelectorAll("[data-only]")) {
      button.addEventListener("click", () => hideBut(kept[button.dataset.only]()));
      if (button.dataset.only === "integer" && !integers.size) button.hidden = true;
    }
  }
  listeners.push(() => {
    const known = told(), shown = used.filter((s) => !view.hidden.has(s)), few = shown.filter((s) => known.has(s));
    for (const place of document.querySelectorAll("[data-legend]")) {
      place.replaceChildren(...few.map((s) => {
        const entry = make("span");
        entry.append(icon(colour(s), symbol(s)), document.createTextNode(names[s]));
        return entry;
      }));
      if (few.length < shown.length) {
        const entry = make("span", undefined, {class: "others"});
        entry.append(icon("var(--mute)", "circle"), document.createTextNode(`${shown.length - few.length} others`));
        place.append(entry);
      }
    }
  });
}
