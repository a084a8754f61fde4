"""The web console: observe and operate clusters in the browser. It connects to clusters like any client.

* `clusters/` reads each cluster in the background with bounded requests, and keeps an immutable snapshot of it. Pages
  read the snapshot: they never wait for a broker and put no load on it.
* `api/` answers under /api from these snapshots and makes changes; `api/routes.py` is the whole API.
* `auth/` authenticates callers (password, token, link) and checks their roles.
* `reassignment/` plans and runs moves of replicas.
* `pages/` holds the files for the browser: our ES modules, and in `pages/vendor` libraries from npm.
* `app.py` is the ASGI application: hosts, origins, headers, files; `server.py` starts it.
"""
