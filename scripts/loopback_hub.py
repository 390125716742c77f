"""A stand-in for the Hugging Face hub on this machine: five configs, and weights of which only the header exists.

Tools that know one address only are led here by a `sitecustomize` that rewrites the host of their requests.
"""

import http.server
import json
import struct
import threading
from typing import Any

HASH = "0" * 40
REDIRECT = """
import importlib, os
def redirect(name):
    try:
        library = importlib.import_module(name)
    except ImportError:
        return
    def led(send):
        def there(self, request, *args, **kwargs):
            if request.url.host == "huggingface.co":
                request.url = request.url.copy_with(scheme="http", host="127.0.0.1", port=int(os.environ["HUB_PORT"]))
            return send(self, request, *args, **kwargs)
        return there
    library.Client.send = led(library.Client.send)
    library.AsyncClient.send = led(library.AsyncClient.send)
if os.environ.get("HUB_PORT"):
    redirect("httpx"); redirect("httpx2")
"""


def weights_header(params: int) -> bytes:
    """A safetensors file up to its data: one bf16 tensor of that many elements."""
    header = json.dumps({"weight": {"dtype": "BF16", "shape": [params], "data_offsets": [0, 2 * params]}}).encode()
    return struct.pack("<Q", len(header)) + header


class Hub:
    """Serves {id: (config, parameters)} on a free port until closed."""

    def __init__(self, models: dict[str, tuple[dict[str, Any], int]]) -> None:
        self.files = {
            name: {"config.json": json.dumps(config).encode(), "model.safetensors": weights_header(params)}
            for name, (config, params) in models.items()
        }
        self.sizes = {name: params * 2 for name, (_, params) in models.items()}
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.answer(self)

            do_HEAD = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        path = request.path.split("?")[0].lstrip("/")
        if path.startswith("api/models/"):
            self._send(request, self._api(path.removeprefix("api/models/")))
            return
        name, _, rest = path.partition("/resolve/")
        file = rest.partition("/")[2]
        claimed = self.sizes[name] if file == "model.safetensors" and name in self.sizes else 0
        self._send(request, self.files.get(name, {}).get(file), claimed)

    def _api(self, path: str) -> bytes | None:
        name = "/".join(path.split("/")[:2])
        if name not in self.files:
            return None
        sizes = {"config.json": len(self.files[name]["config.json"]), "model.safetensors": self.sizes[name]}
        if "/tree/" in path:
            listing = [{"type": "file", "path": file, "size": size, "oid": HASH} for file, size in sizes.items()]
            return json.dumps(listing).encode()
        siblings = [{"rfilename": file, "size": size} for file, size in sizes.items()]
        total = self.sizes[name] // 2
        about = {"id": name, "sha": HASH, "siblings": siblings, "tags": [], "private": False, "downloads": 0}
        return json.dumps(about | {"safetensors": {"parameters": {"BF16": total}, "total": total}}).encode()

    def _send(self, request: http.server.BaseHTTPRequestHandler, body: bytes | None, claimed: int = 0) -> None:
        """`claimed` bytes of weights stand behind the header, as far as the answer to a range says."""
        if body is None:
            request.send_response(404)
            request.send_header("X-Error-Code", "EntryNotFound")
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        first, last, status = 0, len(body) - 1, 200
        if wanted := request.headers.get("Range", "").removeprefix("bytes="):
            start, _, stop = wanted.partition("-")
            first, last, status = int(start), min(int(stop or last), last), 206
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        request.send_header("ETag", f'"{HASH}"')
        request.send_header("X-Repo-Commit", HASH)
        request.send_header("Content-Length", str(last - first + 1))
        if status == 206:
            request.send_header("Content-Range", f"bytes {first}-{last}/{len(body) + claimed}")
        request.end_headers()
        if request.command == "GET":
            request.wfile.write(body[first : last + 1])

    def close(self) -> None:
        self.server.shutdown()
