// Steering, of a cluster or of one topic: preferred leaders, assignments, and the moves that are under way.
import { path, post } from "../core/api.js";
import { bytes, count, time } from "../core/format.js";
import { html, useState } from "../core/html.js";
import { useLive } from "../core/live.js";
import { Table } from "../core/table.js";
import { t } from "../core/texts.js";
import { Badge, Button, Dialog, Empty, Figure, Note, Page, Problem, toast } from "../core/widgets.js";
import { Generate, Manual } from "./assignments.js";

const PARTS = ["metadata"];
const WORDS_MAX = 5;
const keyOf = (row) => `${row.topic}-${row.partition}`;

// What the cluster refused, in a few lines.
const Refusals = ({ refused }) =>
  refused.length
    ? html`<${Note} kind="bad">${refused.slice(0, WORDS_MAX).map((each) => html`<div key=${keyOf(each)}><bdi>${keyOf(each)}</bdi>: ${each.reason}</div>`)}
        ${refused.length > WORDS_MAX ? t("{0} more", count(refused.length - WORDS_MAX)) : null}</${Note}>`
    : null;

function runState(run) {
  if (run.ended_ms === null) return run.is_cancelled ? ["warn", t("is being cancelled")] : ["info", t("under way")];
  if (run.is_cancelled) return ["warn", t("cancelled")];
  return run.moved === run.partitions ? ["good", t("done")] : ["bad", t("not all is moved")];
}

function Run({ run }) {
  const [kind, words] = runState(run);
  return html`<section id="run" aria-label=${t("Run Partition Assignments")}>
    <div class="figures">
      <${Figure} label=${t("Run Partition Assignments")} value=${html`<${Badge} kind=${kind}>${words}</${Badge}>`} />
      <${Figure} label=${t("Moved")} value=${t("{0} of {1}", count(run.moved), count(run.partitions))} />
      <${Figure} label=${t("Throttle")} value=${run.throttle === null ? t("none") : bytes(run.throttle)} unit=${run.throttle === null ? "" : t("/s")} />
      <${Figure} label=${t("By")} value=${html`<bdi>${run.person}</bdi>`} />
    </div>
    <p>${run.ended_ms === null ? t("Since") : t("Ended")} ${time(run.ended_ms ?? run.started_ms)}</p>
    ${run.problem ? html`<${Note} kind="warn">${run.ended_ms === null ? t("It is tried again: {0}", run.problem) : run.problem}</${Note}>` : null}
    ${run.still_throttled.length ? html`<${Note} kind="warn">${t("These brokers were gone when the throttle was taken away; they lose it when they are back: {0}", run.still_throttled.join(", "))}</${Note}>` : null}
    <${Refusals} refused=${run.refused} />
  </section>`;
}

function Moves({ cluster, moves, may, onDone }) {
  const cancel = async ({ topic, partition }) => {
    try {
      await post(path`/api/clusters/${cluster}/reassignments/cancellations`, { partitions: [{ topic, partition }] });
      toast(t("{0} stays where it is", keyOf({ topic, partition })));
    } catch (problem) {
      toast(problem.message, "bad");
    }
    onDone();
  };
  const share = (row) => (row.total_bytes ? row.done_bytes / row.total_bytes : 1);
  const columns = [
    { key: "topic", title: t("Topic"), sort: (row) => row.topic, cell: (row) => html`<bdi>${row.topic}</bdi>` },
    { key: "partition", title: t("Partition"), isNumber: true, width: "90px", sort: (row) => row.partition, cell: (row) => row.partition },
    { key: "adding", title: t("Coming"), cell: (row) => row.adding.join(", ") },
    { key: "removing", title: t("Going"), cell: (row) => row.removing.join(", ") },
    { key: "target", title: t("After"), cell: (row) => row.target.join(", ") },
    {
      key: "copied", title: t("Copied"), sort: share,
      cell: (row) => html`<progress max="1" value=${share(row)} aria-label=${t("Copied")}></progress> ${bytes(row.done_bytes)} / ${bytes(row.total_bytes)}`,
    },
    ...(may("admin")
      ? [{ key: "cancel", title: "", cell: (row) => html`<${Button} kind="small" onClick=${() => cancel(row)}>${t("Cancel")}</${Button}>` }]
      : []),
  ];
  return html`<${Table} id="moves" label=${t("Moves under way")} columns=${columns} rows=${moves} rowKey=${keyOf} order="topic" />`;
}

// The question before an election, or before everything is cancelled.
function Ask({ title, submit, onSubmit, onClose, children }) {
  return html`<${Dialog} title=${title} submit=${submit} onSubmit=${onSubmit} onClose=${onClose}><p>${children}</p></${Dialog}>`;
}

export function Steering({ cluster, topic = null, partitions = [], may }) {
  const { data, error, reload } = useLive(path`/api/clusters/${cluster}/reassignments`, PARTS, cluster);
  const led = useLive(path`/api/clusters/${cluster}/elections`, ["metadata"], cluster);
  const [asked, setAsked] = useState(null);
  const [refused, setRefused] = useState([]);
  const close = () => { setAsked(null); reload(); };
  const moves = (data?.moves ?? []).filter((row) => topic === null || row.topic === topic);
  const moving = new Set(moves.map(keyOf)); // who is still copied cannot lead yet
  const waiting = (led.data?.partitions ?? []).filter((row) => (topic === null || row.topic === topic) && !moving.has(keyOf(row)));
  const run = data?.run;
  const isRunning = run && run.ended_ms === null;
  const isOld = data?.unsupported;
  const elect = async () => {
    const result = await post(path`/api/clusters/${cluster}/elections`, { topics: topic === null ? null : [topic] });
    setRefused(result.refused);
    toast(t("{0} leaders elected", count(result.elected)));
    close();
    led.reload();
  };
  const cancelAll = async () => {
    await post(path`/api/clusters/${cluster}/reassignments/cancellations`, {});
    toast(t("Cancelled"));
    close();
  };
  return html`
    <div class="bar" role="group" aria-label=${t("Steering")}>
      ${may("operator") ? html`<${Button} disabled=${!waiting.length || isOld} title=${isOld ?? (waiting.length ? "" : t("Every partition is led by its first replica"))}
        onClick=${() => setAsked("elect")}>${t("Preferred Replica Election")}</${Button}>` : null}
      ${may("admin") ? html`<${Button} disabled=${isRunning || isOld} title=${isOld ?? ""} onClick=${() => setAsked("generate")}>${t("Generate Partition Assignments")}</${Button}>` : null}
      ${may("admin") && topic !== null
        ? html`<${Button} disabled=${isRunning || isOld} title=${isOld ?? ""} onClick=${() => setAsked("manual")}>${t("Manual Partition Assignments")}</${Button}>`
        : null}
      ${may("admin") && topic === null && (isRunning || moves.length > 0)
        ? html`<${Button} kind="danger" onClick=${() => setAsked("cancel")}>${t("Cancel all moves")}</${Button}>`
        : null}
    </div>
    <${Problem} error=${error} />
    ${isOld ? html`<${Note} kind="warn">${isOld}</${Note}>` : null}
    ${waiting.length ? html`<${Note} kind="warn">${t("{0} partitions are not led by their first replica", count(waiting.length))}</${Note}>` : null}
    <${Refusals} refused=${refused} />
    ${run && topic === null ? html`<${Run} run=${run} />` : null}
    ${data && !moves.length ? html`<${Empty} title=${t("Nothing moves")}>${t("Replicas on their way to other brokers stand here, with how much of them is copied.")}</${Empty}>` : null}
    ${moves.length ? html`<${Moves} cluster=${cluster} moves=${moves} may=${may} onDone=${reload} />` : null}
    ${data?.hidden ? html`<p>${t("{0} more partitions move that you may not see.", count(data.hidden))}</p>` : null}
    ${asked === "generate" ? html`<${Generate} cluster=${cluster} topic=${topic} onClose=${close} />` : null}
    ${asked === "manual" ? html`<${Manual} cluster=${cluster} topic=${topic} partitions=${partitions} onClose=${close} />` : null}
    ${asked === "elect"
      ? html`<${Ask} title=${t("Preferred Replica Election")} submit=${t("Elect")} onSubmit=${elect} onClose=${close}>
          ${t("{0} partitions get their first replica as leader again. Clients of these wait for a moment.", count(waiting.length))}</${Ask}>`
      : null}
    ${asked === "cancel"
      ? html`<${Ask} title=${t("Cancel all moves")} submit=${t("Cancel all moves")} onSubmit=${cancelAll} onClose=${close}>
          ${t("What is not copied yet stays where it was; what has been moved stays moved. The throttle is taken away.")}</${Ask}>`
      : null}`;
}

export default function Reassignments({ cluster, may }) {
  return html`<${Page} title=${t("Reassign Partitions")} id="reassignments"><${Steering} cluster=${cluster} may=${may} /></${Page}>`;
}
