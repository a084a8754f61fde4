// Partition assignments: generate or enter a plan, review it, then run it.
import { path, post } from "../core/api.js";
import { bytes, count } from "../core/format.js";
import { html, useState } from "../core/html.js";
import { useLive } from "../core/live.js";
import { go } from "../core/router.js";
import { Table } from "../core/table.js";
import { t } from "../core/texts.js";
import { Button, Check, Dialog, Field, Note, toast } from "../core/widgets.js";

const AT_ONCE = 5;
const MANY = 10; // concurrent copies from which a warning is shown
const MB = 1_000_000;
const keyOf = (row) => `${row.topic}-${row.partition}`;

const planColumns = () => [
  { key: "topic", title: t("Topic"), sort: (row) => row.topic, cell: (row) => html`<bdi>${row.topic}</bdi>` },
  { key: "partition", title: t("Partition"), isNumber: true, width: "90px", sort: (row) => row.partition, cell: (row) => row.partition },
  { key: "before", title: t("Before"), cell: (row) => row.before.join(", ") },
  { key: "after", title: t("After"), cell: (row) => row.after.join(", ") },
  { key: "bytes", title: t("To copy"), isNumber: true, sort: (row) => row.bytes, cell: (row) => bytes(row.bytes) },
];

// The plan, its cost, and the button that runs it.
function Plan({ cluster, plan, onBack, onClose }) {
  const [throttle, setThrottle] = useState("50");
  const [atOnce, setAtOnce] = useState(String(AT_ONCE));
  const isSlowed = throttle.trim() !== "";
  const isReady = plan.rows.length > 0 && Number(atOnce) >= 1 && (!isSlowed || Number(throttle) > 0);
  const send = async () => {
    const rows = plan.rows.map(({ topic, partition, before, after }) => ({ topic, partition, before, after }));
    await post(path`/api/clusters/${cluster}/reassignments`, {
      rows, throttle: isSlowed ? Math.max(1, Math.round(Number(throttle) * MB)) : null, at_once: Number(atOnce),
    });
    toast(t("{0} partitions are being moved", count(rows.length)));
    onClose();
    go(path`/c/${cluster}/reassignments`);
  };
  if (!plan.rows.length) {
    return html`<${Dialog} key="fits" title=${t("Run Partition Assignments")} onClose=${onClose}>
      <${Note}>${t("No moves are needed: all {0} partitions match already.", count(plan.partitions))}</${Note}>
      <div><${Button} onClick=${onBack}>${t("Back")}</${Button}></div>
    </${Dialog}>`;
  }
  return html`<${Dialog} key="plan" isWide title=${t("Run Partition Assignments")} submit=${t("Run Partition Assignments")} kind="danger"
      isReady=${isReady} onSubmit=${send} onClose=${onClose}>
    <${Note}>${t("No replica has moved yet. {0} of {1} partitions change, {2} are to be copied.", count(plan.rows.length), count(plan.partitions), bytes(plan.bytes))}</${Note}>
    ${plan.leaders ? html`<${Note} kind="warn">${t("{0} partitions get another leader: their clients wait for a moment.", count(plan.leaders))}</${Note}>` : null}
    ${plan.full.length ? html`<${Note} kind="bad">${t("These brokers do not have enough disk space: {0}", plan.full.join(", "))}</${Note}>` : null}
    ${plan.unknown ? html`<${Note} kind="warn">${t("The size of {0} partitions is unknown.", count(plan.unknown))}</${Note}>` : null}
    ${plan.ignores_racks ? html`<${Note} kind="warn">${t("Some brokers have no rack: racks are ignored.")}</${Note}>` : null}
    <${Table} id="assignments" label=${t("Plan")} columns=${planColumns()} rows=${plan.rows} rowKey=${keyOf} order="topic" isShort />
    <div class="fields">
      <${Field} label=${t("Throttle, MB a second for each broker")} hint=${t("Empty: no throttle. The throttle is removed at the end.")}>
        <input name="throttle" inputmode="decimal" value=${throttle} onInput=${(event) => setThrottle(event.target.value)} /></${Field}>
      <${Field} label=${t("Concurrent copies per broker")} hint=${t("With {0}: {1} waves, one after another", AT_ONCE, count(plan.waves))}>
        <input name="at-once" type="number" min="1" max="1000" value=${atOnce} onInput=${(event) => setAtOnce(event.target.value)} /></${Field}>
    </div>
    ${Number(atOnce) > MANY || (!isSlowed && plan.bytes > 0)
      ? html`<${Note} kind="warn">${t("Too many concurrent copies, or copies without a throttle, can overload a broker. Without limits one broker would have {0} copies.", count(plan.copies_most))}</${Note}>`
      : null}
    <div><${Button} onClick=${onBack}>${t("Back")}</${Button}></div>
  </${Dialog}>`;
}

const titles = (kind, broker) => ({
  spread: t("Generate Partition Assignments"),
  drain: t("Move all replicas off broker {0}", broker),
  fill: t("Move a share of the replicas to broker {0}", broker),
})[kind];

// `kind`: spread topics over the selected brokers; or drain or fill one broker.
export function Generate({ cluster, topic = null, kind = "spread", broker = null, onClose }) {
  const { data } = useLive(path`/api/clusters/${cluster}/brokers`, ["metadata"], cluster);
  const live = (data?.brokers ?? []).filter((each) => each.is_alive);
  const [without, setWithout] = useState(new Set());
  const [topics, setTopics] = useState(topic ?? "");
  const [factor, setFactor] = useState("");
  const [plan, setPlan] = useState(null);
  const chosen = kind === "spread" ? live.map((each) => each.broker).filter((id) => !without.has(id)) : [broker];
  const toggle = (id) => {
    const next = new Set(without);
    if (!next.delete(id)) next.add(id);
    setWithout(next);
  };
  const look = async () => {
    setPlan(await post(path`/api/clusters/${cluster}/reassignments/plans`, {
      kind, brokers: chosen, topics: topics.split(/[\s,;]+/).filter(Boolean), replication_factor: factor ? Number(factor) : null, at_once: AT_ONCE,
    }));
  };
  if (plan) return html`<${Plan} cluster=${cluster} plan=${plan} onBack=${() => setPlan(null)} onClose=${onClose} />`;
  return html`<${Dialog} key="choice" title=${titles(kind, broker)} submit=${t("Show the plan")} isReady=${chosen.length > 0} onSubmit=${look} onClose=${onClose}>
    <${Field} label=${t("Topics")} hint=${t("Separated by spaces; empty: all")}>
      <input name="topics" value=${topics} onInput=${(event) => setTopics(event.target.value)} spellcheck="false" autocomplete="off" /></${Field}>
    ${kind === "spread"
      ? html`<fieldset class="checks"><legend>${t("Brokers")}</legend>
            ${live.map((each) => html`<${Check} key=${each.broker} label=${t("Broker {0}", each.broker) + (each.rack ? ` (${each.rack})` : "")}
              checked=${!without.has(each.broker)} onChange=${() => toggle(each.broker)} />`)}</fieldset>
          <${Field} label=${t("Replication factor")} hint=${t("Empty: unchanged")}>
            <input name="factor" type="number" min="1" value=${factor} onInput=${(event) => setFactor(event.target.value)} /></${Field}>`
      : null}
  </${Dialog}>`;
}

// Manual replicas of each partition; the first one is the preferred leader.
export function Manual({ cluster, topic, partitions, onClose }) {
  const [before] = useState(partitions);
  const [typed, setTyped] = useState(() => Object.fromEntries(partitions.map((row) => [row.partition, row.replicas.join(", ")])));
  const [plan, setPlan] = useState(null);
  const rowsOf = () => before.map((row) => ({ topic, partition: row.partition, replicas: typed[row.partition].split(/[\s,;]+/).filter(Boolean).map(Number) }));
  const isReady = Object.values(typed).every((text) => /^\s*\d+(?:[\s,;]+\d+)*[\s,;]*$/.test(text));
  const look = async () => setPlan(await post(path`/api/clusters/${cluster}/reassignments/plans`, { kind: "manual", rows: rowsOf(), at_once: AT_ONCE }));
  if (plan) return html`<${Plan} cluster=${cluster} plan=${plan} onBack=${() => setPlan(null)} onClose=${onClose} />`;
  const columns = [
    { key: "partition", title: t("Partition"), isNumber: true, width: "90px", sort: (row) => row.partition, cell: (row) => row.partition },
    { key: "leader", title: t("Leader"), isNumber: true, width: "90px", cell: (row) => row.leader },
    { key: "isr", title: t("In sync"), cell: (row) => row.isr.join(", ") },
    {
      key: "replicas", title: t("Replicas"),
      cell: (row) => html`<input class="offset" value=${typed[row.partition]} spellcheck="false" autocomplete="off"
        aria-label=${t("Replicas of partition {0}", row.partition)} onInput=${(event) => setTyped({ ...typed, [row.partition]: event.target.value })} />`,
    },
  ];
  return html`<${Dialog} key="manual" isWide title=${t("Manual Partition Assignments")} submit=${t("Show the plan")} isReady=${isReady} onSubmit=${look} onClose=${onClose}>
    <p>${t("Broker ids, separated by commas. The first one is the preferred leader.")}</p>
    <${Table} id="manual" label=${t("Replicas")} columns=${columns} rows=${before} rowKey=${(row) => String(row.partition)} order="partition" isShort />
  </${Dialog}>`;
}
