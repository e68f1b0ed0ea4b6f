// What scrolls gets a sign where there is more, the theme its button, and the page its first drawing.
function frame(node) {
  const around = make("div", undefined, {class: "frame"});
  node.replaceWith(around);
  around.append(node, make("span", "more \u2192", {class: "sign right", "aria-hidden": "true"}), make("span", "more \u2193", {class: "sign below", "aria-hidden": "true"}));
  const mark = () => {
    around.classList.toggle("more-right", node.scrollLeft + node.clientWidth < node.scrollWidth - 2);
    around.classList.toggle("more-below", node.scrollTop + node.clientHeight < node.scrollHeight - 2);
  };
  node.addEventListener("scroll", mark, {passive: true});
  const watch = new ResizeObserver(mark);
  watch.observe(node);
  // What is inside grows and shrinks, too.
  new MutationObserver(mark).observe(node, {childList: true, subtree: true, attributes: true, attributeFilter: ["hidden"]});
  mark();
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
addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; requestAnimationFrame(changed); } });
// Paper shows what is folded.
let folded = [];
addEventListener("beforeprint", () => { folded = [...document.querySelectorAll("main details:not([open])")]; for (const one of folded) one.open = true; });
addEventListener("afterprint", () => { for (const one of folded) one.open = false; });
theme();
choices();
legends();
settings();
sites();
listeners.push(accuracy, answers);
for (const node of document.querySelectorAll(".scroll")) frame(node);
changed();
