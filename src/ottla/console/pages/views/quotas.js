// Quotas of users, client ids and addresses, and the limits that apply to a client.
import { patch, path } from "../core/api.js";
import { bytes, count } from "../core/format.js";
import { html, useMemo, useState } from "../core/html.js";
import { useLive } from "../core/live.js";
import { useQuery } from "../core/router.js";
import { Counted, Table, useFiltered } from "../core/table.js";
import { t } from "../core/texts.js";
import { Badge, Button, Dialog, Empty, Field, Note, Page, Problem, Search, toast } from "../core/widgets.js";
import { Reason, reasonOf } from "./unavailable.js";

const KINDS = ["user", "client-id", "ip"];
const kindWord = (kind) => (kind === "user" ? t("User") : kind === "client-id" ? t("Client id") : t("Address (IP)"));
const nameOf = (entity, kind) => (kind in entity ? entity[kind] ?? t("default, without an own limit") : "–");
const entityText = (entity) => KINDS.filter((kind) => kind in entity).map((kind) => `${kindWord(kind)}: ${nameOf(entity, kind)}`).join(", ");
const limitText = (key, limit) => (key.endsWith("_byte_rate") ? t("{0} a second", bytes(limit)) : key === "request_percentage" ? `${count(limit)} %` : t("{0} a second", count(limit)));

function limitWord(key) {
  const words = {
    producer_byte_rate: t("Bytes written"), consumer_byte_rate: t("Bytes read"), request_percentage: t("Time of request threads"),
    controller_mutation_rate: t("Partitions created and deleted"), connection_creation_rate: t("New connections"),
    producer_message_rate: t("Messages written"), consumer_message_rate: t("Messages read"),
  };
  return words[key] ?? key;
}

// Every broker enforces limits separately; only the controller mutation rate is cluster-wide.
function hintOf(key, limit) {
  if (key === "controller_mutation_rate") return limit > 0 ? limitText(key, limit) : t("Per second, in the whole cluster");
  if (limit > 0) return t("{0} per broker", limitText(key, limit));
  return key === "request_percentage" ? t("Percent of one thread, for each broker") : t("Per second, for each broker");
}

// The entity of a limit; for each kind "" (none), "default" or "named".
function EntityField({ kind, value, onChange, isDisabled }) {
  return html`<${Field} label=${kindWord(kind)}>
    <select name=${`${kind}-choice`} disabled=${isDisabled} value=${value.choice} onChange=${(event) => onChange({ ...value, choice: event.target.value })}>
      ${[["", t("any")], ["default", t("default, without an own limit")], ["named", t("specific:")]].map(([key, word]) => html`<option key=${key} value=${key} selected=${key === value.choice}>${word}</option>`)}</select>
    ${value.choice === "named" ? html`<input name=${kind} aria-label=${t("Name of: {0}", kindWord(kind))} value=${value.name} onInput=${(event) => onChange({ ...value, name: event.target.value })} autocomplete="off" spellcheck=${false} />` : null}
  </${Field}>`;
}

const NO_ENTITY = { user: { choice: "", name: "" }, "client-id": { choice: "", name: "" }, ip: { choice: "", name: "" } };

function LimitDialog({ cluster, answer, old, onClose, onDone }) {
  const [choices, setChoices] = useState(NO_ENTITY);
  const entity = old?.entity ?? Object.fromEntries(KINDS.filter((kind) => choices[kind].choice).map((kind) => [kind, choices[kind].choice === "named" ? choices[kind].name : null]));
  const keys = "ip" in entity ? answer.address_keys : answer.keys;
  const [wantedKey, setWantedKey] = useState(old?.key ?? answer.keys[0]);
  const key = keys.includes(wantedKey) ? wantedKey : keys[0];
  const [limit, setLimit] = useState(old ? String(old.limit) : "");
  const same = answer.quotas.find((each) => JSON.stringify(KINDS.map((kind) => each.entity[kind])) === JSON.stringify(KINDS.map((kind) => entity[kind])));
  const before = old ? old.limit : same?.limits[key] ?? null;
  const isReady = Object.keys(entity).length > 0 && Object.values(entity).every((name) => name !== "") && Number(limit) > 0;
  const send = async () => {
    await patch(path`/api/clusters/${cluster}/quotas`, { entity, set: { [key]: Number(limit) }, expected: { [key]: before } });
    toast(t("Limit set for {0}", entityText(entity)));
    onDone();
    onClose();
  };
  const set = (kind) => (value) => setChoices({ ...choices, [kind]: value });
  return html`<${Dialog} isWide title=${old ? entityText(old.entity) : t("Set a limit")} submit=${t("Save")} isReady=${isReady} onSubmit=${send} onClose=${onClose}>
    ${old
      ? null
      : html`<div class="fields">
          <${EntityField} kind="user" value=${choices.user} onChange=${set("user")} isDisabled=${Boolean(choices.ip.choice)} />
          <${EntityField} kind="client-id" value=${choices["client-id"]} onChange=${set("client-id")} isDisabled=${Boolean(choices.ip.choice)} />
          <${EntityField} kind="ip" value=${choices.ip} onChange=${set("ip")} isDisabled=${Boolean(choices.user.choice || choices["client-id"].choice)} /></div>`}
    <div class="fields">
      <${Field} label=${t("Limit")} hint=${html`<span class="mono">${key}</span>${answer.own_keys.includes(key) ? ` · ${t("Not supported by Apache Kafka")}` : ""}`}>
        <select name="key" value=${key} disabled=${Boolean(old)} onChange=${(event) => setWantedKey(event.target.value)}>
        ${keys.map((each) => html`<option key=${each} value=${each} selected=${each === key}>${limitWord(each)}</option>`)}</select></${Field}>
      <${Field} label=${t("At most")} hint=${hintOf(key, Number(limit))}>
        <input name="limit" inputmode="decimal" value=${limit} onInput=${(event) => setLimit(event.target.value)} autocomplete="off" /></${Field}>
    </div>
    ${!old && before != null ? html`<${Note} kind="warn">${t("There is one already: {0}", limitText(key, before))}</${Note}>` : null}
  </${Dialog}>`;
}

function Applied({ cluster }) {
  const [user, setUser] = useQuery("user");
  const [client, setClient] = useQuery("client");
  const [ip, setIp] = useQuery("ip");
  const query = new URLSearchParams({ user, client, ip });
  const { data, error } = useLive(user || client || ip ? `${path`/api/clusters/${cluster}/applied-quotas`}?${query}` : null, ["metadata"], cluster);
  const field = (name, label, value, set) => html`<${Field} label=${label}><input name=${name} value=${value} onInput=${(event) => set(event.target.value)} autocomplete="off" spellcheck=${false} /></${Field}>`;
  const rows = data?.applied ?? [];
  const columns = [
    { key: "key", title: t("Limit"), cell: (row) => limitWord(row.key) },
    { key: "limit", title: t("At most"), isNumber: true, cell: (row) => limitText(row.key, row.limit) },
    { key: "counts", title: t("State"), cell: (row) => (row.counts ? html`<${Badge} kind="good">${t("applies")}</${Badge}>` : html`<${Badge}>${t("overridden by a more specific limit")}</${Badge}>`) },
    { key: "entity", title: t("Set for"), cell: (row) => html`<bdi>${entityText(row.entity)}</bdi>` },
    { key: "shared", title: t("Measured together"), cell: (row) => sharedText(row) },
  ];
  return html`<section class="card stack" id="applied"><h2>${t("Effective limits of …")}</h2>
    <div class="fields">${field("applied-user", t("User"), user, setUser)}${field("applied-client", t("Client id"), client, setClient)}${field("applied-ip", t("Address (IP)"), ip, setIp)}</div>
    <${Problem} error=${error} />
    ${data && !rows.length ? html`<p class="muted">${t("No limit applies.")}</p>` : null}
    ${rows.length ? html`<${Table} id="applied" label=${t("Effective limits of …")} columns=${columns} rows=${rows} rowKey=${(row) => `${row.key} ${entityText(row.entity)}`} isShort />` : null}
  </section>`;
}

function sharedText(row) {
  if ("ip" in row.entity) return t("connections from one address");
  if (row.user && row.client_id) return t("this user with this client id");
  return row.user ? t("all clients of this user") : t("all users of this client id");
}

export default function Quotas({ cluster, may }) {
  const { data, error, reload } = useLive(path`/api/clusters/${cluster}/quotas`, ["metadata"], cluster);
  const [text, setText] = useQuery("q");
  const [asked, setAsked] = useState(null);
  const all = useMemo(() => (data?.quotas ?? []).flatMap(({ entity, limits }) => Object.entries(limits).map(([key, limit]) => ({ entity, key, limit }))), [data]);
  const rows = useFiltered(all, text, (row) => `${Object.values(row.entity).join(" ")} ${row.key} ${entityText(row.entity)}`);
  const reason = reasonOf(data?.unavailable, { since: "2.6", right: "DescribeConfigs" });
  const isOperator = may("operator");
  const columns = useMemo(() => [
    ...KINDS.map((kind) => ({ key: kind, title: kindWord(kind), isOptional: kind === "user" ? undefined : false, sort: (row) => (kind in row.entity ? row.entity[kind] ?? "" : null), cell: (row) => html`<bdi>${nameOf(row.entity, kind)}</bdi>` })),
    { key: "key", title: t("Limit"), sort: (row) => row.key, cell: (row) => html`<span title=${row.key}>${limitWord(row.key)}</span>` },
    { key: "limit", title: t("At most"), isNumber: true, sort: (row) => row.limit, cell: (row) => limitText(row.key, row.limit) },
    ...(isOperator
      ? [{ key: "action", title: t("Action"), cell: (row) => html`<${Button} kind="small" onClick=${() => setAsked({ kind: "set", row })}>${t("Change")}</${Button}> <${Button} kind="small danger" onClick=${() => setAsked({ kind: "drop", row })}>${t("Remove")}</${Button}>` }]
      : []),
  ], [isOperator]);
  const drop = async () => {
    const { entity, key, limit } = asked.row;
    await patch(path`/api/clusters/${cluster}/quotas`, { entity, remove: [key], expected: { [key]: limit } });
    toast(t("Limit removed from {0}", entityText(entity)));
    setAsked(null);
    reload();
  };
  return html`<${Page} title=${t("Quotas")} id="quotas" actions=${data && isOperator ? html`<${Button} kind="primary" disabled=${Boolean(reason)} title=${reason} onClick=${() => setAsked({ kind: "set" })}>${t("Set a limit")}</${Button}>` : null}>
    <${Problem} error=${error} /><${Reason} reason=${reason} />
    ${data && !data.is_all ? html`<${Note} kind="warn">${t("Not all limits are shown.")}</${Note}>` : null}
    ${data && !reason ? html`<${Applied} cluster=${cluster} />` : null}
    ${data && !reason && !all.length ? html`<${Empty} title=${t("No limits")}>${t("Users, client ids and addresses are not limited.")}</${Empty}>` : null}
    ${all.length
      ? html`<div class="bar"><${Search} label=${t("Find limits")} value=${text} onInput=${setText} /><${Counted} shown=${rows.length} all=${all.length} /></div>
          <${Table} id="quotas" label=${t("Quotas")} columns=${columns} rows=${rows} rowKey=${(row) => `${row.key} ${JSON.stringify(row.entity)}`} order="user" />`
      : null}
    ${asked?.kind === "set" ? html`<${LimitDialog} cluster=${cluster} answer=${data} old=${asked.row} onClose=${() => setAsked(null)} onDone=${reload} />` : null}
    ${asked?.kind === "drop" ? html`<${Dialog} title=${t("Remove the limit?")} submit=${t("Remove")} kind="danger" onSubmit=${drop} onClose=${() => setAsked(null)}>
      <p><bdi>${entityText(asked.row.entity)}</bdi></p><p>${limitWord(asked.row.key)}: ${limitText(asked.row.key, asked.row.limit)}</p>
      <p class="muted">${t("Then the next limit by precedence applies, or none.")}</p></${Dialog}>` : null}
  </${Page}>`;
}
