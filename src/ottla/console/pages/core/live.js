// Live data: useLive(path, parts) returns the answer of the API, and requests it again when the server reports a newer
// version of one of these parts of the cluster. Hidden tabs send no requests.
import { call } from "./api.js";
import { useEffect, useState } from "./html.js";

const PERIOD_MS = 2000; // polling interval without a SharedWorker
const GAP_MS = 1000; // between two requests for the same path
const listeners = new Set();
let state = { clusters: {}, now_ms: Date.now(), at: Date.now(), isLost: false };
let port = null;

function receive(message) {
  state = message.kind === "versions" ? { ...message, isLost: false } : { ...state, isLost: true };
  for (const listener of [...listeners]) listener();
}

// A trusted types policy for the one allowed script URL.
const policy = globalThis.trustedTypes?.createPolicy("ottla", {
  createScriptURL: (address) => {
    if (address !== "/static/core/live-worker.js") throw new TypeError(address);
    return address;
  },
});

export function start() {
  const address = "/static/core/live-worker.js";
  if (globalThis.SharedWorker) {
    const worker = new SharedWorker(policy ? policy.createScriptURL(address) : address, { name: "ottla" });
    port = worker.port;
    port.onmessage = ({ data }) => receive(data);
    port.postMessage("hello");
    addEventListener("pagehide", () => port.postMessage("bye"));
    addEventListener("pageshow", (event) => event.persisted && location.reload());
  } else {
    setInterval(poll, PERIOD_MS);
    poll();
  }
}

// After sign-in or sign-out: the old stream belongs to the previous session.
export const reconnect = () => port?.postMessage("reconnect");

async function poll() {
  if (document.hidden) return;
  try {
    receive({ kind: "versions", at: Date.now(), ...(await call("GET", "/api/ages")) });
  } catch {
    receive({ kind: "lost" });
  }
}

export const serverNow = () => state.now_ms + (Date.now() - state.at);

function useVersions() {
  const [, setTick] = useState(0);
  useEffect(() => {
    const listener = () => setTick((tick) => tick + 1);
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, []);
  return state;
}

// The freshness of a cluster: age of its metadata, problem of a part, whether the console responds.
export function useFreshness(cluster) {
  const { clusters, isLost } = useVersions();
  const [, setTick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => setTick((tick) => tick + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  const parts = Object.values(clusters[cluster] ?? {});
  const metadata = clusters[cluster]?.metadata;
  const problem = metadata?.[2] ?? parts.find((part) => part[2])?.[2] ?? null;
  const readMs = metadata?.[1] ?? 0;
  return { isLost, problem, isKnown: readMs > 0, ageMs: readMs ? Math.max(0, serverNow() - readMs) : null };
}

const versionOf = (cluster, parts) =>
  parts.map((part) => state.clusters[cluster]?.[part]?.[0] ?? 0).join(".");

export function useLive(path, parts = [], cluster = null) {
  const [shown, setShown] = useState({ path: null, data: null, error: null });
  const [reloads, setReloads] = useState(0); // number of manual reloads
  useEffect(() => {
    if (!path) return undefined;
    let isCancelled = false;
    let seen = null;
    let requestedAt = 0;
    let timer = null;
    const request = async () => {
      timer = null;
      requestedAt = Date.now();
      seen = versionOf(cluster, parts);
      try {
        const data = await call("GET", path);
        if (!isCancelled) setShown({ path, data, error: null });
      } catch (error) {
        if (!isCancelled) setShown((before) => ({ path, data: before.path === path ? before.data : null, error }));
      }
    };
    const requestIfNewer = () => {
      if (timer || document.hidden || versionOf(cluster, parts) === seen) return;
      timer = setTimeout(request, Math.max(0, requestedAt + GAP_MS - Date.now()));
    };
    request();
    listeners.add(requestIfNewer);
    document.addEventListener("visibilitychange", requestIfNewer);
    return () => {
      isCancelled = true;
      clearTimeout(timer);
      listeners.delete(requestIfNewer);
      document.removeEventListener("visibilitychange", requestIfNewer);
    };
  }, [path, reloads]);
  const isCurrent = shown.path === path;
  return {
    data: isCurrent ? shown.data : null,
    error: isCurrent ? shown.error : null,
    reload: () => setReloads((number) => number + 1),
  };
}
