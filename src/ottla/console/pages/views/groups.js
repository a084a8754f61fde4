// All groups of a cluster: lag, state, deletion of several.
import { path } from "../core/api.js";
import { count, rate } from "../core/format.js";
import { html, useMemo, useState } from "../core/html.js";
import { useLive } from "../core/live.js";
import { Link, go, useQuery } from "../core/router.js";
import { Counted, Table, useFiltered } from "../core/table.js";
import { t } from "../core/texts.js";
import { Button, Empty, Page, Problem, Search, TypeTheName } from "../core/widgets.js";
import { VerdictNote, lagTime, stateBadge, verdictBadge, verdictRank } from "./group-badges.js";
import { forAll } from "./topics.js";

const columns = (cluster) => [
  { key: "group", title: t("Group"), sort: (row) => row.group, cell: (row) => html`<${Link} to=${path`/c/${cluster}/groups/${row.group}`} tabindex="-1"><bdi>${row.group}</bdi></${Link}>` },
  { key: "state", title: t("State"), sort: (row) => row.state, cell: (row) => stateBadge(row.state) },
  { key: "verdict", title: t("Verdict"), sort: verdictRank, cell: (row) => verdictBadge(row.verdict) },
  { key: "members", title: t("Members"), isNumber: true, sort: (row) => row.members, cell: (row) => count(row.members) },
  { key: "topics", title: t("Topics"), isNumber: true, isOptional: false, sort: (row) => row.topics, cell: (row) => count(row.topics) },
  { key: "lag", title: t("Lag"), isNumber: true, sort: (row) => row.lag, cell: (row) => count(row.lag) },
  { key: "lag-time", title: t("Lag in time"), isNumber: true, isOptional: false, sort: (row) => row.lag_ms, cell: lagTime },
  { key: "rate", title: t("Consumed/s"), isNumber: true, isOptional: false, sort: (row) => row.rate, cell: (row) => rate(row.rate) },
  { key: "type", title: t("Protocol"), isOptional: false, sort: (row) => row.type, cell: (row) => row.type || row.protocol_type || "–" },
];

function SelectionActions({ cluster, selected, onSelect, reload }) {
  const [isAsked, setAsked] = useState(false);
  const names = [...selected];
  const send = async () => {
    await forAll(path`/api/clusters/${cluster}/group-deletions`, names, (n) => t("{0} groups deleted", n));
    setAsked(false);
    onSelect(new Set());
    reload();
  };
  return html`
    <span class="counted">${t("{0} selected", names.length)}</span>
    <${Button} kind="danger" onClick=${() => setAsked(true)}>${t("Delete")}</${Button}>
    ${isAsked
      ? html`<${TypeTheName} name=${names.length === 1 ? names[0] : String(names.length)} onSubmit=${send} onClose=${() => setAsked(false)}
          title=${t("Delete {0} groups?", names.length)} submit=${t("Delete")}>
          <p>${t("Their committed offsets are deleted permanently. Groups with members are refused.")}</p>
        </${TypeTheName}>`
      : null}`;
}

export default function Groups({ cluster, may }) {
  const { data, error, reload } = useLive(path`/api/clusters/${cluster}/groups`, ["groups", "commits", "ends", "verdicts"], cluster);
  const [text, setText] = useQuery("q");
  const [state, setState] = useQuery("state");
  const [selected, setSelected] = useState(new Set());
  const all = data?.groups ?? [];
  const states = useMemo(() => [...new Set(all.map((group) => group.state))].sort(), [data]);
  const visible = useMemo(() => (state ? all.filter((group) => group.state === state) : all), [data, state]);
  const rows = useFiltered(visible, text, (row) => row.group);
  const made = useMemo(() => columns(cluster), [cluster]);
  return html`<${Page} title=${t("Groups")} id="groups"
      actions=${selected.size ? html`<${SelectionActions} cluster=${cluster} selected=${selected} onSelect=${setSelected} reload=${reload} />` : null}>
    <${Problem} error=${error} />
    <${VerdictNote} verdicts=${data?.verdicts} />
    ${data && !all.length
      ? html`<${Empty} title=${t("No groups yet")}>
          <p>${t("A group appears when a consumer joins it or commits an offset:")}</p>
          <pre>ottla consume orders --group billing --from-beginning</pre>
        </${Empty}>`
      : data
        ? html`<div class="bar">
              <${Search} label=${t("Find groups")} value=${text} onInput=${setText} />
              <label><span class="hidden-text">${t("State")}</span>
                <select value=${state} onChange=${(event) => setState(event.target.value)}>
                  <option value="">${t("All states")}</option>
                  ${states.map((each) => html`<option key=${each} value=${each} selected=${each === state}>${each}</option>`)}
                </select></label>
              <${Counted} shown=${rows.length} all=${all.length} />
            </div>
            <${Table} id="groups" label=${t("Groups")} columns=${made} rows=${rows} rowKey=${(row) => row.group} order="-lag"
              onOpen=${(row) => go(path`/c/${cluster}/groups/${row.group}`)}
              selected=${may("operator") ? selected : null} onSelect=${setSelected} />`
        : null}
  </${Page}>`;
}
