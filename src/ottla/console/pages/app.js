// The shell of all pages: session, cluster, navigation, freshness of the data; and the current page.
import { get, remove } from "./core/api.js";
import { age } from "./core/format.js";
import { createContext, html, render, useContext, useEffect, useState } from "./core/html.js";
import { reconnect, start, useFreshness, useLive } from "./core/live.js";
import { errorText } from "./core/server-errors.js";
import { Link, decoded, go, match, useLocation } from "./core/router.js";
import { LANGUAGES, choose, language, t } from "./core/texts.js";
import { Button, Empty, Note, Toasts } from "./core/widgets.js";
import { NAVIGATION, ROUTES } from "./routes.js";
import { AlertBadge } from "./views/alert-labels.js";

const STALE_MS = 15_000;
const Session = createContext(null);
export const useSession = () => useContext(Session);

function useTheme() {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme);
  const turn = () => {
    const next = theme === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    localStorage.setItem("ottla.theme", next);
    setTheme(next);
  };
  return [theme, turn];
}

function Freshness({ cluster }) {
  const { isLost, problem, isKnown, ageMs } = useFreshness(cluster);
  const [kind, text] = isLost
    ? ["bad", t("The console does not answer")]
    : problem
      ? ["bad", isKnown ? t("Unreachable for {0}", age(ageMs)) : t("Not connected yet")]
      : !isKnown
        ? ["wait", t("Reading the cluster")]
        : [ageMs > STALE_MS ? "wait" : "good", t("{0} ago", age(ageMs))];
  return html`<span class=${`freshness ${kind}`} title=${problem ?? t("Time of the last reading")}>
    <i aria-hidden="true"></i>${text}</span>`;
}

function ConnectionProblem({ cluster }) {
  const { isLost, problem } = useFreshness(cluster);
  if (isLost) return html`<${Note} kind="bad">${t("The console does not answer. The data shown is old; updates resume automatically.")}</${Note}>`;
  return problem ? html`<${Note} kind="bad">${errorText({ error: "UNREACHABLE", message: problem })}</${Note}>` : null;
}

function SideBar({ cluster, pathname, clusters, session }) {
  const role = clusters.find((each) => each.name === cluster)?.role;
  const items = NAVIGATION.filter((item) => (item.needsCluster ? cluster : true) && (!item.isForAdmins || session.is_admin) && (!item.needsRole || item.needsRole === role));
  const isCurrent = (address) => pathname === address || (address !== `/c/${cluster}` && pathname.startsWith(`${address}/`));
  const pick = (event) => go(`/c/${encodeURIComponent(event.target.value)}`);
  return html`<aside class="side">
    <${Link} to="/" class="brand" aria-label="ottla"><img src="/static/icon.svg" alt="" width="26" height="26" /> <b>ottla</b></${Link}>
    ${clusters.length
      ? html`<label class="cluster"><span class="hidden-text">${t("Cluster")}</span>
          <select value=${cluster ?? ""} onChange=${pick}>
            ${cluster ? null : html`<option value="">${t("Choose a cluster")}</option>`}
            ${clusters.map((each) => html`<option key=${each.name} value=${each.name} selected=${each.name === cluster}>${each.name}</option>`)}
          </select></label>`
      : null}
    <nav aria-label=${t("Main")}>
      ${items.map((item) => {
        const address = item.needsCluster ? `/c/${encodeURIComponent(cluster)}${item.path}` : item.path;
        return html`<${Link} key=${item.path} to=${address} class=${isCurrent(address) ? "nav current" : "nav"}
          aria-current=${isCurrent(address) ? "page" : null}><span class="sign" aria-hidden="true">${item.sign}</span>${t(item.title)}</${Link}>`;
      })}
    </nav>
  </aside>`;
}

function TopBar({ cluster, clusters, session }) {
  const [theme, turn] = useTheme();
  const signOut = async () => {
    await remove("/api/session");
    reconnect();
    location.assign("/sign-in");
  };
  const other = language === "en" ? "zh" : "en";
  return html`<header class="top">
    ${cluster ? html`<${Freshness} cluster=${cluster} />` : null}
    ${(cluster ? clusters.filter((each) => each.name === cluster) : clusters).map((each) => html`<${AlertBadge} key=${each.name} cluster=${each.name} isNamed=${!cluster} />`)}
    <span class="space"></span>
    <${Button} kind="quiet" onClick=${() => choose(other)} lang=${other}>${LANGUAGES[other]}</${Button}>
    <${Button} kind="quiet" onClick=${turn} aria-label=${theme === "dark" ? t("Light") : t("Dark")}
      title=${theme === "dark" ? t("Light") : t("Dark")}>${theme === "dark" ? "☀" : "☾"}</${Button}>
    ${session.is_sign_in_needed
      ? html`<${Link} class="button quiet" to="/account">${session.person}</${Link}>
          <${Button} kind="quiet" onClick=${signOut}>${t("Sign out")}</${Button}>`
      : null}
  </header>`;
}

function CurrentPage({ found, session, clusters, reloadClusters }) {
  const [view, setView] = useState({ route: null });
  useEffect(() => {
    let isOver = false;
    if (found) found.route.load().then((module) => !isOver && setView({ route: found.route, View: module.default }));
    return () => (isOver = true);
  }, [found?.route]);
  if (!found) return html`<${Empty} title=${t("There is no such page")}>${html`<${Link} to="/">${t("Go to the start page")}</${Link}>`}</${Empty}>`;
  if (view.route !== found.route) return null;
  const { cluster } = found.parameters;
  const row = clusters.find((each) => each.name === cluster);
  if (cluster && !row) return html`<${Empty} title=${t("There is no cluster {0}", cluster)}><${Link} to="/clusters">${t("All clusters")}</${Link}></${Empty}>`;
  const may = (role) => ["viewer", "operator", "admin"].indexOf(row?.role ?? (session.is_admin ? "admin" : "viewer")) >= ["viewer", "operator", "admin"].indexOf(role);
  return html`<${view.View} ...${found.parameters} session=${session} may=${may} clusters=${clusters} reloadClusters=${reloadClusters} />`;
}

function Shell({ session }) {
  const { pathname } = useLocation();
  const { data, error, reload } = useLive("/api/clusters");
  const clusters = data?.clusters;
  let found = null;
  for (const route of ROUTES) {
    const parameters = match(route.path, pathname);
    if (parameters) {
      found = { route, parameters };
      break;
    }
  }
  const cluster = found?.parameters.cluster ?? (clusters?.length === 1 ? clusters[0].name : null);
  useEffect(() => {
    if (pathname === "/" && clusters?.length) go(`/c/${encodeURIComponent(clusters[0].name)}`, { replace: true });
    else if (pathname === "/" && clusters) go("/clusters", { replace: true });
  }, [pathname, clusters]);
  if (error) return html`<${Empty} title=${t("The console does not answer")}>${error.message}</${Empty}>`;
  if (!clusters) return null;
  return html`<a class="skip" href="#content">${t("Skip to content")}</a>
    <${SideBar} cluster=${cluster} pathname=${decoded(pathname)} clusters=${clusters} session=${session} />
    <div class="main">
      <${TopBar} cluster=${cluster} clusters=${clusters} session=${session} />
      <main id="content" tabindex="-1">
        ${found?.parameters.cluster ? html`<${ConnectionProblem} cluster=${cluster} />` : null}
        <${CurrentPage} found=${found} session=${session} clusters=${clusters} reloadClusters=${reload} />
      </main>
    </div>`;
}

function App() {
  const [session, setSession] = useState(null);
  const [SignIn, setSignIn] = useState(null);
  const { pathname } = useLocation();
  useEffect(() => {
    get("/api/session").then(setSession, () => setSession({ isAway: true }));
    const out = () => setSession((before) => ({ ...before, person: "" }));
    addEventListener("ottla-signed-out", out);
    return () => removeEventListener("ottla-signed-out", out);
  }, []);
  const isOut = session && !session.isAway && !session.person;
  useEffect(() => {
    if (isOut) import("./views/sign-in.js").then((module) => setSignIn(() => module.default));
    else if (session && pathname === "/sign-in") go("/", { replace: true });
  }, [isOut, session]);
  useEffect(() => {
    if (session?.person) start();
  }, [session?.person]);
  if (!session) return null;
  if (session.isAway) return html`<${Empty} title=${t("The console does not answer")}>${t("Is it running?")}</${Empty}>`;
  if (isOut) return SignIn ? html`<${SignIn} isByToken=${!session.is_sign_in_needed} />` : null;
  return html`<${Session.Provider} value=${session}><${Shell} session=${session} /><${Toasts} /></${Session.Provider}>`;
}

// Starts loading the page's module while the session is requested.
ROUTES.find((route) => match(route.path, location.pathname))?.load();
render(html`<${App} />`, document.getElementById("app"));
