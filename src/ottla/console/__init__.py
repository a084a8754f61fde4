"""The web console: see and steer clusters in the browser. Reaches every cluster over the wire, as any client does.

* `clusters/` reads each cluster in the background, in pieces, and keeps an immutable snapshot of it: nobody who looks
  at a page waits for a broker, and nobody who looks costs a broker anything.
* `api/` answers under /api from these snapshots and carries out changes; its table of routes is the whole API.
* `people/` who signs in, with which password or token, and who may do what.
* `pages/` what the browser gets: ES modules of ours, as they are, and in `pages/vendor` those of others (`npm`).
* `app.py` is the door: hosts, origins, headers, sizes; `serving.py` starts it all.
"""
