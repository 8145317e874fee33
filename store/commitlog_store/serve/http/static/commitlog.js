// Live parts of pages, and charts. Everything works without it, but for these two; charts have a table.
"use strict";

// The part with data-live is replaced by what the server sends, unless a visitor is within it with the keyboard.
function follow(part) {
  let source = null;
  const begin = () => {
    if (source || document.hidden) return;
    source = new EventSource(part.dataset.live);
    source.onmessage = (event) => {
      if (!part.contains(document.activeElement)) part.innerHTML = event.data;
      document.dispatchEvent(new CustomEvent("commitlog:part"));
    };
  };
  const end = () => {
    if (source) source.close();
    source = null;
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? end() : begin()));
  window.addEventListener("pagehide", end);
  // A search changes what is shown: the stream is that of the new address.
  document.addEventListener("htmx:afterSettle", () => {
    end();
    part.dataset.live = "/live" + location.pathname + location.search;
    begin();
  });
  begin();
}

// A time as the tables have it: of a day, or of a week, or (without a span) whole.
function timeOf(seconds, span) {
  const text = new Date(seconds * 1000).toISOString().replace("T", " ");
  return span === "7d" ? text.slice(5, 16) : span ? text.slice(11, 16) : text.slice(0, 16);
}

async function draw(chart, words, span) {
  const address = chart.dataset.chart + (chart.dataset.chart.includes("?") ? "&" : "?") + "span=" + span;
  const answer = await fetch(address, { headers: { accept: "application/json" } });
  if (!answer.ok) {
    words.textContent = await answer.text();
    return;
  }
  const found = await answer.json();
  const total = found.counts.reduce((sum, one) => sum + one, 0);
  const style = getComputedStyle(document.documentElement);
  const color = style.getPropertyValue("--pico-color").trim();
  const axis = { stroke: color, grid: { stroke: style.getPropertyValue("--pico-muted-border-color").trim() } };
  chart.replaceChildren();
  new uPlot(
    {
      width: chart.clientWidth,
      height: 200,
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "UTC"),
      scales: { y: { range: (plot, low, high) => [0, Math.max(high, 1)] } },
      axes: [{ ...axis, values: (plot, seconds) => seconds.map((one) => timeOf(one, span)) }, axis],
      series: [
        { label: "Time (UTC)", value: (plot, seconds) => (seconds == null ? "--" : timeOf(seconds, "")) },
        {
          label: "messages in " + found.stepSeconds + " s",
          stroke: style.getPropertyValue("--pico-primary").trim(),
          fill: "rgba(1, 114, 173, 0.2)",
          paths: uPlot.paths.stepped({ align: 1 }),
        },
      ],
    },
    [found.times, found.counts],
    chart,
  );
  words.textContent = total.toLocaleString("en") + " messages stored in the last " + span + ".";
}

const UNITS = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];
// The steps of an axis of bytes.
const BYTE_STEPS = [...Array(58).keys()].map((power) => 2 ** power);

// A number as people read it; of bytes with its unit.
function shown(value, unit) {
  if (value == null) return "--";
  if (!unit.startsWith("bytes")) return value.toLocaleString("en", { maximumFractionDigits: 1 });
  let place = 0;
  for (; Math.abs(value) >= 1024 && place < UNITS.length - 1; place++) value /= 1024;
  return value.toLocaleString("en", { maximumFractionDigits: 1 }) + " " + UNITS[place] + "B";
}

function drawPast(chart, found, span) {
  const wanted = chart.dataset.series.split(" ");
  const chosen = found.series.filter((one) =>
    wanted.some((name) => (name.endsWith("*") ? one.name.startsWith(name.slice(0, -1)) : one.name === name)),
  );
  const style = getComputedStyle(document.documentElement);
  const axis = {
    stroke: style.getPropertyValue("--pico-color").trim(),
    grid: { stroke: style.getPropertyValue("--pico-muted-border-color").trim() },
  };
  chart.replaceChildren();
  if (!chosen.length) {
    chart.textContent = "Nothing to show in this time.";
    return;
  }
  const unit = chosen[0].unit;
  new uPlot(
    {
      width: chart.clientWidth,
      height: 180,
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "UTC"),
      scales: { y: { range: (plot, low, high) => [0, Math.max(high, 1)] } },
      axes: [
        { ...axis, values: (plot, seconds) => seconds.map((one) => timeOf(one, span)) },
        { ...axis, size: 80, ...(unit.startsWith("bytes") ? { incrs: BYTE_STEPS } : {}), values: (plot, values) => values.map((one) => shown(one, unit)) },
      ],
      series: [
        { label: "Time (UTC)", value: (plot, seconds) => (seconds == null ? "--" : timeOf(seconds, "")) },
        ...chosen.map((one, place) => ({
          label: one.label,
          stroke: style.getPropertyValue("--chart-" + (place % 4)).trim(),
          // Lines differ in their dashes, too, not in their colors alone.
          dash: [[], [8, 4], [2, 3], [10, 3, 2, 3]][(place + (place >> 2)) % 4],
          width: 2,
          value: (plot, value) => shown(value, one.unit),
        })),
      ],
    },
    [found.times, ...chosen.map((one) => one.values)],
    chart,
  );
}

// The charts of the past below a section, drawn again when new figures came.
function showPast(section) {
  const words = section.querySelector(".past-words");
  const buttons = [...section.querySelectorAll("[data-past]")];
  let span = buttons[0].dataset.past;
  let turn = 0;
  const drawAll = async () => {
    const own = ++turn;
    const address = section.dataset.figures + (section.dataset.figures.includes("?") ? "&" : "?") + "span=" + span;
    const answer = await fetch(address, { headers: { accept: "application/json" } });
    if (own !== turn) return; // another span was chosen
    if (!answer.ok) {
      words.textContent = await answer.text();
      return;
    }
    const found = await answer.json();
    words.textContent = "";
    for (const chart of section.querySelectorAll("[data-series]")) drawPast(chart, found, span);
    section.dataset.drawn = span;
  };
  for (const button of buttons) {
    button.addEventListener("click", () => {
      for (const one of buttons) one.setAttribute("aria-pressed", String(one === button));
      span = button.dataset.past;
      drawAll();
    });
  }
  const newest = () => (document.getElementById("figures-at") || { dataset: {} }).dataset.at;
  let at = newest();
  document.addEventListener("commitlog:part", () => {
    if (newest() === at) return;
    at = newest();
    drawAll();
  });
  drawAll();
}

document.addEventListener("DOMContentLoaded", () => {
  const past = document.querySelector("[data-figures]");
  if (past) showPast(past);
  const part = document.querySelector("[data-live]");
  if (part && part.dataset.live) follow(part);
  const chart = document.querySelector("[data-chart]");
  if (!chart) return;
  const words = document.querySelector(".chart-words");
  const buttons = [...document.querySelectorAll("[data-span]")];
  for (const button of buttons) {
    button.addEventListener("click", () => {
      for (const one of buttons) one.setAttribute("aria-pressed", String(one === button));
      draw(chart, words, button.dataset.span);
    });
  }
  draw(chart, words, buttons[0].dataset.span);
});
