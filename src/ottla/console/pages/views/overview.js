// The overview of a cluster: problems, traffic, brokers.
import { path, post } from "../core/api.js";
import { bytes, compact, count, rate } from "../core/format.js";
import { html, useMemo, useState } from "../core/html.js";
import { useLive } from "../core/live.js";
import { Link, useQuery } from "../core/router.js";
import { t } from "../core/texts.js";
import { Badge, Button, Empty, Figure, Note, Page, Problem } from "../core/widgets.js";
import { Plot } from "../core/plot.js";
import { OpenAlerts } from "./alert-labels.js";
import { brokerState } from "./brokers.js";
import { stateBadge } from "./group-badges.js";
import { ClusterLoad, Hours } from "./load.js";
import { Topology } from "./topology.js";

const PARTS = ["metadata", "ends", "groups", "commits", "sizes"];

function Attention({ data, cluster }) {
  const gone = data.brokers.filter((broker) => !broker.is_alive);
  const items = [
    gone.length ? ["bad", t("Brokers with replicas are down: {0}", gone.map((each) => each.broker).join(", ")), path`/c/${cluster}/brokers`] : null,
    data.controller < 0 ? ["bad", t("The cluster has no controller: changes are not possible"), path`/c/${cluster}/brokers`] : null,
    data.leaderless ? ["bad", t("{0} partitions have no leader and cannot be read or written", count(data.leaderless)), `${path`/c/${cluster}/topics`}?sort=-health&internal=1`] : null,
    data.under_replicated ? ["warn", t("{0} partitions are under-replicated", count(data.under_replicated)), `${path`/c/${cluster}/topics`}?sort=-health&internal=1`] : null,
    data.not_preferred ? ["warn", t("{0} partitions are not led by their preferred replica", count(data.not_preferred)), path`/c/${cluster}/reassignments`] : null,
  ].filter(Boolean);
  if (!items.length) return html`<${Note} kind="good">${t("All partitions have a leader and all replicas in sync.")}</${Note}>`;
  return items.map(([kind, words, link]) => html`<${Note} key=${words} kind=${kind}>${words} <${Link} to=${link}>${t("Show")}</${Link}></${Note}>`);
}

const KINDS = { problem: "bad", warning: "warn", note: "info" };

// Runs `ottla doctor` on request.
function Examination({ cluster }) {
  const [found, setFound] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const examine = async () => {
    setBusy(true);
    try {
      setFound(await post(path`/api/clusters/${cluster}/examinations`));
    } catch (error) {
      setFound({ error });
    }
    setBusy(false);
  };
  return html`<section class="card" aria-busy=${isBusy}>
    <h2>${t("Diagnosis")} <${Button} kind="small" onClick=${examine} disabled=${isBusy}>${isBusy ? t("Diagnosing") : t("Diagnose the cluster")}</${Button}></h2>
    <${Problem} error=${found?.error} />
    ${found && !found.error && !found.findings.length ? html`<${Note} kind="good">${t("No problems found from outside the brokers.")}</${Note}>` : null}
    ${!found ? html`<p class="muted">${t("Checks for known faults and shows causes and remedies, as ottla doctor does.")}</p>` : null}
    ${found?.findings?.length
      ? html`<ul class="list findings">${found.findings.map((each, index) => html`<li key=${index}>
          <span><${Badge} kind=${KINDS[each.severity] ?? "info"}>${each.severity === "problem" ? t("problem") : each.severity === "warning" ? t("warning") : t("note")}</${Badge}></span>
          <div><b>${each.what}</b><br /><span>${t("Cause:")} ${each.cause}</span><br /><span>${t("Remedy:")} ${each.cure}</span></div></li>`)}</ul>`
      : null}
  </section>`;
}

const Waiting = () => html`<div class="plot-wait" style=${{ height: "160px" }}>${t("Collecting: the first data appears in half a minute")}</div>`;

function Traffic({ cluster }) {
  const [hours] = useQuery("hours", "1");
  const { data } = useLive(`${path`/api/clusters/${cluster}/history`}?hours=${encodeURIComponent(hours)}`, ["commits"], cluster);
  const traffic = useMemo(() => (data ? [data.at_ms, data.produced, data.consumed] : null), [data]);
  const backlog = useMemo(() => (data ? [data.at_ms, data.backlog] : null), [data]);
  return html`<section class="cards">
    <div class="card">
      <h2>${t("Records a second")} <${Hours} /></h2>
      ${traffic?.[0].length > 1 ? html`<${Plot} label=${t("Records a second")} columns=${traffic} series=${[{ title: t("written"), colour: "--plot-1" }, { title: t("consumed"), colour: "--plot-2" }]} />` : html`<${Waiting} />`}
    </div>
    <div class="card">
      <h2>${t("Backlog of all groups")}</h2>
      ${backlog?.[0].length > 1 ? html`<${Plot} label=${t("Backlog of all groups")} columns=${backlog} series=${[{ title: t("records"), colour: "--plot-3" }]} />` : html`<${Waiting} />`}
    </div>
  </section>`;
}

const Ranking = ({ title, items, more, empty }) => html`<div class="card">
  <h2>${title} ${more}</h2>
  ${items.length
    ? html`<ul class="list">${items.map(([name, link, value]) => html`<li key=${name}><${Link} to=${link}><bdi>${name}</bdi></${Link}><span>${value}</span></li>`)}</ul>`
    : html`<p class="muted">${empty}</p>`}
</div>`;

export default function Overview({ cluster, may }) {
  const { data, error } = useLive(path`/api/clusters/${cluster}/overview`, PARTS, cluster);
  const isRead = data && data.brokers.length > 0;
  return html`<${Page} title=${cluster} id="overview">
    <${Problem} error=${error} />
    ${data && !isRead
      ? html`<${Empty} title=${t("The cluster has not been reached yet")}>
          <p>${t("The console retries every second. To start a broker on this machine:")}</p><pre>ottla up</pre>
        </${Empty}>`
      : null}
    ${isRead
      ? html`<${OpenAlerts} cluster=${cluster} /><${Attention} data=${data} cluster=${cluster} />
          <div class="figures">
            <${Figure} label=${t("Brokers")} value=${count(data.brokers.filter((each) => each.is_alive).length)} />
            <${Figure} label=${t("Topics")} value=${count(data.topics)} />
            <${Figure} label=${t("Partitions")} value=${count(data.partitions)} />
            <${Figure} label=${t("Groups")} value=${count(data.groups)} />
            <${Figure} label=${t("Written")} value=${rate(data.produce_rate)} unit=${t("/s")} />
            <${Figure} label=${t("Consumed")} value=${rate(data.consume_rate)} unit=${t("/s")} />
            <${Figure} label=${t("Backlog")} value=${compact(data.backlog)} title=${t("{0} records", count(data.backlog))} />
            <${Figure} label=${t("On disk")} value=${bytes(data.size_bytes)} />
          </div>
          <${Traffic} cluster=${cluster} />
          <${Topology} cluster=${cluster} />
          <${ClusterLoad} cluster=${cluster} may=${may} />
          <section class="cards four">
            <div class="card">
              <h2>${t("Brokers")} <${Link} to=${path`/c/${cluster}/brokers`}>${t("All")}</${Link}></h2>
              <ul class="list">${data.brokers.slice(0, 8).map((broker) => html`<li key=${broker.broker}>
                <span><${Link} to=${path`/c/${cluster}/brokers/${broker.broker}`}>${t("Broker {0}", broker.broker)}</${Link}> ${brokerState(broker)}</span>
                <span class="muted">${t("{0} leaders", count(broker.leaders))} · ${bytes(broker.size_bytes)}</span></li>`)}</ul>
            </div>
            <${Ranking} title=${t("Busiest topics")} more=${html`<${Link} to=${`${path`/c/${cluster}/topics`}?sort=-rate`}>${t("All")}</${Link}>`}
              empty=${t("No writes at the moment.")}
              items=${data.busiest_topics.map(([name, each]) => [name, path`/c/${cluster}/topics/${name}`, t("{0}/s", rate(each))])} />
            <${Ranking} title=${t("Lagging groups")} more=${html`<${Link} to=${path`/c/${cluster}/groups`}>${t("All")}</${Link}>`}
              empty=${t("All groups have caught up.")}
              items=${data.laziest_groups.map(([name, lag]) => [name, path`/c/${cluster}/groups/${name}`, t("{0} records", count(lag))])} />
            <div class="card">
              <h2>${t("Groups by state")}</h2>
              ${Object.keys(data.groups_by_state).length
                ? html`<ul class="list">${Object.entries(data.groups_by_state).map(([state, number]) => html`<li key=${state}>${stateBadge(state)}<span>${count(number)}</span></li>`)}</ul>`
                : html`<p class="muted">${t("No groups yet")}</p>`}
              <h2>${t("Cluster id")}</h2><${Badge}><span class="mono">${data.cluster_id ?? "–"}</span></${Badge}>
            </div>
          </section>
          <${Examination} cluster=${cluster} />`
      : null}
  </${Page}>`;
}
