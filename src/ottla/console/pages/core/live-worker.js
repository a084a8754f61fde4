// One event stream for all tabs of this browser: browsers allow six connections to a host, and people open more tabs.
const ports = new Set();
let last = null;
let stream = null;

function tell(message) {
  last = message;
  for (const port of ports) port.postMessage(message);
}

function open() {
  stream = new EventSource("/api/events");
  stream.onmessage = (event) => tell({ kind: "news", at: Date.now(), ...JSON.parse(event.data) });
  stream.onerror = () => {
    tell({ kind: "lost" });
    if (stream.readyState === EventSource.CLOSED) {
      stream = null;
      setTimeout(() => ports.size && !stream && open(), 3000);
    }
  };
}

self.onconnect = (event) => {
  const [port] = event.ports;
  ports.add(port);
  if (last) port.postMessage(last);
  port.onmessage = ({ data }) => {
    if (data === "bye") ports.delete(port);
    if (data === "again" && stream) {
      stream.close();
      stream = null;
    }
    if (ports.size === 0 && stream) {
      stream.close();
      stream = null;
    } else if (ports.size && !stream) open();
  };
  if (!stream) open();
  port.start();
};
