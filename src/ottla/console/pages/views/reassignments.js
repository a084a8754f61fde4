// Preferred leader election, assignments and moves in progress, of a cluster or of one topic.
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

// Partitions that the cluster refused.
const Refusals = ({ refused }) =>
  refused.length
    ? html`<${Note} kind="bad">${refused.slice(0, WORDS_MAX).map((each) => html`<div key=${keyOf(each)}><bdi>${keyOf(each)}</bdi>: ${each.reason}</div>`)}
        ${refused.length > WORDS_MAX ? t("{0} more", count(refused.length - WORDS_MAX)) : null}</${Note}>`
    : null;

function runState(run) {
  if (run.ended_ms === null) return run.is_cancelled ? ["warn", t("is being cancelled")] : ["info", t("in progress")];
  if (run.is_cancelled) return ["warn", t("cancelled")];
  return run.moved === run.partitions ? ["good", t("done")] : ["bad", t("incomplete")];
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
    ${run.problem ? html`<${Note} kind="warn">${run.ended_ms === null ? t("Retrying: {0}", run.problem) : run.problem}</${Note}>` : null}
    ${run.still_throttled.length ? html`<${Note} kind="warn">${t("These brokers were down when the throttle was removed. It is removed from them when they are back: {0}", run.still_throttled.join(", "))}</${Note}>` : null}
    <${Refusals} refused=${run.refused} />
  </section>`;
}

function Moves({ cluster, moves, may, onDone }) {
  const cancel = async ({ topic, partition }) => {
    try {
      await post(path`/api/clusters/${cluster}/reassignments/cancellations`, { partitions: [{ topic, partition }] });
      toast(t("{0} is unchanged", keyOf({ topic, partition })));
    } catch (problem) {
      toast(problem.message, "bad");
    }
    onDone();
  };
  const share = (row) => (row.total_bytes ? row.done_bytes / row.total_bytes : 1);
  const columns = [
    { key: "topic", title: t("Topic"), sort: (row) => row.topic, cell: (row) => html`<bdi>${row.topic}</bdi>` },
    { key: "partition", title: t("Partition"), isNumber: true, width: "90px", sort: (row) => row.partition, cell: (row) => row.partition },
    { key: "adding", title: t("Adding"), cell: (row) => row.adding.join(", ") },
    { key: "removing", title: t("Removing"), cell: (row) => row.removing.join(", ") },
    { key: "target", title: t("After"), cell: (row) => row.target.join(", ") },
    {
      key: "copied", title: t("Copied"), sort: share,
      cell: (row) => html`<progress max="1" value=${share(row)} aria-label=${t("Copied")}></progress> ${bytes(row.done_bytes)} / ${bytes(row.total_bytes)}`,
    },
    ...(may("admin")
      ? [{ key: "cancel", title: "", cell: (row) => html`<${Button} kind="small" onClick=${() => cancel(row)}>${t("Cancel")}</${Button}>` }]
      : []),
  ];
  return html`<${Table} id="moves" label=${t("Moves in progress")} columns=${columns} rows=${moves} rowKey=${keyOf} order="topic" />`;
}

// Confirmation of an election, or of cancelling all moves.
function ConfirmDialog({ title, submit, onSubmit, onClose, children }) {
  return html`<${Dialog} title=${title} submit=${submit} onSubmit=${onSubmit} onClose=${onClose}><p>${children}</p></${Dialog}>`;
}

export function ReassignmentPanel({ cluster, topic = null, partitions = [], may }) {
  const { data, error, reload } = useLive(path`/api/clusters/${cluster}/reassignments`, PARTS, cluster);
  const led = useLive(path`/api/clusters/${cluster}/elections`, ["metadata"], cluster);
  const [asked, setAsked] = useState(null);
  const [refused, setRefused] = useState([]);
  const close = () => { setAsked(null); reload(); };
  const moves = (data?.moves ?? []).filter((row) => topic === null || row.topic === topic);
  const moving = new Set(moves.map(keyOf)); // a replica that is still copied cannot lead
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
    <div class="bar" role="group" aria-label=${t("Reassignment actions")}>
      ${may("operator") ? html`<${Button} disabled=${!waiting.length || isOld} title=${isOld ?? (waiting.length ? "" : t("All partitions are led by their preferred replica"))}
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
    ${waiting.length ? html`<${Note} kind="warn">${t("{0} partitions are not led by their preferred replica", count(waiting.length))}</${Note}>` : null}
    <${Refusals} refused=${refused} />
    ${run && topic === null ? html`<${Run} run=${run} />` : null}
    ${data && !moves.length ? html`<${Empty} title=${t("No moves in progress")}>${t("Replicas that move to other brokers appear here, with their progress.")}</${Empty}>` : null}
    ${moves.length ? html`<${Moves} cluster=${cluster} moves=${moves} may=${may} onDone=${reload} />` : null}
    ${data?.hidden ? html`<p>${t("{0} partitions of hidden topics are also moving.", count(data.hidden))}</p>` : null}
    ${asked === "generate" ? html`<${Generate} cluster=${cluster} topic=${topic} onClose=${close} />` : null}
    ${asked === "manual" ? html`<${Manual} cluster=${cluster} topic=${topic} partitions=${partitions} onClose=${close} />` : null}
    ${asked === "elect"
      ? html`<${ConfirmDialog} title=${t("Preferred Replica Election")} submit=${t("Elect")} onSubmit=${elect} onClose=${close}>
          ${t("{0} partitions get their preferred replica as leader again. Their clients wait for a moment.", count(waiting.length))}</${ConfirmDialog}>`
      : null}
    ${asked === "cancel"
      ? html`<${ConfirmDialog} title=${t("Cancel all moves")} submit=${t("Cancel all moves")} onSubmit=${cancelAll} onClose=${close}>
          ${t("Replicas that are not copied yet stay where they are; finished moves are kept. The throttle is removed.")}</${ConfirmDialog}>`
      : null}`;
}

export default function Reassignments({ cluster, may }) {
  return html`<${Page} title=${t("Reassign Partitions")} id="reassignments"><${ReassignmentPanel} cluster=${cluster} may=${may} /></${Page}>`;
}
