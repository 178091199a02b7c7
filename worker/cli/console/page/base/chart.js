// A chart of lines over time. A missed sample is a gap. The legend is a list of buttons, so it works by keyboard.
import uPlot from "../lib/uplot.js";
import {html, useEffect, useLayoutEffect, useMemo, useRef, useState} from "./html.js";
import {createStore, useStore} from "./state.js";
import {theme} from "./theme.js";

const colors = 8; // --series-1 to --series-8; then they repeat, dashed
const height = 170;

// A canvas does not know CSS variables, so charts are drawn again when the colors change.
const scheme = createStore(0);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => scheme.set(scheme.get() + 1));

// series: [{name, values}], each with as many values as there are times (seconds); null is a gap. `format` writes a value, `increments` are
// the steps that the axis may have, and `least` is the smallest end of it.
export function Chart({title, times, series, range, format, increments, least}) {
  const [off, setOff] = useState(() => new Set());
  const [at, setAt] = useState(null); // the index under the cursor
  const frame = useRef(null);
  const plot = useRef(null);
  const look = `${useStore(theme)} ${useStore(scheme)}`;
  const names = JSON.stringify(series.map((one) => one.name));
  const data = useMemo(() => [times, ...series.map((one) => one.values)], [times, series]);

  useLayoutEffect(() => {
    plot.current = new uPlot(optionsOf({frame: frame.current, series, format, increments, least, range, setAt}), data, frame.current);
    const resize = new ResizeObserver(([{contentRect}]) => plot.current.setSize({width: contentRect.width, height}));
    resize.observe(frame.current);
    return () => {
      resize.disconnect();
      plot.current.destroy();
    };
  }, [names, look, range]);
  useEffect(() => plot.current.setData(data), [data]);
  useEffect(() => series.forEach((one, index) => plot.current.setSeries(index + 1, {show: !off.has(one.name)})), [off, names, look, range]);

  const toggle = (name) => setOff((old) => {
    const next = new Set(old);
    if (!next.delete(name)) next.add(name);
    return next;
  });
  return html`<figure class="chart">
    <figcaption>${title}</figcaption>
    <div ref=${frame} class="plot" role="img" aria-label=${`${title}, as lines over time`}></div>
    <${Legend} ...${{series, off, toggle, at, format}} />
  </figure>`;
}

// With the values under the cursor, or the last ones.
function Legend({series, off, toggle, at, format}) {
  return html`<div class="legend">${series.map((one, index) => html`<button type="button" key=${one.name} aria-pressed=${!off.has(one.name)} onClick=${() => toggle(one.name)}
    title=${`Show or hide ${one.name}`}><span class=${`line series-${index % colors + 1} ${index >= colors ? "dashed" : ""}`}></span>
    <span class="name">${one.name}</span> <strong>${format(one.values[at ?? lastOf(one.values)])}</strong></button>`)}</div>`;
}

function lastOf(values) {
  return values.findLastIndex((value) => value !== null);
}

function optionsOf({frame, series, format, increments, least, range, setAt}) {
  const color = (name) => colorOf(frame, name);
  const axis = {stroke: color("--muted"), grid: {stroke: color("--line"), width: 1}, ticks: {show: false}, font: `11px ${getComputedStyle(frame).fontFamily}`};
  return {
    width: frame.clientWidth,
    height,
    padding: [8, 10, 0, 0],
    legend: {show: false},
    cursor: {sync: {key: "charts"}, y: false, points: {size: 6}, drag: {x: false, y: false}},
    // The right end is now, also if samples are missing. The least height keeps a line of zeros at the bottom.
    scales: {x: {time: true, range: () => [Date.now() / 1000 - range, Date.now() / 1000]}, y: {range: (_, __, most) => [0, Math.max(least, (most ?? 0) * 1.08)]}},
    axes: [
      {...axis, values: (_, times) => times.map(formatClock), space: 55, size: 24},
      {...axis, values: (_, values) => values.map((value) => format(value)), incrs: increments, space: 22, size: 66},
    ],
    series: [{}, ...series.map((_, index) => ({
      stroke: color(`--series-${index % colors + 1}`),
      width: 1.6,
      dash: index >= colors ? [5, 4] : undefined,
      points: {show: true, size: 3, filter: isolated},
      spanGaps: false,
    }))],
    hooks: {setCursor: [({cursor}) => setAt(cursor.idx ?? null)]},
  };
}

// The samples between two gaps, which no line shows.
function isolated({data}, line) {
  const values = data[line];
  return values.flatMap((value, index) => (isGap(value) || !isGap(values[index - 1]) || !isGap(values[index + 1]) ? [] : [index]));
}

const isGap = (value) => value === null || value === undefined;

// The value of a variable for the present colors, resolved by the browser.
function colorOf(element, name) {
  const probe = element.appendChild(document.createElement("span"));
  probe.style.color = `var(${name})`;
  const {color} = getComputedStyle(probe);
  probe.remove();
  return color;
}

function formatClock(seconds) {
  const date = new Date(seconds * 1000);
  return `${String(date.getHours()).padStart(2, "0")}:${String(date.getMinutes()).padStart(2, "0")}`;
}
