// The table of settings: sorted by its headings, narrowed by words and by the methods that are shown, and saved as files.
const table = byId("settings-table");
const bySetting = new Map(points.map((p) => [p.key, p]));
const rows = table ? [...table.tBodies[0].rows].map((row, place) => ({row, place, p: bySetting.get(`${row.dataset.study}/${row.dataset.setting}`),
  words: [...row.querySelectorAll("th, .text")].map((cell) => cell.textContent.toLowerCase()).join(" ")})) : [];
const order = {key: null, down: false};
const narrowings = [
  {name: "everything", keeps: () => true},
  {name: "the front", keeps: (p, front) => front.has(p)},
  {name: "what is not distinguishable from float", keeps: (p) => p.record.verdict === "same"},
  {name: "what is within the budget", keeps: (p) => p.record.within_budget === true},
  {name: "integer-only methods", keeps: (p) => p.record.integer_only === true},
].filter(({keeps}, i) => i < 2 || points.some((p) => keeps(p)));

// A number is a whole word: 5 finds what has 5 bits, and not what has 15.
const finds = (text, word) => /^[0-9]+$/.test(word) ? text.split(/\s+/).includes(word) : text.includes(word);

function shownRows() {
  const words = byId("find").value.toLowerCase().split(/\s+/).filter(Boolean);
  const front = new Set(fronts().flat()), {keeps} = narrowings[byId("only").selectedIndex];
  return rows.filter(({p, words: text}) => isShown(p) && keeps(p, front) && words.every((word) => finds(text, word)));
}

function compare(a, b) {
  const [x, y] = [a, b].map(({p}) => p.record[order.key]);
  // What is not known comes last, whichever way is sorted.
  if (missing(x) || missing(y)) return missing(x) - missing(y) || a.place - b.place;
  const sign = typeof x === "string" ? x.localeCompare(y, "en", {numeric: true}) : x - y;
  return (order.down ? -sign : sign) || a.place - b.place;
}

function list() {
  if (!table) return;
  const kept = new Set(shownRows()), front = new Set(fronts().flat());
  for (const one of rows) {
    const head = one.row.cells[0], mark = head.querySelector("[data-front]");
    if (mark && !front.has(one.p)) mark.remove();
    if (!mark && front.has(one.p)) head.append(make("b", "front", {class: "mark", "data-front": ""}));
    one.row.hidden = !kept.has(one);
    one.row.classList.toggle("pinned", one.p === view.pinned);
  }
  byId("count").textContent = `${kept.size} of ${rows.length} settings are shown.`;
}

function sort(key) {
  order.down = order.key === key && !order.down;
  order.key = key;
  rows.sort(compare);
  table.tBodies[0].append(...rows.map(({row}) => row));
  for (const head of table.tHead.rows[0].cells) {
    if (head.dataset.key === key) head.setAttribute("aria-sort", order.down ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  }
}

function goTo(p) {
  const one = rows.find((row) => row.p === p);
  byId("find").value = "";
  byId("only").selectedIndex = 0;
  changed();
  one.row.tabIndex = -1;
  one.row.scrollIntoView({block: "center"});
  one.row.focus({preventScroll: true});
}

const records = () => shownRows().map(({p}) => p.record);

function asCsv(found) {
  const fields = [...new Set(found.flatMap((record) => Object.keys(record)))];
  const plain = (value) => missing(value) ? "" : typeof value === "object" ? JSON.stringify(value)
    // Keeps spreadsheets from taking a name for a formula.
    : typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : value === true ? "True" : value === false ? "False" : String(value);
  const quoted = (text) => /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  return [fields, ...found.map((record) => fields.map((name) => plain(record[name])))].map((line) => line.map(quoted).join(",") + "\n").join("");
}

const asJson = (found) => JSON.stringify({settings: found}, null, 1) + "\n";

// The file is made when it is asked for, of what is shown then.
function saves(link, name, kind, write) {
  link.download = name;
  link.addEventListener("click", () => {
    const address = URL.createObjectURL(new Blob([write(records())], {type: kind}));
    link.href = address;
    setTimeout(() => { URL.revokeObjectURL(address); link.href = "#settings"; }, 10000);
  });
}

function settings() {
  if (!table) return;
  byId("filters").hidden = byId("saving").hidden = false;
  byId("only").append(...narrowings.map(({name}) => make("option", name)));
  byId("find").addEventListener("input", list);
  byId("only").addEventListener("change", list);
  for (const head of table.tHead.rows[0].cells) {
    const button = make("button", head.textContent, {type: "button"});
    button.addEventListener("click", () => sort(head.dataset.key));
    head.replaceChildren(button);
  }
  saves(byId("save-csv"), "settings.csv", "text/csv", asCsv);
  saves(byId("save-json"), "settings.json", "application/json", asJson);
  listeners.push(list);
}
