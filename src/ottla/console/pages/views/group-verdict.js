// What the monitor says about a group: verdict, lag in time, and why there is none.
import { age, time } from "../core/format.js";
import { html } from "../core/html.js";
import { t } from "../core/texts.js";
import { Badge, Note } from "../core/widgets.js";

// Burrow's words, worst last.
const WORDS = ["OK", "WARN", "ERR", "STOP", "STALL", "REWIND"];
const KINDS = { OK: "good", WARN: "warn" };

export const verdictRank = (row) => WORDS.indexOf(row.verdict);

export const verdictBadge = (verdict) =>
  verdict ? html`<${Badge} kind=${KINDS[verdict] ?? "bad"} title=${meaning(verdict)}>${verdict}</${Badge}>` : "–";

export const lagTime = ({ lag_ms: ms, is_lag_older: isOlder }) => (ms == null ? "–" : isOlder ? t("over {0}", age(ms)) : age(ms));

function meaning(verdict) {
  switch (verdict) {
    case "OK": return t("Keeps up");
    case "WARN": return t("Commits, but falls further and further behind");
    case "ERR": return t("A partition is stopped, stalled or was set back");
    case "STOP": return t("Has not committed for longer than it used to, and is behind");
    case "STALL": return t("Commits the same offset again and again, and is behind");
    case "REWIND": return t("Went back to an earlier offset");
    default: return null;
  }
}

// Nothing where all is well.
export function VerdictNote({ verdicts }) {
  if (!verdicts || (verdicts.is_ready && !verdicts.problem)) return null;
  if (verdicts.is_ready) return html`<${Note} kind="warn">${t("The verdicts are those of {0}: {1}", time(verdicts.at_ms), verdicts.problem)}</${Note}>`;
  if (verdicts.problem) return html`<${Note} kind="warn">${t("No verdicts on groups: {0}", verdicts.problem)}</${Note}>`;
  return html`<${Note}>${t("The commits of the past are being read: verdicts follow.")}</${Note}>`;
}
