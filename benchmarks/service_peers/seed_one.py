"""Seed 1's server rebuilt from its description: the standard library's HTTP server over a policy and a value in torch.

1536 -> 256 -> 256 -> 128 with BatchNorm, ReLU and Dropout(.1), five actions; one thread, JSON, nothing is logged.
Prints the port that it listens on.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

import torch
from torch import nn

MUTATIONS = ["try-catch-style", "context-reduction", "expansion", "constraint-addition", "task-decomposition"]


def network(outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    size = 1536
    for width in (256, 256, 128):
        layers += [nn.Linear(size, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.1)]
        size = width
    return nn.Sequential(*layers, nn.Linear(size, outputs)).eval()


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    policy = network(len(MUTATIONS))
    value = network(1)

    def do_POST(self) -> None:
        """Chooses."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        state = torch.FloatTensor(body["embedding"]).unsqueeze(0)
        with torch.no_grad():
            chances = torch.distributions.Categorical(logits=self.policy(state))
            action = chances.sample()  # type: ignore[no-untyped-call]  # torch's
            found = {
                "action": action.item(),
                "mutation_type": MUTATIONS[int(action.item())],
                "log_prob": chances.log_prob(action).item(),  # type: ignore[no-untyped-call]  # torch's
                "value": self.value(state).item(),
            }
        data = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: object) -> None:
        """Says nothing: a line for each request would be measured too."""


def main() -> None:
    torch.set_num_threads(1)
    server = HTTPServer(("127.0.0.1", 0), Handler)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
