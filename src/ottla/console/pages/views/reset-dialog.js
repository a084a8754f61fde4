// The reset of a group: choose the target, review the plan, then execute it.
import { path, post } from "../core/api.js";
import { count } from "../core/format.js";
import { html, useState } from "../core/html.js";
import { Table } from "../core/table.js";
import { t } from "../core/texts.js";
import { Badge, Button, Dialog, Field, Note, toast } from "../core/widgets.js";

const SCENARIOS = () => [
  ["to-earliest", t("To the start of the log")],
  ["to-latest", t("To the end of the log")],
  ["to-datetime", t("To a time")],
  ["by-duration", t("Back by a duration")],
  ["shift-by", t("By number of records")],
  ["to-offset", t("To an offset")],
  ["to-current", t("To the current offset; new partitions to their end")],
];
const UNITS = () => [[60_000, t("minutes")], [3_600_000, t("hours")], [86_400_000, t("days")]];

const local = (ms) => new Date(ms - new Date(ms).getTimezoneOffset() * 60_000).toISOString().slice(0, 16);

// Pages re-render with every update; the text being typed must survive that.
function Offset({ row, onChange }) {
  const [typed, setTyped] = useState(null);
  const send = async (event) => {
    await onChange(row, Number(event.target.value));
    setTyped(null);
  };
  return html`<input type="number" min="0" class="offset" value=${typed ?? row.after} aria-label=${t("Offset of {0}", `${row.topic}-${row.partition}`)}
    onInput=${(event) => setTyped(event.target.value)} onChange=${send} />`;
}

function Plan({ rows, onChange }) {
  const columns = [
    { key: "topic", title: t("Topic"), sort: (row) => row.topic, cell: (row) => html`<bdi>${row.topic}</bdi>` },
    { key: "partition", title: t("Partition"), isNumber: true, sort: (row) => row.partition, cell: (row) => row.partition },
    { key: "before", title: t("Before"), isNumber: true, sort: (row) => row.before, cell: (row) => count(row.before) },
    {
      key: "after", title: t("After"), isNumber: true, sort: (row) => row.after,
      cell: (row) => html`<${Offset} row=${row} onChange=${onChange} />`,
    },
    {
      key: "change", title: t("Change"), isNumber: true, sort: (row) => row.after - (row.before ?? 0),
      cell: (row) => row.wanted != null
        ? html`<${Badge} kind="warn">${t("{0} is outside the log", count(row.wanted))}</${Badge}>`
        : row.is_late
          ? html`<${Badge} kind="warn">${t("no record after that time")}</${Badge}>`
          : row.before == null ? "–" : `${row.after >= row.before ? "+" : "−"}${count(Math.abs(row.after - row.before))}`,
    },
  ];
  return html`<${Table} id="reset" label=${t("Plan")} columns=${columns} rows=${rows} rowKey=${(row) => `${row.topic}-${row.partition}`} order="topic" isShort />`;
}

// A shift needs a committed offset, so only partitions with one are preselected; other scenarios take whole topics.
function proposed(scenario, partitions) {
  const byTopic = new Map();
  for (const { topic, partition, committed } of partitions) {
    if (scenario !== "shift-by") byTopic.set(topic, topic);
    else if (committed != null) byTopic.set(topic, byTopic.has(topic) ? `${byTopic.get(topic)},${partition}` : `${topic}:${partition}`);
  }
  return [...byTopic.values()].join(" ");
}

export function ResetDialog({ cluster, group, answer, onClose }) {
  const [scenario, setScenario] = useState("to-earliest");
  const [typedTopics, setTopics] = useState(null);
  const topics = typedTopics ?? proposed(scenario, answer.partitions);
  const [number, setNumber] = useState("0");
  const [when, setWhen] = useState(local(Date.now() - 3_600_000));
  const [span, setSpan] = useState("1");
  const [unit, setUnit] = useState(3_600_000);
  const [rows, setRows] = useState(null);
  const address = path`/api/clusters/${cluster}/groups/${group}`;
  const numberOf = () => {
    if (scenario === "to-datetime") return new Date(when).getTime();
    if (scenario === "by-duration") return Math.round(Number(span) * unit);
    return scenario === "shift-by" || scenario === "to-offset" ? Number(number) : null;
  };
  const look = async () => {
    const plan = await post(`${address}/reset-plans`, { scenario, number: numberOf(), topics: topics.split(/[\s;]+/).filter(Boolean) });
    setRows(plan.rows);
  };
  const change = async (row, offset) => {
    const wanted = rows.map(({ topic, partition, after }) => ({ topic, partition, offset: topic === row.topic && partition === row.partition ? offset : after }));
    try {
      setRows((await post(`${address}/reset-plans`, { scenario: "each", offsets: wanted })).rows);
    } catch (problem) {
      toast(problem.message, "bad");
    }
  };
  const send = async () => {
    await post(`${address}/resets`, { rows });
    toast(t("{0} continues from there", group));
    onClose();
  };
  if (rows) {
    return html`<${Dialog} key="plan" isWide title=${t("Reset {0}", group)} submit=${t("Reset now")} kind="danger" onSubmit=${send} onClose=${onClose}>
      <${Note}>${t("No offset has changed yet. Offsets can still be edited.")}</${Note}>
      <${Plan} rows=${rows} onChange=${change} />
      <div><${Button} onClick=${() => setRows(null)}>${t("Back")}</${Button}></div>
    </${Dialog}>`;
  }
  return html`<${Dialog} key="choice" title=${t("Reset {0}", group)} submit=${t("Show the plan")} isReady=${topics.trim()} onSubmit=${look} onClose=${onClose}>
    <${Field} label=${t("Target position")}><select name="scenario" value=${scenario} onChange=${(event) => setScenario(event.target.value)}>
      ${SCENARIOS().map(([key, words]) => html`<option key=${key} value=${key} selected=${key === scenario}>${words}</option>`)}</select></${Field}>
    ${scenario === "to-datetime" ? html`<${Field} label=${t("Time")} hint=${t("In your time zone")}><input name="when" type="datetime-local" value=${when} onInput=${(event) => setWhen(event.target.value)} /></${Field}>` : null}
    ${scenario === "by-duration"
      ? html`<div class="fields"><${Field} label=${t("Duration")}><input name="span" type="number" min="0" value=${span} onInput=${(event) => setSpan(event.target.value)} /></${Field}>
          <${Field} label=${t("Unit")}><select value=${unit} onChange=${(event) => setUnit(Number(event.target.value))}>
            ${UNITS().map(([ms, words]) => html`<option key=${ms} value=${ms} selected=${ms === unit}>${words}</option>`)}</select></${Field}></div>`
      : null}
    ${scenario === "shift-by" || scenario === "to-offset"
      ? html`<${Field} label=${scenario === "shift-by" ? t("Records; negative: back") : t("Offset")}><input name="number" type="number" value=${number} onInput=${(event) => setNumber(event.target.value)} /></${Field}>`
      : null}
    <${Field} label=${t("Topics")} hint=${t("Separated by spaces; orders:0,2 means two partitions")}>
      <input name="topics" value=${topics} onInput=${(event) => setTopics(event.target.value)} spellcheck="false" /></${Field}>
  </${Dialog}>`;
}
