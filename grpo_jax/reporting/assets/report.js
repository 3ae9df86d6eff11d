"use strict";
// Text from a model only ever becomes the text of a node, never markup.
const data = (id) => JSON.parse(document.getElementById(id).textContent);

const readouts = data("readouts");
const shown = (value) => (Math.abs(value) >= 1e5 ? value.toLocaleString("en") : String(value));
for (const [id, chart] of Object.entries(readouts)) {
  const figure = document.getElementById(id);
  const svg = figure.querySelector("svg"), cross = svg.querySelector(".cross"), output = figure.querySelector("output");
  const nearest = (steps, step) => {
    let low = 0, high = steps.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (steps[middle] < step) low = middle + 1; else high = middle;
    }
    return low > 0 && step - steps[low - 1] < steps[low] - step ? low - 1 : low;
  };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const share = ((event.clientX - box.left) / box.width - chart.left) / (chart.right - chart.left);
    const aim = chart.first + Math.min(Math.max(share, 0), 1) * (chart.last - chart.first);
    const first = chart.series[0].steps, step = first[nearest(first, aim)];
    const place = (step - chart.first) / (chart.last - chart.first || 1);
    const x = (chart.left + place * (chart.right - chart.left)) * chart.width;
    cross.setAttribute("x1", x);
    cross.setAttribute("x2", x);
    cross.classList.add("on");
    const values = chart.series.map((one) => {
      const value = shown(one.values[nearest(one.steps, step)]);
      return chart.series.length > 1 ? `${one.label} ${value}` : value;
    });
    output.textContent = `step ${step}: ${values.join(", ")}`;
  });
  svg.addEventListener("pointerleave", () => {
    cross.classList.remove("on");
    output.textContent = "";
  });
}

const samples = data("samples-data");
const form = document.getElementById("filters");
if (form) {
  const list = document.getElementById("completions"), more = document.getElementById("more");
  const found = document.getElementById("found");
  const PAGE = 12;
  let matches = [], count = 0;

  const node = (tag, className, text) => {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const outcome = (row) => (row.error ? "error" : row.correct ? "right" : "wrong");
  const VERDICTS = { right: "✓ right", wrong: "✗ wrong", error: "! judge failed" };

  const marked = (text, wanted) => {
    const pre = node("pre");
    if (!wanted) {
      pre.textContent = text;
      return pre;
    }
    const lower = text.toLowerCase(), needle = wanted.toLowerCase();
    let place = 0;
    for (let hit = lower.indexOf(needle); hit >= 0 && lower.length === text.length; hit = lower.indexOf(needle, place)) {
      pre.append(text.slice(place, hit), node("mark", "", text.slice(hit, hit + needle.length)));
      place = hit + needle.length;
    }
    pre.append(text.slice(place));
    return pre;
  };

  const card = (row, wanted) => {
    const article = node("article"), head = node("div", "head");
    head.append(node("span", `badge ${outcome(row)}`, VERDICTS[outcome(row)]));
    head.append(node("span", "", `${row.split}, step ${row.step}`));
    head.append(node("span", "", `reward ${+Number(row.reward).toFixed(4)}`));
    head.append(node("span", "", `${row.length_tokens} tokens${row.truncated ? ", cut off" : ""}`));
    head.append(node("span", "", row.reason));
    const same = node("button", "same", "this problem at all steps");
    same.type = "button";
    same.addEventListener("click", () => {
      form.reset();
      form.elements.text.value = row.problem;
      search();
      form.scrollIntoView({ block: "center" });
    });
    head.append(same);
    const text = marked(row.completion, wanted);
    text.classList.add("clipped");
    text.tabIndex = row.completion.length > 1500 ? 0 : -1;
    const read = row.parsed === null ? "no answer was read" : `read as ${row.parsed}`;
    const fields = node("div", "fields");
    fields.append(node("h4", "", "problem"), marked(row.problem, wanted));
    fields.append(node("h4", "", "completion"), text);
    fields.append(node("h4", "", "answer"), node("pre", "", `${read}; wanted ${row.answer}`));
    article.append(head, fields);
    return article;
  };

  const show = () => {
    const wanted = form.elements.text.value;
    list.append(...matches.slice(count, count + PAGE).map((row) => card(row, wanted)));
    count = Math.min(count + PAGE, matches.length);
    more.hidden = count >= matches.length;
    found.textContent = `${matches.length} of ${samples.length} completions`;
  };

  const search = () => {
    const chosen = Object.fromEntries(new FormData(form)), wanted = chosen.text.toLowerCase();
    matches = samples.filter((row) =>
      (!chosen.split || row.split === chosen.split) &&
      (!chosen.step || String(row.step) === chosen.step) &&
      (!chosen.outcome || (chosen.outcome === "truncated" ? row.truncated : outcome(row) === chosen.outcome)) &&
      (!chosen.reason || row.reason.slice(0, 80) === chosen.reason) &&
      (!wanted || row.problem.toLowerCase().includes(wanted) || row.completion.toLowerCase().includes(wanted)));
    list.replaceChildren();
    count = 0;
    show();
  };

  form.addEventListener("input", search);
  form.addEventListener("submit", (event) => event.preventDefault());
  more.addEventListener("click", show);
  search();
}
