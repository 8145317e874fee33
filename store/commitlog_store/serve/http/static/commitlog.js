// Live parts of pages, and charts. Everything works without it, but for these two.
"use strict";

// The part with data-live is replaced by what the server sends, unless a visitor is within it with the keyboard.
function follow(part) {
  let source = null;
  const begin = () => {
    if (source || document.hidden) return;
    source = new EventSource(part.dataset.live);
    source.onmessage = (event) => {
      if (!part.contains(document.activeElement)) part.innerHTML = event.data;
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

document.addEventListener("DOMContentLoaded", () => {
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
