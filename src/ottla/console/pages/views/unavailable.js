// Why a page of rights has nothing to show: the cluster has no authorizer, is too old, or does not let the console look.
import { html } from "../core/html.js";
import { t } from "../core/texts.js";
import { Note } from "../core/widgets.js";

export function reasonOf(unavailable, { since, right }) {
  if (!unavailable) return null;
  if (unavailable.error === "SECURITY_DISABLED") return t("This cluster has no authorizer: everybody may do everything. With authorizer.class.name in the settings of its brokers there are rules.");
  if (unavailable.error === "UNSUPPORTED_VERSION") return t("The brokers of this cluster are too old: this needs Kafka {0} or later.", since);
  if (unavailable.error === "CLUSTER_AUTHORIZATION_FAILED") return t("The login of this console may not see this: give it the right {0} on the cluster.", right);
  if (unavailable.error === "DELEGATION_TOKEN_AUTH_DISABLED") return t("The brokers have no delegation tokens: set delegation.token.secret.key there.");
  if (unavailable.error === "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED") return t("Delegation tokens are told only to whoever logs in, and not with a token: give this cluster a login.");
  return unavailable.message;
}

export const Reason = ({ reason }) => (reason ? html`<${Note} kind="warn">${reason}</${Note}>` : null);
