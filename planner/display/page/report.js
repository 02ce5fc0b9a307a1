"use strict";
{
const data = JSON.parse(document.getElementById("data").textContent);
const dark = matchMedia("screen and (prefers-color-scheme: dark)");  // what is printed is light
const MOST_SQUARE = 460;  // pixels of a picture that is as high as wide
const NARROW = 500;  // so that names of methods fit
const drawn = new Map();  // by box: how to draw it again, and its view

function made(tag, text = "", attributes = {}) {
  const element = Object.assign(document.createElement(tag), attributes);
  element.textContent = text;
  return element;
}

// A column, which is kept as its distinct values and their places where that is shorter.
function column(at) {
  const kept = data.columns[at];
  if (!Array.isArray(kept)) data.columns[at] = kept.at.map(place => kept.of[place]);
  return data.columns[at];
}

// Rows of a data set, whose columns are shared by all charts.
function rows(columns) {
  const names = Object.keys(columns);
  const values = names.map(name => column(columns[name]));
  return (values[0] || []).map((_, at) => Object.fromEntries(names.map((name, of) => [name, values[of][at]])));
}

const scheme = () => data.schemes[dark.matches ? "dark" : "light"];

// A specification with colours, and other values, in the place of their @names.
function meant(spec, values) {
  if (typeof spec === "string") return spec[0] === "@" && spec.slice(1) in values ? values[spec.slice(1)] : spec;
  if (Array.isArray(spec)) return spec.map(part => meant(part, values));
  if (spec === null || typeof spec !== "object") return spec;
  return Object.fromEntries(Object.entries(spec).map(([key, part]) => [key, meant(part, values)]));
}

async function draw(box, chart, top, then = () => {}) {
  const {colours, config} = scheme();
  const square = Math.min(box.clientWidth, MOST_SQUARE);
  const spec = {width: "container", ...meant(chart.spec, {...colours, top, square, inside: square - 2 * config.padding})};
  spec.datasets = Object.fromEntries(Object.entries(chart.data).map(([name, columns]) => [name, rows(columns)]));
  const options = {ast: true, actions: false, renderer: chart.canvas ? "canvas" : "svg", config: {...config, axisY: {labelLimit: (box.clientWidth < NARROW ? 0.46 : 0.28) * box.clientWidth}}};
  drawn.get(box)?.finalize?.();
  if (!box.isConnected) return;  // another plan was chosen meanwhile
  const found = await vegaEmbed(box, spec, options);
  box.querySelector("svg")?.setAttribute("aria-hidden", "true");  // the box says what the picture shows
  drawn.set(box, {again: () => draw(box, chart, top, then), view: found.view, finalize: found.finalize, isSquare: chart.spec.width === "@square"});
  then(found.view);
}

// Charts are drawn when they come into view, the others when there is time.
const waiting = new Map();
const observer = new IntersectionObserver(seen => seen.filter(each => each.isIntersecting).forEach(each => now(each.target)), {rootMargin: "200px"});
let drawing = 0;
async function now(box) {
  const start = waiting.get(box);
  observer.unobserve(box);
  waiting.delete(box);
  drawing += 1;
  try {
    await start?.();
  } finally {
    drawing -= 1;
  }
}
function later(box, ...how) {
  waiting.set(box, () => draw(box, ...how));
  observer.observe(box);
}
const idle = () => new Promise(then => (window.requestIdleCallback ? requestIdleCallback(then, {timeout: 100}) : setTimeout(then)));
let resting = false;
async function rest() {
  delete document.body.dataset.drawn;
  if (resting) return;
  resting = true;
  try {
    do {
      await idle();
      const [box] = waiting.keys();
      if (box) await now(box);
    } while (waiting.size || drawing);
  } finally {
    resting = false;
  }
  document.body.dataset.drawn = "all";
}

// What the patterns of a picture stand for.
function key(entries) {
  const whole = made("p", "", {className: "key"});
  for (const [name, pattern, share] of entries) {
    const sample = document.querySelector("#sample").cloneNode(true);
    sample.removeAttribute("id");
    const [shade, hatch] = [...sample.children].slice(1);
    const painted = () => {
      const named = pattern[0] === "@";
      shade.setAttribute("fill", named ? scheme().colours[pattern.slice(1)] : "currentColor");
      shade.setAttribute("fill-opacity", named ? 1 : share);
      const lines = dark.matches === share < 0.5 ? "ffffff" : "000000";  // ink on paper, paper on ink
      hatch.setAttribute("fill", pattern && !named ? `url(#${pattern}-${lines})` : "none");
    };
    painted();
    dark.addEventListener("change", painted);
    const entry = made("span");
    entry.append(sample, name);
    whole.append(entry);
  }
  return whole;
}

function figure(chart, top, then, says = true, whose = "") {
  const whole = made("figure");
  const box = made("div", "", {className: "chart"});
  box.setAttribute("role", "img");
  box.setAttribute("aria-label", `${chart.title}. ${chart.text}`.slice(0, 1000));
  const caption = made("figcaption", chart.title);
  if (whose) caption.prepend(made("b", whose, {className: "whose"}));
  caption.append(download(box, chart.title));
  if (says) caption.append(made("span", chart.text, {className: "says"}));
  whole.append(caption, ...(chart.key.length ? [key(chart.key)] : []), box);
  later(box, chart, top, then);
  return whole;
}

// A picture as a file, as it is drawn now.
function download(box, title) {
  const button = made("button", "SVG", {type: "button", className: "download"});
  button.setAttribute("aria-label", `Download as SVG: ${title}`.slice(0, 200));
  button.addEventListener("click", async () => {
    if (waiting.has(box)) await now(box);
    const file = new Blob([await drawn.get(box).view.toSVG()], {type: "image/svg+xml"});
    const link = made("a", "", {href: URL.createObjectURL(file), download: `${title}.svg`});
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
  return button;
}

function sortable(table) {
  const heads = [...table.querySelectorAll("thead th")];
  heads.forEach((head, column) => {
    const button = made("button", head.textContent, {type: "button"});
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = row => row.cells[column].dataset.value;
      const order = (a, b) => {
        const [x, y] = [key(a), key(b)];
        if (x === "" || y === "") return (x === "") - (y === "");  // absent values stay at the end
        const both = [Number(x), Number(y)];
        const less = both.some(Number.isNaN) ? x.localeCompare(y) : both[0] - both[1];
        return up ? less : -less;
      };
      const body = table.tBodies[0];
      body.append(...[...body.rows].sort(order));
    });
  });
}

function copied(command) {
  const text = command.querySelector("pre");
  const button = made("button", "Copy", {type: "button"});
  button.setAttribute("aria-label", `Copy: ${text.textContent}`.slice(0, 200));
  button.addEventListener("click", async () => {
    const before = button.textContent;
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "Copied";
    } catch {  // not allowed here: the text is selected, to be copied by hand
      getSelection().selectAllChildren(text);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = before; }, 1500);
  });
  command.append(button);
}

function labelled(text, control) {
  const label = made("label");
  label.append(made("span", text), control);
  return label;
}

// The plans of a subject: one or two of them side by side, and what is known of one layer in both.
function explorer(box, plans) {
  const none = {label: "none", charts: []};
  const choice = offered => {
    const select = made("select");
    offered.forEach((plan, place) => select.append(made("option", plan.label, {value: place})));
    return select;
  };
  const [first, second] = [choice(plans), choice([none, ...plans])];
  const chosen = () => [plans[first.value], [none, ...plans][second.value]];
  const views = new Map();
  const layer = made("input", "", {type: "number", min: 0, value: 0});
  const about = made("div", "", {className: "wide", tabIndex: 0});
  about.setAttribute("role", "region");
  about.setAttribute("aria-label", `What was chosen of ${box.parentElement.querySelector("h1")?.textContent ?? "the instance"}`);
  about.setAttribute("aria-live", "polite");
  const detailed = plan => plan.charts.find(chart => chart.details);
  const texts = (chart, name) => column(chart.data[chart.details[0]][name]);
  const named = (chart, title) => Object.keys(chart.details[1]).find(name => chart.details[1][name] === title);
  let picked = {at: 0, index: 0};  // in which of the two plans, and which of its layers or nodes

  // The same layer in the other plan, by its id or name; -1 where there is none, or several.
  function counterpart(from, to) {
    const title = named(from, "id") && named(to, "id") ? "id" : from.details[1].name;
    const value = texts(from, named(from, title))[picked.index];
    const there = texts(to, named(to, title));
    const first = there.indexOf(value);
    return first === there.lastIndexOf(value) ? first : -1;
  }
  function describe() {
    const charts = chosen().map(detailed);
    const at = charts.map((chart, slot) => chart && (slot === picked.at ? picked.index : counterpart(charts[picked.at], chart)));
    const table = made("table", "", {className: "plan"});
    const titles = new Set(charts.flatMap(chart => (chart ? Object.values(chart.details[1]) : [])));
    const says = (chart, slot, title) => {
      if (at[slot] < 0) return title === chart.details[1].name ? "not a part of its own here" : "";
      return named(chart, title) ? String(texts(chart, named(chart, title))[at[slot]] ?? "") : "";
    };
    for (const title of titles) {
      const row = table.insertRow();
      const head = made("th", title);
      head.scope = "row";
      row.append(head, ...charts.flatMap((chart, slot) => (chart ? [made("td", says(chart, slot, title))] : [])));
    }
    if (charts[1]) {
      const row = table.createTHead().insertRow();
      row.append(made("td"), ...chosen().map(plan => made("th", plan.label, {scope: "col"})));
    }
    about.replaceChildren(table);
    for (const [view, slot] of views) view.signal("chosen", at[slot] ?? -1).runAsync();
  }
  function choose(index, slot = 0) {
    const chart = detailed(chosen()[slot]);
    const last = texts(chart, Object.keys(chart.details[1])[0]).length - 1;
    picked = {at: slot, index: Math.min(Math.max(0, index || 0), last)};
    if (slot === 0) Object.assign(layer, {max: last, value: picked.index});
    describe();
  }
  function pickable(view, slot) {
    for (const [old, own] of views) if (own === slot) views.delete(old);
    views.set(view, slot);
    view.addEventListener("click", (_, item) => {
      if (item?.datum && "index" in item.datum) choose(item.datum.index, slot);
    });
    describe();
  }
  const both = made("div", "", {className: "plans"});
  const printed = made("p", "", {className: "printed"});
  function show() {
    for (const old of both.querySelectorAll(".chart")) {
      drawn.get(old)?.finalize();
      drawn.delete(old);
      waiting.delete(old);
    }
    views.clear();
    const found = chosen();
    const pairs = Math.max(...found.map(plan => plan.charts.length));
    both.replaceChildren();
    printed.textContent = found[1].charts.length ? "" : found[0].label;  // of two, each picture says whose it is
    for (let nth = 0; nth < pairs; nth += 1) {  // the same picture of both plans, to the same scale
      const beside = found.map(plan => plan.charts[nth]);
      const same = beside[0]?.unit === beside[1]?.unit;
      beside.forEach((chart, at) => {
        if (!chart) {
          if (found[1].charts.length) both.append(made("div"));
          return;
        }
        const top = same ? Math.max(...beside.map(each => each.top ?? 0)) : chart.top;
        const then = chart === detailed(found[at]) ? view => pickable(view, at) : undefined;
        both.append(figure(chart, top, then, true, found[1].charts.length ? found[at].label : ""));
      });
    }
    const main = detailed(found[0]);
    picking.hidden = !main;
    if (main) {
      noun.textContent = main.details[2];
      choose(Number(layer.value));
    }
    rest();
  }
  const picking = made("div", "", {className: "chosen"});
  const noun = made("span");
  const picker = made("label");
  picker.append(noun, " (or point at one) ", layer);
  picking.append(picker, about);
  const choices = made("p", "", {className: "choices"});
  choices.append(labelled("Plan", first), ...(plans.length > 1 ? [labelled("next to", second)] : []));
  box.append(choices, printed, picking, both);
  for (const select of [first, second]) select.addEventListener("change", show);
  layer.addEventListener("input", () => choose(Number(layer.value)));
  show();
}

for (const box of document.querySelectorAll("[data-plans]")) explorer(box, data.subjects[box.dataset.plans].plans);
for (const box of document.querySelectorAll("[data-chart]")) {
  const [subject, name] = box.dataset.chart.split(" ");
  const chart = data.subjects[subject].charts[name];
  box.append(figure(chart, chart.top, undefined, name === "frontier"));
}
document.querySelectorAll("table.sortable").forEach(sortable);
document.querySelectorAll(".command").forEach(copied);
dark.addEventListener("change", () => { for (const each of drawn.values()) each.again(); });
let resized;  // pictures with a width of their own are drawn again; Vega sees to the others
addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(() => { for (const each of drawn.values()) if (each.isSquare) each.again(); }, 100);
});
rest();
}
