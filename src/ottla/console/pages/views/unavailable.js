// Why a cluster does not provide ACLs, users or tokens: no authorizer, too old, or not authorized.
import { html } from "../core/html.js";
import { t } from "../core/texts.js";
import { Note } from "../core/widgets.js";

export function reasonOf(unavailable, { since, right }) {
  if (!unavailable) return null;
  if (unavailable.error === "SECURITY_DISABLED") return t("This cluster has no authorizer: all clients may do everything. Set authorizer.class.name on the brokers to use rules.");
  if (unavailable.error === "UNSUPPORTED_VERSION") return t("The brokers of this cluster are too old: Kafka {0} or later is required.", since);
  if (unavailable.error === "CLUSTER_AUTHORIZATION_FAILED") return t("The login of this console is not authorized: grant it {0} on the cluster.", right);
  if (unavailable.error === "DELEGATION_TOKEN_AUTH_DISABLED") return t("Delegation tokens are not enabled: set delegation.token.secret.key on the brokers.");
  if (unavailable.error === "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED") return t("Only clients that log in, and not with a token, may list delegation tokens: give this cluster a login.");
  return unavailable.message;
}

export const Reason = ({ reason }) => (reason ? html`<${Note} kind="warn">${reason}</${Note}>` : null);
