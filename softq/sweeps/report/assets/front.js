// What is recommended, of the settings that are shown: the rule of softq/sweeps/report/verdicts.py, by any number.
const across = (p) => p.record[view.across];
const worst = (p) => p.record.loss_high ?? p.record.loss;

// Those with a number and a loss, what is recommended first in front.
function ranked(found) {
  const order = (a, b) => a < b ? -1 : a > b ? 1 : 0;
  return found.filter((p) => !missing(across(p)) && p.record.loss !== null).sort((a, b) =>
    across(a) - across(b) || (b.record.integer_only === true) - (a.record.integer_only === true)
    || a.record.loss - b.record.loss || worst(a) - worst(b) || order(a.record.name, b.record.name));
}

function frontOf(found) {
  const front = [];
  for (const p of ranked(found)) {
    const last = front[front.length - 1];
    if (last && p.record.loss >= last.record.loss) continue;
    if (last && across(last) === across(p)) front.pop();
    front.push(p);
  }
  return front;
}

function stepsOf(found) {
  const rows = ranked(found).map((p, place) => ({p, place, budget: Math.max(0, worst(p))}));
  const steps = [];
  let best = rows.length;
  for (const row of rows.slice().sort((a, b) => a.budget - b.budget || a.place - b.place)) {
    if (row.place < best) { best = row.place; steps.push(row); }
  }
  return steps;
}

const fronts = () => studies.map((s) => frontOf(s.points.filter(isShown)));

// The tables of the answer follow what is shown and what it is drawn against.
function answers() {
  const column = columns.find((c) => c.name === view.across);
  for (const table of document.querySelectorAll("table[data-steps]")) {
    const s = studies[Number(table.dataset.steps)];
    table.querySelector("[data-axis]").textContent = heading(column);
    table.caption.textContent = table.caption.textContent.replace(/^.*? for what/, `${view.across === "bits" ? "Fewest bits" : `Least ${column.title}`} for what`);
    const rows = stepsOf(s.points.filter(isShown)).map(({p, budget}) => {
      const r = p.record, row = make("tr", undefined, {"data-key": p.key});
      row.append(make("th", s.signed(budget), {scope: "row"}), make("td", r.name, {class: "text"}), make("td", amount(across(p))),
        make("td", s.signed(r.loss)), make("td", r.loss_low === null ? "none" : `${s.signed(r.loss_low)} to ${s.signed(r.loss_high)}`),
        make("td", r.integer_only === null ? "-" : r.integer_only ? "yes" : "no"));
      if (view.across === data.axis && r.setting === s.recommended) row.className = "chosen";
      return row;
    });
    if (!rows.length) {
      const row = make("tr");
      row.append(make("td", "Of what is shown nothing has such a number.", {colspan: "6", class: "text"}));
      rows.push(row);
    }
    table.tBodies[0].replaceChildren(...rows);
  }
}
