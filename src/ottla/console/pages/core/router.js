// The address has the state of a page: views with filters can be shared, and Back works.
import { html, useEffect, useState } from "./html.js";

const listeners = new Set();
const changed = () => listeners.forEach((listener) => listener());
addEventListener("popstate", changed);

export function go(address, { replace = false } = {}) {
  if (address === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", address);
  changed();
}

export function useLocation() {
  const [, setTick] = useState(0);
  useEffect(() => {
    const listener = () => setTick((tick) => tick + 1);
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, []);
  return location;
}

// [value, set] of a query parameter; the default value is omitted from the address.
export function useQuery(name, standard = "") {
  const { search, pathname } = useLocation();
  const value = new URLSearchParams(search).get(name) ?? standard;
  const set = (next) => {
    const query = new URLSearchParams(location.search);
    if (next === standard || next == null) query.delete(name);
    else query.set(name, next);
    const text = query.toString();
    go(pathname + (text ? `?${text}` : ""), { replace: true });
  };
  return [value, set];
}

// Decodes like the server: invalid escapes (%zz) are kept.
export const decoded = (text) =>
  text.replace(/(%[0-9a-f]{2})+/gi, (run) => {
    try {
      return decodeURIComponent(run);
    } catch {
      return run;
    }
  });

export function match(pattern, pathname) {
  const wanted = pattern.split("/").filter(Boolean);
  const parts = pathname.split("/").filter(Boolean);
  if (wanted.length !== parts.length) return null;
  const parameters = {};
  for (const [index, word] of wanted.entries()) {
    if (word.startsWith("{")) parameters[word.slice(1, -1)] = decoded(parts[index]);
    else if (word !== parts[index]) return null;
  }
  return parameters;
}

export function Link({ to, children, ...rest }) {
  const onClick = (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    event.stopPropagation();
    go(to);
  };
  return html`<a href=${to} onClick=${onClick} ...${rest}>${children}</a>`;
}
