// One group: lag of each partition, members, history; reset and deletion.
import { path, remove } from "../core/api.js";
import { count, rate } from "../core/format.js";
import { html, useMemo, useState } from "../core/html.js";
import { useLive } from "../core/live.js";
import { Plot } from "../core/plot.js";
import { Link, go, useQuery } from "../core/router.js";
import { Table } from "../core/table.js";
import { t } from "../core/texts.js";
import { Button, Empty, Figure, Note, Page, Problem, Tabs, TypeTheName, toast } from "../core/widgets.js";
import { VerdictNote, lagTime, stateBadge, verdictBadge, verdictRank } from "./group-badges.js";
import { ResetDialog } from "./reset-dialog.js";

const PARTS = ["groups", "commits", "ends", "starts", "verdicts"];

function Lag({ answer, cluster }) {
  const columns = useMemo(() => [
    { key: "topic", title: t("Topic"), sort: (row) => row.topic, cell: (row) => html`<${Link} to=${path`/c/${cluster}/topics/${row.topic}`}><bdi>${row.topic}</bdi></${Link}>` },
    { key: "partition", title: t("Partition"), isNumber: true, sort: (row) => row.partition, cell: (row) => row.partition },
    { key: "verdict", title: t("Verdict"), sort: verdictRank, cell: (row) => verdictBadge(row.verdict) },
    { key: "committed", title: t("Committed"), isNumber: true, sort: (row) => row.committed, cell: (row) => count(row.committed) },
    { key: "end", title: t("End"), isNumber: true, sort: (row) => row.end, cell: (row) => count(row.end) },
    { key: "lag", title: t("Lag"), isNumber: true, sort: (row) => row.lag, cell: (row) => count(row.lag) },
    { key: "lag-time", title: t("Lag in time"), isNumber: true, isOptional: false, sort: (row) => row.lag_ms, cell: lagTime },
    { key: "rate", title: t("Written/s"), isNumber: true, isOptional: false, sort: (row) => row.rate, cell: (row) => rate(row.rate) },
    { key: "client", title: t("Client"), isOptional: false, sort: (row) => row.client_id ?? "", cell: (row) => html`<bdi>${row.client_id ?? "–"}</bdi>` },
    { key: "host", title: t("Host"), isOptional: false, sort: (row) => row.host ?? "", cell: (row) => row.host ?? "–" },
    { key: "member", title: t("Member"), isOptional: true, sort: (row) => row.member_id ?? "", cell: (row) => html`<span class="mono">${row.member_id ?? "–"}</span>` },
  ], [cluster]);
  if (!answer.partitions.length) return html`<${Empty} title=${t("No commits")}>${t("This group has no offsets and reads no partitions.")}</${Empty}>`;
  return html`<${Table} id="group-lag" label=${t("Lag")} columns=${columns} rows=${answer.partitions} rowKey=${(row) => `${row.topic}-${row.partition}`} order="-lag" />`;
}

function Members({ answer }) {
  const columns = useMemo(() => [
    { key: "client", title: t("Client"), sort: (row) => row.client_id, cell: (row) => html`<bdi>${row.client_id}</bdi>` },
    { key: "host", title: t("Host"), sort: (row) => row.host, cell: (row) => row.host },
    { key: "partitions", title: t("Partitions"), isNumber: true, sort: (row) => row.partitions, cell: (row) => count(row.partitions) },
    { key: "instance", title: t("Instance"), isOptional: false, sort: (row) => row.instance_id ?? "", cell: (row) => row.instance_id ?? "–" },
    { key: "member", title: t("Member"), isOptional: false, sort: (row) => row.member_id, cell: (row) => html`<span class="mono">${row.member_id}</span>` },
  ], []);
  if (answer.group.members == null) return html`<${Empty} title=${t("Members are unknown")}>${t("This is not a group of consumers: its members belong to another protocol.")}</${Empty}>`;
  if (!answer.members.length) return html`<${Empty} title=${t("No members")}>${t("No consumer uses this group now. Its offsets remain until they expire.")}</${Empty}>`;
  return html`<${Table} id="members" label=${t("Members")} columns=${columns} rows=${answer.members} rowKey=${(row) => row.member_id} order="client" />`;
}

// Plots of the last hour or day.
const HOURS = ["1", "24"];

function Trend({ cluster, group }) {
  const [hours, setHours] = useQuery("hours", "1");
  const { data, error } = useLive(`${path`/api/clusters/${cluster}/groups/${group}/history`}?hours=${encodeURIComponent(hours)}`, ["history"], cluster);
  const plots = useMemo(() => (data ? [
    { title: t("Lag in records"), columns: [data.at_ms, data.lag], series: t("records"), colour: "--plot-3" },
    { title: t("Lag in seconds"), columns: [data.at_ms, data.lag_ms.map((ms) => (ms == null ? null : ms / 1000))], series: t("seconds"), colour: "--plot-1" },
    { title: t("Consumed records a second"), columns: [data.at_ms, data.rate], series: t("records a second"), colour: "--plot-2" },
  ] : []), [data]);
  return html`<${Problem} error=${error} />
    <div class="bar"><label><span class="hidden-text">${t("Period")}</span><select name="hours" value=${hours} onChange=${(event) => setHours(event.target.value)}>
      ${HOURS.map((each) => html`<option key=${each} value=${each} selected=${each === hours}>${t("{0} h", each)}</option>`)}</select></label></div>
    ${data && data.at_ms.length < 2
      ? html`<${Empty} title=${t("No data yet")}>${t("The first data appears within a minute. One day of history survives restarts of the console.")}</${Empty}>`
      : html`<section class="cards">${plots.map((each) => html`<div class="card" key=${each.title}><h2>${each.title}</h2>
          <${Plot} label=${each.title} columns=${each.columns} series=${[{ title: each.series, colour: each.colour }]} /></div>`)}</section>`}`;
}

// The views of a group: last part of the address, title, component.
export const VIEWS = [
  { key: "lag", title: "Lag", View: Lag },
  { key: "trend", title: "Trend", View: Trend },
  { key: "members", title: "Members", View: Members },
];

export default function Group({ cluster, group: name, view = "lag", may }) {
  const { data, error } = useLive(path`/api/clusters/${cluster}/groups/${name}`, PARTS, cluster);
  const [asked, setAsked] = useState(null);
  const group = data?.group;
  const { View } = VIEWS.find((each) => each.key === view) ?? VIEWS[0];
  const tabs = VIEWS.map(({ key, title }) => ({ key, text: t(title), to: path`/c/${cluster}/groups/${name}` + (key === VIEWS[0].key ? "" : `/${key}`) }));
  const drop = async () => {
    await remove(path`/api/clusters/${cluster}/groups/${name}`);
    toast(t("Group {0} deleted", name));
    go(path`/c/${cluster}/groups`);
  };
  const actions = group && may("operator")
    ? html`<${Button} disabled=${group.members !== 0} title=${group.members !== 0 ? t("A group with members cannot be reset: stop its consumers first") : null}
        onClick=${() => setAsked("reset")}>${t("Reset offsets")}</${Button}>
      <${Button} kind="danger" disabled=${group.members !== 0} title=${group.members !== 0 ? t("A group with members cannot be deleted: stop its consumers first") : null}
        onClick=${() => setAsked("delete")}>${t("Delete")}</${Button}>`
    : null;
  return html`<${Page} title=${name} id="group" crumbs=${html`<${Link} to=${path`/c/${cluster}/groups`}>${t("Groups")}</${Link}>`} actions=${actions}>
    ${error?.status === 404 && !data
      ? html`<${Empty} title=${t("There is no group {0}", name)}><${Link} to=${path`/c/${cluster}/groups`}>${t("All groups")}</${Link}></${Empty}>`
      : html`<${Problem} error=${error} />`}
    <${VerdictNote} verdicts=${data?.verdicts} />
    ${group
      ? html`<div class="figures">
            <${Figure} label=${t("State")} value=${stateBadge(group.state)} />
            <${Figure} label=${t("Verdict")} value=${verdictBadge(group.verdict)} />
            <${Figure} label=${t("Lag")} value=${count(group.lag)} unit=${t("records")} />
            <${Figure} label=${t("Lag in time")} value=${lagTime(group)} />
            <${Figure} label=${t("Consumed/s")} value=${rate(group.rate)} />
            <${Figure} label=${t("Members")} value=${count(group.members)} />
            <${Figure} label=${t("Topics")} value=${count(group.topics)} />
            <${Figure} label=${t("Coordinator")} value=${data.coordinator == null ? "–" : t("broker {0}", data.coordinator)} />
          </div>
          ${data.hidden ? html`<${Note}>${t("Partitions of hidden topics: {0}", count(data.hidden))}</${Note}>` : null}
          <${Tabs} items=${tabs} current=${view} />
          <${View} answer=${data} cluster=${cluster} group=${name} may=${may} />`
      : null}
    ${asked === "reset" ? html`<${ResetDialog} cluster=${cluster} group=${name} answer=${data} onClose=${() => setAsked(null)} />` : null}
    ${asked === "delete"
      ? html`<${TypeTheName} title=${t("Delete group {0}?", name)} submit=${t("Delete")} name=${name} onSubmit=${drop} onClose=${() => setAsked(null)}>
          <p>${t("Its committed offsets are deleted permanently.")}</p></${TypeTheName}>`
      : null}
  </${Page}>`;
}
