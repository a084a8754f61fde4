// Badges of consumer groups: state, verdict of the monitor, lag in time; and why there are no verdicts.
import { age, time } from "../core/format.js";
import { html } from "../core/html.js";
import { t } from "../core/texts.js";
import { Badge, Note } from "../core/widgets.js";

const STATE_KINDS = { Stable: "good", Empty: "neutral", Dead: "bad" };

export const stateBadge = (state) => html`<${Badge} kind=${STATE_KINDS[state] ?? "warn"}>${stateLabel(state)}</${Badge}>`;

function stateLabel(state) {
  switch (state) {
    case "Stable": return t("Stable");
    case "Empty": return t("Empty group");
    case "Dead": return t("Dead");
    case "PreparingRebalance": return t("Preparing rebalance");
    case "CompletingRebalance": return t("Completing rebalance");
    case "Assigning": return t("Assigning");
    case "Reconciling": return t("Reconciling");
    default: return state || t("unknown");
  }
}

// Verdicts, with the names of Burrow; the worst one is last.
const VERDICTS = ["OK", "WARN", "ERR", "STOP", "STALL", "REWIND"];
const VERDICT_KINDS = { OK: "good", WARN: "warn" };

export const verdictRank = (row) => VERDICTS.indexOf(row.verdict);

export const verdictBadge = (verdict) =>
  verdict ? html`<${Badge} kind=${VERDICT_KINDS[verdict] ?? "bad"} title=${verdictTitle(verdict)}>${verdict}</${Badge}>` : "–";

export const lagTime = ({ lag_ms: ms, is_lag_older: isOlder }) => (ms == null ? "–" : isOlder ? t("over {0}", age(ms)) : age(ms));

function verdictTitle(verdict) {
  switch (verdict) {
    case "OK": return t("Keeps up");
    case "WARN": return t("Commits, but lag keeps growing");
    case "ERR": return t("A partition is stopped, stalled or was rewound");
    case "STOP": return t("Lagging, with no commit for longer than usual");
    case "STALL": return t("Lagging, and commits the same offset repeatedly");
    case "REWIND": return t("Rewound to an earlier offset");
    default: return null;
  }
}

// Empty if all verdicts are current.
export function VerdictNote({ verdicts }) {
  if (!verdicts || (verdicts.is_ready && !verdicts.problem)) return null;
  if (verdicts.is_ready) return html`<${Note} kind="warn">${t("Verdicts as of {0}: {1}", time(verdicts.at_ms), verdicts.problem)}</${Note}>`;
  if (verdicts.problem) return html`<${Note} kind="warn">${t("No verdicts for groups: {0}", verdicts.problem)}</${Note}>`;
  return html`<${Note}>${t("Reading past commits: verdicts follow.")}</${Note}>`;
}
