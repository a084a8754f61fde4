// Line plots over time by uPlot, in the colours of the theme.
import uPlot from "../vendor/uplot.js";
import { compact } from "./format.js";
import { html, useEffect, useRef } from "./html.js";
import { language } from "./texts.js";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const SHORT_SECONDS = 600; // shorter plots also show seconds
const two = (number) => String(number).padStart(2, "0");
const hours = (_, seconds) => seconds.map((each) => {
  const at = new Date(each * 1000);
  const isShort = seconds.at(-1) - seconds[0] < SHORT_SECONDS;
  return `${two(at.getHours())}:${two(at.getMinutes())}${isShort ? `:${two(at.getSeconds())}` : ""}`;
});

// columns: [at_ms, ...values]; series: [{ title, colour: "--line-1" }]
export function Plot({ columns, series, height = 160, label, format = compact }) {
  const box = useRef(null);
  const plot = useRef(null);
  const theme = document.documentElement.dataset.theme;
  useEffect(() => {
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const options = {
      width: box.current.clientWidth || 300,
      height,
      legend: { show: true, live: true },
      cursor: { y: false },
      scales: { x: { time: true }, y: { range: (_, least, most) => [0, Math.max(1, most ?? 1) * 1.1] } },
      axes: [
        { ...axis, values: hours, space: 70, size: 30 },
        { ...axis, size: 62, values: (_, numbers) => numbers.map(format) },
      ],
      series: [
        { label: language === "zh" ? "时间" : "Time", value: (_, at) => (at ? new Date(at * 1000).toLocaleTimeString() : "–") },
        ...series.map((each) => ({
          label: each.title,
          stroke: colour(each.colour),
          fill: `${colour(each.colour)}22`,
          width: 1.5,
          points: { show: false },
          value: (_, number) => format(number),
        })),
      ],
    };
    plot.current = new uPlot(options, columns.map((column, index) => (index ? column : column.map((ms) => ms / 1000))), box.current);
    const observer = new ResizeObserver(() => plot.current.setSize({ width: box.current.clientWidth, height }));
    observer.observe(box.current);
    return () => {
      observer.disconnect();
      plot.current.destroy();
    };
  }, [theme, height]);
  useEffect(() => {
    plot.current?.setData(columns.map((column, index) => (index ? column : column.map((ms) => ms / 1000))));
  }, [columns]);
  return html`<div class="plot" ref=${box} role="img" aria-label=${label}></div>`;
}
