// The cluster as a graph: brokers in racks, the controller, replication links. It is readable with three or fifty brokers,
// on a phone, and by keyboard: arrow keys select a broker, Enter opens it. The same data follows as a table.
import { path } from "../core/api.js";
import { count } from "../core/format.js";
import { html, useEffect, useMemo, useRef, useState } from "../core/html.js";
import { useLive } from "../core/live.js";
import { go } from "../core/router.js";
import { t } from "../core/texts.js";
import { Problem } from "../core/widgets.js";
import { layoutBrokers, linkPath } from "./topology-layout.js";

const LINKS_MAX = 40; // with more, only lagging links and links of the selected broker are drawn

const STRONGEST = 12; // links in each direction of a selected broker with many
const NAMED_MAX = 12; // brokers listed in a label

function brokerCounts(pairs, most) {
  const listed = pairs.slice(0, most).map(([broker, number]) => `${broker} (${count(number)})`).join(", ");
  return pairs.length > most ? t("{0} and {1} more", listed, count(pairs.length - most)) : listed;
}

// The links to draw: all in a small cluster, else lagging ones and the strongest of the selected broker.
function chosenLinks(links, chosen) {
  if (links.length <= LINKS_MAX) return links;
  const own = (key) => links.filter((link) => link[key] === chosen).slice(0, STRONGEST);
  return [...new Set([...links.filter((link) => link.behind).slice(0, 2 * LINKS_MAX), ...own("leader"), ...own("follower")])];
}

// The description of a broker, for the list and for screen readers.
function described(row, links, most = NAMED_MAX) {
  const from = links.filter((link) => link.follower === row.broker).map((link) => [link.leader, link.partitions]);
  const to = links.filter((link) => link.leader === row.broker).map((link) => [link.follower, link.partitions]);
  return [
    row.is_alive ? t("alive") : t("down"),
    row.is_controller ? t("controller") : null,
    row.rack ? t("rack {0}", row.rack) : null,
    t("{0} leaders", count(row.leaders)),
    t("{0} replicas", count(row.replicas)),
    row.under_replicated ? t("{0} not in sync", count(row.under_replicated)) : null,
    from.length ? t("replicates from {0}", brokerCounts(from, most)) : null,
    to.length ? t("replicated by {0}", brokerCounts(to, most)) : null,
  ].filter(Boolean).join(" · ");
}

function Node({ node, row, label, address, isChosen, isSmall, onChoose, onMove }) {
  const onKeyDown = (event) => {
    if (!onMove(event.key)) return;
    event.preventDefault();
  };
  const open = (event) => {
    event.preventDefault();
    go(address);
  };
  const kind = `node${row.is_alive ? "" : " gone"}${row.is_controller ? " controller" : ""}${isChosen ? " chosen" : ""}`;
  const lines = isSmall
    ? [`${row.broker}${row.is_controller ? " ★" : ""}`, row.is_alive ? `${count(row.leaders)} / ${count(row.replicas)}` : t("down")]
    : [
        `${t("Broker {0}", row.broker)}${row.is_controller ? " ★" : ""}`,
        row.is_alive ? t("{0} leaders", count(row.leaders)) : t("down"),
        row.is_alive && row.under_replicated ? t("{0} not in sync", count(row.under_replicated)) : t("{0} replicas", count(row.replicas)),
      ];
  return html`<a class=${kind} href=${address} data-broker=${row.broker} aria-label=${`${lines.join(" ")}: ${t("Broker {0}", row.broker)} · ${label}`} tabindex=${isChosen ? 0 : -1}
      onClick=${open} onFocus=${onChoose} onMouseEnter=${onChoose} onKeyDown=${onKeyDown}>
    <rect x=${node.x} y=${node.y} width=${node.width} height=${node.height} rx="9" />
    ${row.is_controller ? html`<rect class="inner" x=${node.x + 3} y=${node.y + 3} width=${node.width - 6} height=${node.height - 6} rx="7" />` : null}
    ${lines.map((line, index) => html`<text key=${index} class=${index ? "" : "name"} x=${node.x + node.width / 2} y=${node.y + (isSmall ? 18 : 21) + index * (isSmall ? 16 : 17)}>${line}${" "}</text>`)}
  </a>`;
}

function Graph({ data, cluster, width }) {
  const [chosen, setChosen] = useState(null);
  const box = useRef(null);
  const wanted = useRef(null); // the broker selected by key, which gets the focus
  const layout = useMemo(() => layoutBrokers(data.brokers, width), [data, width]);
  const { nodes, racks, height, isSmall } = layout;
  const first = nodes.has(chosen) ? chosen : data.brokers[0].broker;
  useEffect(() => {
    if (wanted.current == null || wanted.current !== chosen) return;
    wanted.current = null;
    box.current.querySelector(`a[data-broker="${chosen}"]`)?.focus();
  });
  const isCrowded = data.links.length > LINKS_MAX;
  const drawn = chosenLinks(data.links, chosen).filter((link) => nodes.has(link.leader) && nodes.has(link.follower));
  const most = Math.max(1, ...drawn.map((link) => link.partitions));
  const move = (key) => {
    const next = layout.next(first, key);
    if (next === undefined) return false;
    wanted.current = next;
    setChosen(next);
    return true;
  };
  const row = data.brokers.find((each) => each.broker === chosen);
  const linkKind = (link) => `link${link.behind ? " behind" : ""}${link.leader === chosen ? " leads" : link.follower === chosen ? " follows" : chosen != null && !isCrowded ? " other" : ""}`;
  return html`<svg ref=${box} class="topology" width=${width} height=${height} role="group" aria-label=${t("Brokers and replication links; use the arrow keys to move between brokers")}
      onMouseLeave=${() => setChosen(null)}>
      <defs>${["", "leads", "follows", "behind"].map((kind) => html`<marker key=${kind} id=${`arrow${kind}`} class=${`arrow ${kind}`} viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L8 4L0 8z" /></marker>`)}</defs>
      ${racks.map((rack) => html`<g key=${rack.name} class="rack" aria-hidden="true"><rect x=${rack.x} y=${rack.y} width=${rack.width} height=${rack.height} rx="11" />
        ${rack.name != null ? html`<text x=${rack.x + 10} y=${rack.y + 17}>${t("rack {0}", rack.name)}</text>` : null}</g>`)}
      <g aria-hidden="true">${drawn.map((link) => html`<path key=${`${link.leader}-${link.follower}`} class=${linkKind(link)} d=${linkPath(nodes.get(link.leader), nodes.get(link.follower))}
        stroke-width=${1 + (2 * link.partitions) / most} marker-end=${`url(#arrow${link.behind ? "behind" : link.leader === chosen ? "leads" : link.follower === chosen ? "follows" : ""})`} />`)}</g>
      ${data.brokers.map((each) => html`<${Node} key=${each.broker} row=${each} node=${nodes.get(each.broker)} isSmall=${isSmall} isChosen=${each.broker === first}
        label=${described(each, data.links)} address=${path`/c/${cluster}/brokers/${each.broker}`} onChoose=${() => setChosen(each.broker)} onMove=${move} />`)}
    </svg>
    <p class="muted topology-words">${row
      ? `${t("Broker {0}", row.broker)}: ${described(row, data.links)}`
      : isCrowded ? t("★ is the controller. Point at a broker to see its replication links.") : t("★ is the controller. Arrows lead from leaders to followers.")}</p>`;
}

export function Topology({ cluster }) {
  const { data, error } = useLive(path`/api/clusters/${cluster}/topology`, ["metadata"], cluster);
  const box = useRef(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const observer = new ResizeObserver(() => setWidth(Math.floor(box.current.clientWidth)));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  return html`<section class="card">
    <h2>${t("Topology")}</h2>
    <${Problem} error=${error} />
    <div ref=${box} class="topology-box">${data?.brokers.length && width ? html`<${Graph} data=${data} cluster=${cluster} width=${width} />` : null}</div>
    ${data?.brokers.length
      ? html`<details><summary>${t("As text")}</summary><ul class="list topology-list">${data.brokers.map((each) => html`<li key=${each.broker}><span><b>${t("Broker {0}", each.broker)}</b>: ${described(each, data.links, Infinity)}</span></li>`)}</ul></details>`
      : null}
  </section>`;
}
